//! The target `image`: see `fuzz/bodies/src/image.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::image(data));
