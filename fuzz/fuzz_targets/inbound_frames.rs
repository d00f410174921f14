//! See `esplanade_fuzz::inbound_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::inbound_frames(data));
