//! Fuzz target: see `keeplog_fuzz::codec`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::codec(data));
