//! The target `replies`: see `fuzz/bodies/src/replies.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::replies(data));
