//! Fuzz target: see `keeplog_fuzz::offset_index`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::offset_index(data));
