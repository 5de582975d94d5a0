//! The target `inspect`: see `fuzz/bodies/src/inspect.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::inspect(data));
