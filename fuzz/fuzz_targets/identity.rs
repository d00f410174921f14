//! See `esplanade_fuzz::identity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::identity(data));
