//! The target `library`: see `fuzz/bodies/src/library.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::library(data));
