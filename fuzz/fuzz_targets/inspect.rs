#![no_main]
// See `fuzz/bodies/src/inspect.rs`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| farjump_fuzz::inspect(data));
