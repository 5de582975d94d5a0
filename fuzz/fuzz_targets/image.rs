#![no_main]
// See `fuzz/bodies/src/image.rs`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::image(data));
