//! The target `handshake`: see `fuzz/bodies/src/handshake.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::handshake(data));
