//! A reader that began before its log was deleted, or closed and opened again: it ends, or goes on with what it began.

use keeplog::{Durability, ErrorKind, Log, Records, Store};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{allow, record};

use super::store::open;

/// The log is deleted, and a new one made under its name.
pub(super) const DELETED: Model =
    Model { name: "stale-reader-deleted", claim: "a reader never meets the log that has its log's name now", run: || run(delete) };
/// The log is closed, opened again and cleaned.
pub(super) const REOPENED: Model =
    Model { name: "stale-reader-reopened", claim: "a reader never meets what a later life of its log has made of it", run: || run(reopen) };

const RECORDS: u64 = 9;

fn run(change: fn(&Store)) {
    let disk = Disk::new();
    let store = open(&disk);
    let log = store.log("topic", 0).expect("it opens");
    fill(&log, "old");
    let records = log.read_from(0).expect("from the start");
    thread::scope(|scope| {
        scope.spawn(|| change(&store));
        scope.spawn(|| read(records));
        scope.spawn(|| match log.read_from(0) {
            Ok(records) => read(records),
            Err(error) => allow(&error, &[ErrorKind::Closed]),
        });
    });
    store.close().expect("it closes");
}

fn fill(log: &Log, value: &str) {
    for number in 0..RECORDS {
        let value = format!("{value}{}", "*".repeat(number as usize));
        log.append(&[record((number % 2).to_string(), value)], Durability::Buffered).expect("it is appended");
    }
    log.roll().expect("it rolls");
}

fn delete(store: &Store) {
    store.delete_log("topic", 0).expect("it is deleted");
    fill(&store.log("topic", 0).expect("it opens"), "newer");
}

fn reopen(store: &Store) {
    store.log("topic", 0).expect("it is there").close().expect("it closes");
    let log = store.log("topic", 0).expect("it opens again");
    if let Err(error) = store.clean(&log) {
        allow(&error, &[ErrorKind::Locked]);
    }
}

fn read(records: Records) {
    let mut next = None;
    for record in records {
        match record {
            Ok(record) => {
                let (offset, value) = (record.offset(), record.value().expect("no tombstone"));
                assert!(next <= Some(offset), "offsets rise");
                assert_eq!(value, &format!("old{}", "*".repeat(offset as usize)), "what was there when it began");
                next = Some(offset + 1);
            }
            Err(error) => return allow(&error, &[ErrorKind::Closed]),
        }
    }
    assert_eq!(next, Some(RECORDS), "to the end");
}
