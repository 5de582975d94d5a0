//! The target `objects`: see `fuzz/bodies/src/objects.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::objects(data));
