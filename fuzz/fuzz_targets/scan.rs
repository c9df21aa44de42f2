//! Fuzz target: see `keeplog_fuzz::scan`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::scan(data));
