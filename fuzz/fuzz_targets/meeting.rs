#![no_main]
// See `fuzz/bodies/src/meeting.rs`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::meeting(data));
