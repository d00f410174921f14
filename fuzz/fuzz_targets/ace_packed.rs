//! See `esplanade_fuzz::ace_packed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::ace_packed(data));
