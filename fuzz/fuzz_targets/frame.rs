#![no_main]
// See `fuzz/bodies/src/frame.rs`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::frame(data));
