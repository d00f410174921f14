//! See `esplanade_fuzz::vici_packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::vici_packet(data));
