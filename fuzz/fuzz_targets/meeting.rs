//! The target `meeting`: see `fuzz/bodies/src/meeting.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::meeting(data));
