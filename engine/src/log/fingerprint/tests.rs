use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::record::Record;
use crate::storage::{MemoryStorage, OpenMode, Storage, write_all_at};
use crate::{Durability, LogOptions};

fn disk() -> Arc<MemoryStorage> {
    let disk = MemoryStorage::new();
    disk.create_dir(Path::new("/data")).unwrap();
    Arc::new(disk)
}

fn open(disk: &Arc<MemoryStorage>) -> Log {
    let options = LogOptions::new().segment_bytes(4096).index_interval_bytes(200);
    Log::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data/t-0"), options).unwrap()
}

fn append(log: &Log, values: std::ops::Range<u32>) {
    for value in values {
        log.append(&[Record::new("key", value.to_string())], Durability::Buffered).unwrap();
    }
}

#[test]
fn what_comes_behind_the_end_changes_nothing() {
    let disk = disk();
    let log = open(&disk);
    append(&log, 0..7);
    let prints: Vec<_> = [0, 1, 7].iter().map(|end| log.fingerprint(*end).unwrap()).collect();
    append(&log, 7..300);
    let later = log.fingerprint(300).unwrap();
    assert!(log.segments().all().len() > 3);
    assert_eq!(later.bytes(), log.segments().all().iter().map(|s| s.size_bytes()).sum::<u64>());
    log.roll().unwrap();
    log.close().unwrap();
    let log = open(&disk);
    for print in prints.iter().chain([&later]) {
        let again = log.fingerprint(print.end_offset()).unwrap();
        assert_eq!(print.difference(&again), None);
        assert_eq!(Fingerprint::decode(&print.encode()), Some(again));
    }
    assert_eq!(log.fingerprint(301).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn another_history_has_another_one() {
    let disk = disk();
    let log = open(&disk);
    append(&log, 0..300);
    let print = log.fingerprint(300).unwrap();
    log.truncate_to(299).unwrap();
    append(&log, 7..8);
    assert_eq!(print.difference(&log.fingerprint(300).unwrap()).unwrap().split(' ').next(), Some("segment"));
    log.advance_start(10).unwrap();
    let why = print.difference(&log.fingerprint(300).unwrap()).unwrap();
    assert_eq!(why, "the log started at offset 0, and starts at 10 now");
}

#[test]
fn an_offset_within_a_batch_is_refused() {
    let log = open(&disk());
    log.append(&[Record::new("a", "1"), Record::new("b", "2")], Durability::Buffered).unwrap();
    assert_eq!(log.fingerprint(1).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert!(log.fingerprint(2).is_ok());
}

#[test]
fn bytes_that_are_none_are_refused() {
    let log = open(&disk());
    append(&log, 0..300);
    let bytes = log.fingerprint(300).unwrap().encode();
    for len in 0..bytes.len() {
        assert_eq!(Fingerprint::decode(&bytes[..len]), None);
    }
    assert_eq!(Fingerprint::decode(&[0xFF; 60]), None);
}

#[test]
fn a_truncation_removes_what_was_kept_beside_the_log_before_it_cuts() {
    let disk = disk();
    let log = open(&disk);
    append(&log, 0..10);
    let kept = Path::new("/data/t-0/offsets.keeplog-snapshot");
    let write = || write_all_at(&*disk.open(kept, OpenMode::Truncate).unwrap(), b"bytes", 0).unwrap();
    write();
    log.truncate_to(10).unwrap();
    assert!(disk.metadata(kept).is_ok(), "nothing was cut");
    log.truncate_to(5).unwrap();
    assert!(disk.metadata(kept).is_err());
    write();
    log.close().unwrap();
    drop(open(&disk));
    assert!(disk.metadata(kept).is_ok());
}
