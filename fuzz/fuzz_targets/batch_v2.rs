//! Fuzz target: see `keeplog_fuzz::batch_v2`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::batch_v2(data));
