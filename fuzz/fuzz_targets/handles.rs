//! The target `handles`: see `fuzz/bodies/src/handles.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::handles(data));
