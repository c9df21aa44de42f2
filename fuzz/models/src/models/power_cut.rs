//! Commits, the background cleaner and a power cut: what was acknowledged by then is there again.

use std::path::Path;
use std::sync::{Arc, Mutex};

use keeplog::{OffsetAndMetadata, OffsetOptions, OffsetStore, StoreOptions};
use shuttle::thread;

use crate::disk::{Disk, step};
use crate::run::Model;
use crate::world::{any, options};

/// Two who commit, a cleaner that cleans all the time, and the power goes.
pub(super) const MODEL: Model = Model { name: "power-cut", claim: "a cut loses no acknowledged commit, whatever the cleaner is at", run };

const GROUPS: [&str; 2] = ["one", "two"];
const COMMITS: u64 = 4;

fn run() {
    let disk = Disk::new();
    let store = open(&disk);
    let acknowledged = Mutex::new([0; 2]);
    let cut = thread::scope(|scope| {
        for (at, group) in GROUPS.into_iter().enumerate() {
            let (store, acknowledged) = (&store, &acknowledged);
            scope.spawn(move || {
                for offset in 1..=COMMITS {
                    store.commit(group, &[("topic", 0, OffsetAndMetadata::new(offset))]).expect("it is committed");
                    acknowledged.lock().expect("nobody panicked")[at] = offset;
                    store.store().wake_cleaner();
                }
            });
        }
        (0..any(600)).for_each(|_| step());
        let safe = *acknowledged.lock().expect("nobody panicked");
        (safe, disk.cut())
    });
    store.close().expect("it closes");
    assert!(store.store().cleaner().dead.is_none());
    check(&cut.1.restore(), cut.0);
    check(&disk.cut().restore(), [COMMITS; 2]);
}

fn open(disk: &Disk) -> OffsetStore {
    let store = StoreOptions::new().log_cleaner_dedupe_buffer_size(1024).log_flush_offset_checkpoint_interval_ms(0);
    let options = OffsetOptions::new().offsets_topic_num_partitions(1).log(options().min_cleanable_dirty_ratio(0.0)).store(store);
    OffsetStore::open_with(Arc::new(disk.clone()), Path::new("/data"), options).expect("it opens")
}

fn check(disk: &Disk, acknowledged: [u64; 2]) {
    let store = open(disk);
    for (group, safe) in GROUPS.into_iter().zip(acknowledged) {
        let found = store.fetch(group, &[("topic", 0)]).expect("it is loaded").remove(0).map_or(0, |found| found.offset);
        assert!(found >= safe, "{group} was told {safe}, {found} is there");
    }
    store.close().expect("it closes");
}
