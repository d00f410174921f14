//! See `esplanade_fuzz::auth_signature`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::auth_signature(data));
