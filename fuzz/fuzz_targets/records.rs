//! The target `records`: see `fuzz/bodies/src/records/mod.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::records(data));
