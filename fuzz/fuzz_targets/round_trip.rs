//! Fuzz target: see `keeplog_fuzz::round_trip`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::round_trip(data));
