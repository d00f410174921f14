//! See `esplanade_fuzz::esp_inbound`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::esp_inbound(data));
