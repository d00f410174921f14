//! See `esplanade_fuzz::cost`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::cost(data));
