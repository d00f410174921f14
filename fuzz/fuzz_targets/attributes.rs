//! See `esplanade_fuzz::attributes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::attributes(data));
