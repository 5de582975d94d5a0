//! The target `frame`: see `fuzz/bodies/src/frame.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::frame(data));
