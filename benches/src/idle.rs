//! What a store costs in which nothing happens.

use std::thread;
use std::time::Duration;

use keeplog::{Durability, LogOptions, Record, Store, StoreOptions};
use serde_json::json;

use crate::args::{Common, Idle};
use crate::{Outcome, usage, work};

/// Makes the logs, lets the first rounds pass, and counts the processor's time from then on.
pub(crate) fn run(args: &Idle, common: &Common) -> Outcome<()> {
    let dir = work::directory(common)?;
    let options = StoreOptions::new()
        .log(LogOptions::new().segment_bytes(1 << 20))
        .log_cleaner_backoff_ms(args.backoff_ms)
        .log_flush_offset_checkpoint_interval_ms(args.checkpoint_ms);
    let store = Store::open(dir.path(), options)?;
    for partition in 0..args.logs {
        let log = store.log("idle", partition)?;
        log.append(&[Record::new("key", "value")], Durability::Buffered)?;
    }
    // Every log is looked at once, and its offsets are saved once.
    let rounds = Duration::from_millis(args.backoff_ms.max(args.checkpoint_ms));
    thread::sleep(rounds * 2 + Duration::from_secs(2));
    let (before, looks) = (usage::processor_time()?, store.cleaner().dirtiness_looks);
    thread::sleep(Duration::from_secs(args.seconds));
    let spent = usage::processor_time()?.saturating_sub(before).as_secs_f64();
    let percent = 100.0 * spent / args.seconds as f64;
    let looks = store.cleaner().dirtiness_looks - looks;
    if common.json {
        println!("{}", json!({"logs": args.logs, "seconds": args.seconds, "processor_seconds": spent, "percent": percent, "looks": looks}));
    } else {
        println!("{} logs: {spent:.2} s of a processor in {} s, {percent:.3} %; {looks} logs were looked at", args.logs, args.seconds);
    }
    store.close()?;
    Ok(())
}
