//! Fuzz target: see `keeplog_fuzz::directory`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::directory(data));
