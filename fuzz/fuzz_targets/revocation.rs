//! See `esplanade_fuzz::revocation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::revocation(data));
