//! One log: append, read, clean.
//!
//! `cargo run --example one_log`

#![allow(clippy::print_stdout)] // examples show what they do

use keeplog::{CleanOptions, Durability, Log, LogOptions, Record, clean};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let log = Log::open(dir.path().join("prices-0"), LogOptions::new().segment_bytes(10 << 20))?;

    // Returns when both records are on stable storage.
    let placed = log.append(&[Record::new("EURUSD", "1.0842"), Record::tombstone("GBPUSD")], Durability::Synced)?;
    println!("offsets {} to {}", placed.base_offset, placed.last_offset);
    log.append(&[Record::new("EURUSD", "1.0850")], Durability::Synced)?;

    for record in log.read_from(placed.base_offset)? {
        let record = record?;
        println!("{} {:?} = {:?}", record.offset(), record.key(), record.value());
    }

    // Only closed segments are cleaned.
    log.roll()?;
    let report = clean(&log, &CleanOptions::for_log(log.options(), log.storage().now_ms()), &())?;
    println!("{report}");
    assert_eq!(log.read_from(0)?.count(), 2, "the newest record of each key");
    log.close()?;
    Ok(())
}
