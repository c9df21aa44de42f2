//! A store of very many small logs and a large one, which is always dirty. 1,000 small ones; `KEEPLOG_SMALL_LOGS=10000` makes
//! more of them.

use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::schedule::PASSES_WAITED_MAX;
use keeplog::inspect::storage::{MemoryStorage, Storage};
use keeplog::{Durability, Log, LogOptions, Record, Store, StoreOptions};

fn append(log: &Log, records: u64) {
    (0..records).for_each(|i| _ = log.append(&[Record::new(format!("key {}", i % 3), "v".repeat(60))], Durability::Buffered).unwrap());
    log.roll().unwrap();
}

#[test]
fn a_large_log_and_small_ones_have_their_turns() {
    let small_logs = std::env::var("KEEPLOG_SMALL_LOGS").map_or(1000, |count| count.parse().unwrap());
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = StoreOptions::new().log(LogOptions::new().segment_bytes(65_536)).background_thread(false);
    let store = Store::open_with(disk, Path::new("/data"), options).unwrap();
    let small: Vec<Log> = (0..small_logs).map(|partition| store.log("small", partition).unwrap()).collect();
    let big = store.log("big", 0).unwrap();
    // Small ones are less dirty than the big one ever is.
    for log in &small {
        append(log, 6);
    }
    while store.housekeep().is_zero() {}
    for log in &small {
        append(log, 5);
    }
    let before = store.cleaner();
    let mut in_turn = 0;
    for round in 0..small_logs + PASSES_WAITED_MAX {
        append(&big, 100);
        assert!(store.housekeep().is_zero(), "there is always something to clean");
        let is_big = big.data_dir().cleaner_offset(big.topic_partition()) == Some(big.end_offset());
        in_turn = if is_big { in_turn + 1 } else { 0 };
        // Once they have waited, one small log comes after the other.
        assert!(in_turn <= PASSES_WAITED_MAX, "round {round}: the big log keeps the small ones from their turn");
    }
    let records = |log: &Log| log.read_from(0).unwrap().map(Result::unwrap).count();
    assert!(small.iter().all(|log| records(log) == 3), "every small log was cleaned");
    // Nor do they keep the big one from its own for longer than that.
    store.housekeep();
    assert_eq!(records(&big), 3);
    // A look at each log that changed, and never at all of them: a few for each pass, counting those after the changes.
    let after = store.cleaner();
    let (passes, looks) = (after.passes - before.passes, after.dirtiness_looks - before.dirtiness_looks);
    assert!(looks <= 4 * passes + u64::from(small_logs), "{looks} looks for {passes} passes");
    assert!(!store.housekeep().is_zero(), "all is clean");
}
