//! See `esplanade_fuzz::tun_gso`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::tun_gso(data));
