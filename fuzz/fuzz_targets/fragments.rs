//! See `esplanade_fuzz::fragments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::fragments(data));
