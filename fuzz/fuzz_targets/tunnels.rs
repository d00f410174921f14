//! See `esplanade_fuzz::tunnels`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::tunnels(data));
