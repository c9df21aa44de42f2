//! Fuzz target: see `keeplog_fuzz::checkpoint`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::checkpoint(data));
