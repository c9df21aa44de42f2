//! A store: its background cleaner against append, open, delete and close.

use std::path::Path;
use std::sync::{Arc, Mutex};

use keeplog::{Durability, ErrorKind, Store, StoreOptions};
use shuttle::thread;

use crate::disk::{Disk, step};
use crate::run::Model;
use crate::world::{allow, any, options, read_all, record};

/// Everything that can be asked of a store, and its close in the midst of it.
pub(super) const MODEL: Model =
    Model { name: "store", claim: "close returns and ends the cleaner; logs are clean and whole whatever was under way", run };

type Kept = Mutex<Vec<(&'static str, String)>>;

fn run() {
    let disk = Disk::new();
    let store = open(&disk);
    let kept = Kept::default();
    for number in 0..5 {
        assert!(append(&store, "kept", format!("before.{number}"), &kept));
        assert!(append(&store, "deleted", format!("before.{number}"), &Kept::default()));
    }
    thread::scope(|scope| {
        scope.spawn(|| (0..3).all(|number| append(&store, "kept", number.to_string(), &kept)));
        scope.spawn(|| {
            if let Err(error) = store.delete_log("deleted", 0) {
                return allow(&error, &[ErrorKind::Closed]);
            }
            append(&store, "deleted", "after".into(), &kept);
        });
        scope.spawn(|| {
            store.wake_cleaner();
            assert!(store.cleaner().uncleanable.is_empty());
            if let Err(error) = store.checkpoint() {
                allow(&error, &[ErrorKind::Closed]);
            }
        });
        scope.spawn(|| {
            let cleaned = store.log("kept", 0).and_then(|log| store.clean(&log));
            if let Err(error) = cleaned {
                allow(&error, &[ErrorKind::Closed, ErrorKind::Locked]);
            }
        });
        scope.spawn(|| {
            if let Ok(log) = store.log("kept", 0) {
                log.close().expect("it closes");
            }
            store.close().expect("it closes");
            check(&disk, &kept);
        });
        scope.spawn(|| {
            (0..any(100)).for_each(|_| step());
            store.close().expect("it closes");
            check(&disk, &kept);
        });
    });
    let cleaner = store.cleaner();
    assert!(cleaner.dead.is_none() && cleaner.uncleanable.is_empty(), "{cleaner:?}");
    assert!(!append(&store, "kept", "late".into(), &kept), "a closed store takes nothing");
    check(&disk, &kept);
}

/// On the disk all is there, closed in order.
fn check(disk: &Disk, kept: &Kept) {
    let again = open(&disk.cut().restore());
    assert!(again.failed().is_empty());
    assert!(again.logs().iter().all(|log| log.recovery_report().clean), "all were closed in order");
    let kept = kept.lock().expect("nobody panicked").clone();
    for (topic, value) in kept {
        let there = read_all(&again.log(topic, 0).expect("it is there"));
        assert!(there.iter().any(|seen| seen.value == value), "{value} was appended to {topic}: {there:?}");
    }
    again.close().expect("it closes");
}

pub(super) fn open(disk: &Disk) -> Store {
    let options = StoreOptions::new()
        .log(options().min_cleanable_dirty_ratio(0.0))
        .log_cleaner_dedupe_buffer_size(1024)
        .log_flush_offset_checkpoint_interval_ms(0);
    Store::open_with(Arc::new(disk.clone()), Path::new("/data"), options).expect("it opens")
}

/// Whether it was appended. If not, the store or the log was closed.
fn append(store: &Store, topic: &'static str, value: String, kept: &Kept) -> bool {
    let appended = store.log(topic, 0).and_then(|log| log.append(&[record(value.clone(), value.clone())], Durability::Synced));
    match appended {
        Ok(_) => kept.lock().expect("nobody panicked").push((topic, value)),
        Err(error) => {
            allow(&error, &[ErrorKind::Closed]);
            return false;
        }
    }
    true
}
