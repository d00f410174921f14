//! See `esplanade_fuzz::policies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::policies(data));
