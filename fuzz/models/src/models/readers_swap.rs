//! Readers against swap and removal: each sees one consistent log, and the newest record of every key.

use std::collections::BTreeMap;

use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::{Durability, ErrorKind, Log};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{allow, check_no_leftovers, open, read_all, read_from, record};

/// Two readers, two passes of the cleaner, and retention.
pub(super) const MODEL: Model = Model { name: "readers-swap", claim: "readers see rising offsets and the newest of every key", run };

const RECORDS: u64 = 10;
const START: u64 = 3;

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    for number in 0..RECORDS {
        log.append(&[record(key(number), number.to_string())], Durability::Buffered).expect("it is appended");
    }
    log.roll().expect("it rolls");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..2).for_each(|_| read(&log)));
        }
        scope.spawn(|| (0..2).for_each(|_| compact(&log)));
        scope.spawn(|| {
            log.advance_start(START).expect("below the end");
            log.apply_retention().expect("it is applied");
        });
    });
    compact(&log);
    log.apply_retention().expect("it is applied");
    let live = read_all(&log);
    let newest: BTreeMap<_, _> = (0..RECORDS).map(|number| (key(number), number)).collect();
    assert_eq!(live.len(), newest.len(), "one record of each key stays: {live:?}");
    check_no_leftovers(&disk);
    log.close().expect("it closes");
    assert_eq!(read_all(&open(&disk)), live);
}

fn key(number: u64) -> String {
    (number % 3).to_string()
}

fn compact(log: &Log) {
    if let Err(error) = clean(log, &CleanOptions::for_log(log.options(), log.storage().now_ms()), &()) {
        allow(&error, &[ErrorKind::Locked]);
    }
}

fn read(log: &Log) {
    let start = log.start_offset();
    let seen = match read_from(log, start) {
        Ok(seen) => seen,
        Err(error) => {
            allow(&error, &[ErrorKind::OutOfRange]);
            assert!(start < log.start_offset(), "only a start that has moved is out of range");
            return;
        }
    };
    for found in &seen {
        assert_eq!((&found.value, &found.key), (&found.offset.to_string(), &key(found.offset)));
    }
    for number in RECORDS - 3..RECORDS {
        assert!(seen.iter().any(|found| found.offset == number), "the newest of a key is missing: {number} from {start} in {seen:?}");
    }
}
