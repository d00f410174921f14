//! See `esplanade_fuzz::config_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::config_parse(data));
