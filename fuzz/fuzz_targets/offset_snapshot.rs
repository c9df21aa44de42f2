//! Fuzz target: see `keeplog_fuzz::offset_snapshot`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::offset_snapshot(data));
