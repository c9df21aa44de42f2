//! A snapshot of committed offsets that is saved while everything goes on.

use std::sync::Mutex;

use keeplog_engine::ErrorKind;
use keeplog_offsets::{CommitOptions, Lead, OffsetAndMetadata, OffsetStore, Outcome, Producer};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{allow, any, open};

/// Commits, a transaction, and an expiry or another leader meanwhile.
pub(super) const MODEL: Model = Model {
    name: "snapshots",
    claim: "whenever the power goes, a load that begins with a snapshot gives what the log does",
    run: snapshots,
};

/// Enough of them for a few pieces of a save.
const GROUPS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PRODUCER: Producer = Producer { id: 4, epoch: 0 };

/// One is due as soon as there is anything to save.
fn options() -> CommitOptions {
    CommitOptions::new().snapshot_interval_bytes(0)
}

fn at(offset: u64) -> OffsetAndMetadata {
    OffsetAndMetadata::new(offset)
}

/// What a store answers, and the entries that its load had from a snapshot.
fn answers(store: &OffsetStore) -> (Vec<String>, u64) {
    let mut all: Vec<_> = store.list().expect("it is loaded").iter().map(|listed| format!("{listed:?}")).collect();
    for group in GROUPS {
        all.push(format!("{:?}", store.fetch_stable(group, &[("topic", 0), ("topic", 1)]).expect("it is loaded")));
    }
    (all, store.load_report().from_snapshot)
}

/// What a power failure would leave is the same with a snapshot as without. Gives what [`answers`] does.
fn check(disk: &Disk) -> (Vec<String>, u64) {
    let cut = disk.cut();
    let load = |options| answers(&OffsetStore::open(vec![open(&cut.restore())], options).expect("it opens"));
    let (restored, plain) = (load(options()), load(options().snapshots(false)));
    assert_eq!(restored.0, plain.0, "with a snapshot, and without");
    restored
}

fn snapshots() {
    let disk = Disk::new();
    let store = OffsetStore::open(vec![open(&disk)], options()).expect("it opens");
    for group in GROUPS {
        let old = at(1).commit_timestamp_ms(1);
        store.commit(group, &[("topic", 0, if any(2) == 0 { old } else { at(1) })]).expect("it is committed");
    }
    let group = GROUPS[any(5) as usize];
    store.commit_in_transaction(PRODUCER, group, &[("topic", 0, at(2)), ("topic", 1, at(2))]).expect("it is committed");
    let saved = Mutex::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                let found = store.save_snapshots().expect("it is saved");
                *saved.lock().expect("nobody panicked") += found.partitions;
            }
        });
        scope.spawn(|| {
            let (one, other) = (GROUPS[any(5) as usize], GROUPS[any(5) as usize]);
            let offsets = [("topic", 0, at(3))];
            let done = [
                store.commit(one, &offsets),
                store.delete_offsets(other, &[("topic", 0)]).map(drop),
                store.end_transaction(PRODUCER, if any(2) == 0 { Outcome::Commit } else { Outcome::Abort }).map(drop),
            ];
            done.into_iter().filter_map(Result::err).for_each(|error| allow(&error, &[ErrorKind::NotLeader, ErrorKind::Loading]));
        });
        scope.spawn(|| {
            if any(2) == 0 {
                store.expire().expect("it expires");
                return;
            }
            assert!(store.resign(0, Some(1)).expect("there is a partition"));
            assert_eq!(store.lead(0, 2).expect("there is a partition"), Lead::Loads);
            while let Some((_, loaded)) = store.load_next() {
                loaded.expect("it loads");
            }
        });
        scope.spawn(|| _ = check(&disk));
    });
    store.flush().expect("it is flushed");
    let (left, from_snapshot) = check(&disk);
    assert_eq!(answers(&store).0, left);
    assert!(from_snapshot > 0 || *saved.lock().expect("nobody panicked") == 0, "one that was saved is believed");
}
