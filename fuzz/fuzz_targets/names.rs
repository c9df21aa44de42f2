//! Fuzz target: see `keeplog_fuzz::names`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::names(data));
