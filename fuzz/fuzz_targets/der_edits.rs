//! See `esplanade_fuzz::der_edits`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| esplanade_fuzz::der_edits(data));
