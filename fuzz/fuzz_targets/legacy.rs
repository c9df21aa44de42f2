//! Fuzz target: see `keeplog_fuzz::legacy`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::legacy(data));
