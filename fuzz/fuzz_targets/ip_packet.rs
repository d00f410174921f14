//! See `esplanade_fuzz::ip_packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::ip_packet(data));
