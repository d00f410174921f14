//! See `esplanade_fuzz::ike_peers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::ike_peers(data));
