//! See `esplanade_fuzz::certificates`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::certificates(data));
