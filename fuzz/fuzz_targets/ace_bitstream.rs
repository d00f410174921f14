//! See `esplanade_fuzz::ace_bitstream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::ace_bitstream(data));
