//! Committed offsets: commit, fetch, and be back after a restart.
//!
//! `cargo run --example offsets`

#![allow(clippy::print_stdout)] // examples show what they do

use keeplog::{OffsetAndMetadata, OffsetOptions, OffsetStore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let offsets = OffsetStore::open(dir.path(), OffsetOptions::new())?;

    // All or none, on stable storage when it returns.
    offsets.commit(
        "billing",
        &[("orders", 0, OffsetAndMetadata::new(42)), ("orders", 1, OffsetAndMetadata::new(7).metadata("half of the file"))],
    )?;
    offsets.close()?;

    let offsets = OffsetStore::open(dir.path(), OffsetOptions::new())?;
    println!("{}", offsets.load_report());
    for found in offsets.fetch("billing", &[("orders", 0), ("orders", 1), ("orders", 2)])? {
        match found {
            Some(committed) => println!("next record to read: {} {:?}", committed.offset, committed.metadata),
            None => println!("nothing committed: start where the application says"),
        }
    }
    offsets.close()?;
    Ok(())
}
