//! Many logs under one directory, cleaned in the background.
//!
//! `cargo run --example many_logs`

#![allow(clippy::print_stdout)] // examples show what they do

use keeplog::{CleanupPolicy, Durability, LogOptions, Record, Store, StoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let options = StoreOptions::new()
        .log(LogOptions::new().segment_bytes(1 << 20))
        .topic("events", LogOptions::new().cleanup_policy(CleanupPolicy::Delete).retention_ms(Some(3_600_000)))
        .log_cleaner_backoff_ms(100);
    let store = Store::open(dir.path(), options)?;

    let accounts = store.log("accounts", 0)?;
    for round in 0..200 {
        let batch: Vec<_> = (0..100).map(|account| Record::new(format!("account-{account}"), format!("balance {round}"))).collect();
        accounts.append(&batch, Durability::Buffered)?;
    }
    accounts.sync()?;
    store.log("events", 0)?.append(&[Record::keyless("started")], Durability::Synced)?;

    for log in store.logs() {
        println!("{}: offsets {} to {}", log.topic_partition(), log.start_offset(), log.end_offset());
    }
    println!("passes of the cleaner so far: {}", store.cleaner().passes);
    store.close()?;
    Ok(())
}
