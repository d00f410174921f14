//! See `esplanade_fuzz::ocsp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::ocsp(data));
