//! Fuzz target: see `keeplog_fuzz::snapshot`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::snapshot(data));
