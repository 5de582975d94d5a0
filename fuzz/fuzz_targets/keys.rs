//! The target `keys`: see `fuzz/bodies/src/keys.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::keys(data));
