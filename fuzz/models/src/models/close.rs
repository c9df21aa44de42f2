//! Close against everything: it returns, the others are told, and all that was appended is on the disk.

use std::sync::Mutex;

use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::{Durability, ErrorKind, Log};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{allow, open, read_all, read_from, record};

/// Writers, a reader, a cleaner, retention, syncs, and a close in the midst of them.
pub(super) const MODEL: Model = Model { name: "close", claim: "close returns, others get Closed, every append that returned is kept", run };

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    let placed = Mutex::new(Vec::new());
    for number in 0..5 {
        append(&log, &format!("before.{number}"), Durability::Buffered, &placed);
    }
    thread::scope(|scope| {
        for (writer, durability) in [(0, Durability::Buffered), (1, Durability::Synced)] {
            let (log, placed) = (&log, &placed);
            scope.spawn(move || (0..3).all(|number| append(log, &format!("{writer}.{number}"), durability, placed)));
        }
        scope.spawn(|| {
            if let Err(error) = read_from(&log, 0) {
                allow(&error, &[ErrorKind::Closed]);
            }
        });
        scope.spawn(|| {
            if let Err(error) = clean(&log, &CleanOptions::for_log(log.options(), log.storage().now_ms()), &()) {
                allow(&error, &[ErrorKind::Closed, ErrorKind::Locked]);
            }
        });
        scope.spawn(|| {
            for result in [log.sync(), log.roll(), log.apply_retention().map(drop), log.truncate_to(100)] {
                if let Err(error) = result {
                    allow(&error, &[ErrorKind::Closed]);
                }
            }
        });
        scope.spawn(|| log.close().expect("it closes"));
    });
    assert!(!append(&log, "late", Durability::Buffered, &placed), "a closed log takes nothing");
    let again = open(&disk.cut().restore());
    assert!(again.recovery_report().clean, "the clean mark is durable");
    let kept = read_all(&again);
    for (offset, value) in placed.into_inner().expect("nobody panicked") {
        assert!(kept.iter().any(|seen| seen.offset == offset && seen.value == value), "{offset} was appended: {kept:?}");
    }
}

/// Whether it was appended. If not, the log was closed.
fn append(log: &Log, value: &str, durability: Durability, placed: &Mutex<Vec<(u64, String)>>) -> bool {
    match log.append(&[record(value, value)], durability) {
        Ok(at) => {
            placed.lock().expect("nobody panicked").push((at.base_offset, value.to_owned()));
            true
        }
        Err(error) => {
            allow(&error, &[ErrorKind::Closed]);
            false
        }
    }
}
