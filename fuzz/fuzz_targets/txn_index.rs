//! Fuzz target: see `keeplog_fuzz::txn_index`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| keeplog_fuzz::txn_index(data));
