//! Passes that swap what they have finished before they are over.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::{BatchSpec, Record, TxnResult};
use keeplog_engine::storage::{MemoryStorage, OpenMode, Storage};
use keeplog_engine::{Durability, Log, TransactionEnd};

use super::field::{Disk, append, batch};
use super::real::{PATH, open};
use crate::clean;
use crate::options::{CleanOptions, CleanOutcome, CleanReport, Watch};

const DAY_MS: u64 = 86_400_000;

/// Whether room is short.
struct Room {
    is_short: bool,
}

impl Watch for Room {
    fn wants_room(&self) -> bool {
        self.is_short
    }
}

/// Bytes of all files of the log.
fn bytes(memory: &MemoryStorage) -> u64 {
    let size = |name: &str| memory.metadata(&Path::new(PATH).join(name)).map_or(0, |metadata| metadata.len);
    memory.list(Path::new(PATH)).unwrap().iter().map(|entry| size(&entry.name)).sum()
}

fn sizes(log: &Log) -> Vec<u64> {
    log.segments().all().iter().map(|segment| segment.size_bytes()).collect()
}

fn reopened(memory: &MemoryStorage) -> Log {
    open(&(Arc::new(memory.clone()) as Arc<dyn Storage>))
}

fn put(log: &Log, key: &str, value: &str) {
    append(log, &[Record::new(key.to_owned(), value.to_owned())]);
}

/// What a reader of committed records holds of each key in the end.
fn newest(log: &Log) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut newest = BTreeMap::new();
    for record in log.read_committed_from(log.start_offset()).unwrap().map(Result::unwrap) {
        let key = record.key().unwrap().to_vec();
        match record.value() {
            Some(value) => newest.insert(key, value.to_vec()),
            None => newest.remove(&key),
        };
    }
    newest
}

/// Each segment is a group.
fn options(memory: &MemoryStorage) -> CleanOptions {
    CleanOptions { segment_bytes: 1, ..CleanOptions::new(memory.now_ms()) }
}

#[test]
fn outputs_come_one_by_one_in_the_place_of_their_sources_where_room_is_short() {
    let disk = Disk::empty();
    let log = open(&disk.as_storage());
    // Half of what each segment holds stays.
    for number in 0..800 {
        let key = if number % 2 == 0 { "again".to_owned() } else { format!("key-{number}") };
        put(&log, &key, &"x".repeat(100));
    }
    log.roll().unwrap();
    let (before, expected) = (bytes(&disk.memory), newest(&log));
    let cleaned = |is_short| {
        let disk = Disk::over(disk.memory.image());
        let log = open(&disk.as_storage());
        disk.keep_images();
        let report = clean(&log, &CleanOptions { segment_bytes: 4096, ..options(&disk.memory) }, &Room { is_short }).unwrap();
        assert_eq!((report.outcome, newest(&log)), (CleanOutcome::Cleaned, expected.clone()));
        let most = disk.take_memories().iter().map(bytes).max().unwrap();
        (most, CleanReport { seconds: 0.0, ..report })
    };
    let ((at_once, early), (at_the_end, late)) = (cleaned(true), cleaned(false));
    assert!(at_the_end > before + before / 3, "{at_the_end} bytes where {before} were");
    // One output, and its indexes.
    assert!(at_once < before + 2 * 4096, "{at_once} bytes where {before} were");
    assert_eq!(early, late);
}

/// Ends a pass everywhere, goes on from there as much later as tombstones and markers stay, and so on; reads what is there each
/// time. Gives the number of passes.
fn end_everywhere(memory: &MemoryStorage, passes: usize, expected: &BTreeMap<Vec<u8>, Vec<u8>>) -> usize {
    let disk = Disk::over(memory.image());
    let log = open(&disk.as_storage());
    let (mut before, mut count) = (sizes(&log), 1);
    disk.keep_images();
    clean(&log, &options(&disk.memory), &Room { is_short: true }).unwrap();
    for image in disk.take_memories() {
        let log = reopened(&image);
        assert_eq!(newest(&log), *expected);
        let now = sizes(&log);
        if passes > 1 && now != before {
            image.advance_ms(2 * DAY_MS);
            count += end_everywhere(&image, passes - 1, expected);
        }
        before = now;
    }
    count
}

#[test]
fn nothing_comes_back_though_newer_segments_are_swapped_first() {
    let disk = Disk::empty();
    let log = open(&disk.as_storage());
    for round in 0..2 {
        put(&log, "deleted", "old");
        put(&log, &format!("other-{round}"), "1");
        log.roll().unwrap();
    }
    for segment in 0..3 {
        put(&log, "again", &segment.to_string());
        append(&log, &[Record::tombstone(if segment == 1 { "deleted" } else { "nothing" })]);
        put(&log, "again", &segment.to_string());
        log.roll().unwrap();
    }
    let passes = end_everywhere(&disk.memory, 3, &newest(&log));
    assert!(passes > 10, "{passes} passes");
}

#[test]
fn aborted_records_stay_aborted_though_newer_segments_are_swapped_first() {
    let disk = Disk::empty();
    let log = open(&disk.as_storage());
    put(&log, "first", "sound");
    put(&log, "second", "sound");
    log.roll().unwrap();
    let results = [("first", TxnResult::Aborted), ("third", TxnResult::Committed), ("second", TxnResult::Aborted)];
    for (number, (key, result)) in results.into_iter().enumerate() {
        let spec = BatchSpec { producer_id: 7, base_sequence: number as i32, transactional: true, ..BatchSpec::default() };
        log.append_batch(batch(BatchSpec { producer_epoch: 0, ..spec }, &[(key, Some("of a transaction"))]), Durability::Buffered).unwrap();
        put(&log, "again", "1");
        log.roll().unwrap();
        let end = TransactionEnd { producer_id: 7, producer_epoch: 0, result, coordinator_epoch: 0 };
        log.end_transaction(&end, Durability::Buffered).unwrap();
        put(&log, "again", "2");
        log.roll().unwrap();
    }
    put(&log, "again", "3");
    log.roll().unwrap();
    let passes = end_everywhere(&disk.memory, 3, &newest(&log));
    assert!(passes > 10, "{passes} passes");
}

#[test]
fn a_damaged_batch_ends_a_pass_that_has_swapped_newer_segments_and_is_named() {
    let disk = Disk::empty();
    let log = open(&disk.as_storage());
    for segment in 0..4 {
        put(&log, "again", "1");
        put(&log, "again", &segment.to_string());
        log.roll().unwrap();
    }
    let (oldest, before, expected) = (log.segments().all()[0].path(), sizes(&log), log.read_from(2).unwrap().count());
    let file = disk.memory.open(&oldest, OpenMode::Write).unwrap();
    file.write_at(b"?", 70).unwrap();
    let error = clean(&log, &options(&disk.memory), &Room { is_short: true }).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains(&*oldest.to_string_lossy()), "{error}");
    let after = sizes(&log);
    assert!(after[..2] == before[..2] && after[2..] != before[2..], "{before:?} became {after:?}");
    assert!(log.read_from(2).unwrap().map(Result::unwrap).count() < expected);
}
