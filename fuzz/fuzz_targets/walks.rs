//! See `esplanade_fuzz::walks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::walks(data));
