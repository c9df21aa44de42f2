//! Field reports about passes that are interrupted, or that others work beside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use keeplog_engine::record::{BatchSpec, Record, TxnResult};
use keeplog_engine::storage::Storage;
use keeplog_engine::{CleanupPolicy, Durability, ErrorKind, Log, LogOptions, TransactionEnd};

use super::build::T0;
use super::field::{Disk, append, batch, contents, open_with};
use super::real::{names, open};
use crate::clean;
use crate::options::{CleanOptions, CleanOutcome, Progress, Watch};

const DAY_MS: i64 = 86_400_000;

fn has_working_files(storage: &Arc<dyn Storage>) -> bool {
    names(storage).iter().any(|name| name.contains(".cleaned") || name.contains(".swap") || name.contains(".deleted"))
}

/// Holds a pass in its middle until the log is being closed.
struct Held<'a> {
    log: &'a Log,
    begun: &'a AtomicBool,
}

impl Watch for Held<'_> {
    fn progress(&self, _: Progress) {
        self.begun.store(true, Ordering::SeqCst);
        while !self.log.needs_reopen() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a24_a_change_of_policy_ends_the_pass_under_way_before_its_swap() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    for i in 0..200 {
        append(&log, &[Record::new(format!("key-{}", i % 10), "x".repeat(100))]);
    }
    log.roll().unwrap();
    let before = contents(&log);
    let begun = AtomicBool::new(false);
    let (ended, log) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // The settings of a log stand for as long as it is open.
            log.close().unwrap();
            open_with(&storage, LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::Delete).retention_ms(None))
        });
        let options = CleanOptions { chunk_bytes: 200, ..CleanOptions::new(T0) };
        (clean(&log, &options, &Held { log: &log, begun: &begun }), other.join().unwrap())
    });
    let is_stopped = ended.map_or_else(|e| e.kind() == ErrorKind::Closed, |report| report.outcome == CleanOutcome::Stopped);
    assert!(is_stopped);
    assert!(!has_working_files(&storage), "{:?}", names(&storage));
    assert_eq!(contents(&log), before);
    assert_eq!(clean(&log, &CleanOptions::new(T0), &()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a25_segments_that_are_cleaned_every_day_still_go_by_age() {
    let disk = Disk::empty();
    let days = |policy| LogOptions::new().cleanup_policy(policy).segment_ms(DAY_MS).retention_ms(Some(7 * DAY_MS));
    let log = open_with(&disk.as_storage(), days(CleanupPolicy::CompactDelete));
    let mut first_dirty = 0;
    for day in 0..30 {
        let now_ms = T0 + day * DAY_MS;
        disk.memory.set_now_ms(now_ms);
        for hour in 0..4 {
            let value = format!("{day}");
            append(&log, &[Record::new("always", value.clone()), Record::new(format!("key-{day}-{hour}"), value)]);
            log.roll().unwrap();
        }
        let options = CleanOptions { first_dirty, ..CleanOptions::for_log(log.options(), now_ms) };
        first_dirty = clean(&log, &options, &()).unwrap().new_dirty;
        log.apply_retention().unwrap();
        let records: Vec<_> = log.read_from(log.start_offset()).unwrap().map(Result::unwrap).collect();
        let oldest = records.iter().map(keeplog_engine::record::StoredRecord::timestamp_ms).min().unwrap();
        assert!(now_ms - oldest <= 8 * DAY_MS, "day {day}: a record of {} days", (now_ms - oldest) / DAY_MS);
        let fresh = records.iter().filter(|r| now_ms - r.timestamp_ms() <= 7 * DAY_MS).count() as i64;
        assert_eq!(fresh, 4 * (day + 1).min(8) + 1, "day {day}: the newest values of fresh keys");
        assert!(log.segments().sealed().len() <= 10, "those of a day become one");
    }
}

/// What a replay of the log from its start comes to.
fn replayed(log: &Log) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for (_, key, value) in contents(log) {
        match value.as_str() {
            "-" => state.remove(&key),
            _ => state.insert(key, value),
        };
    }
    state
}

#[test]
fn a27_wherever_a_pass_is_interrupted_the_newest_value_is_what_a_replay_gives() {
    for segment_bytes in [1, 200, 300, 10_000] {
        let disk = Disk::empty();
        let log = open(&disk.as_storage());
        for record in
            [Record::new("k", "1"), Record::tombstone("k"), Record::new("k", "2"), Record::tombstone("gone"), Record::new("z", "1")]
        {
            append(&log, &[record, Record::new("x", "y")]);
            log.roll().unwrap();
        }
        append(&log, &[Record::new("gone", "never seen again")]);
        append(&log, &[Record::tombstone("gone")]);
        log.roll().unwrap();
        disk.keep_images();
        let mut options = CleanOptions { segment_bytes, delete_retention_ms: 0, ..CleanOptions::new(T0) };
        // The second pass drops the tombstones that the first one stamps.
        for _ in 0..2 {
            options.first_dirty = clean(&log, &options, &()).unwrap().new_dirty.min(1);
            options.now_ms += 1;
        }
        assert_eq!(contents(&log).len(), 3, "{:?}", contents(&log));
        let images = disk.take_images();
        assert!(images.len() > 10);
        for image in images {
            let log = open(&image);
            let offsets: Vec<_> = contents(&log).iter().map(|(offset, _, _)| *offset).collect();
            assert!(offsets.is_sorted());
            let expected = [("k", "2"), ("x", "y"), ("z", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
            assert_eq!(replayed(&log), BTreeMap::from(expected), "{offsets:?}");
        }
    }
}

#[test]
fn a28_readers_of_committed_data_see_no_half_of_a_group_wherever_a_pass_is_interrupted() {
    for result in [TxnResult::Committed, TxnResult::Aborted] {
        let disk = Disk::empty();
        let log = open(&disk.as_storage());
        let mut sequence = 0;
        let mut transactional = |records: &[(&str, Option<&str>)]| {
            let spec =
                BatchSpec { producer_id: 1, producer_epoch: 0, base_sequence: sequence, transactional: true, ..BatchSpec::default() };
            sequence += i32::try_from(records.len()).unwrap();
            log.append_batch(batch(spec, records), Durability::Buffered).unwrap();
        };
        append(&log, &[Record::new("a", "0"), Record::new("e", "0")]);
        transactional(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]);
        log.roll().unwrap();
        let second = log.end_offset();
        transactional(&[("d", Some("1")), ("e", Some("1"))]);
        let end = TransactionEnd { producer_id: 1, producer_epoch: 0, result, coordinator_epoch: 0 };
        log.end_transaction(&end, Durability::Buffered).unwrap();
        append(&log, &[Record::new("b", "2")]);
        log.roll().unwrap();
        disk.keep_images();
        let options = CleanOptions { segment_bytes: 1, ..CleanOptions::new(T0) };
        let first = CleanOptions { first_uncleanable: Some(second), ..options.clone() };
        clean(&log, &first, &()).unwrap();
        clean(&log, &CleanOptions { first_dirty: second, ..options }, &()).unwrap();
        let expected: BTreeMap<_, _> = match result {
            TxnResult::Committed => [("a", "1"), ("b", "2"), ("c", "1"), ("d", "1"), ("e", "1")].into(),
            TxnResult::Aborted => [("a", "0"), ("b", "2"), ("e", "0")].into(),
        };
        for image in disk.take_images() {
            let log = open(&image);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let seen: BTreeMap<_, _> = log
                .read_committed_from(0)
                .unwrap()
                .map(|r| r.map(|r| (text(r.key().unwrap()), text(r.value().unwrap()))).unwrap())
                .collect();
            assert!(seen.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected.iter().map(|(k, v)| (*k, *v))), "{result:?}: {seen:?}");
        }
    }
}

/// Fails in the middle of a pass, the hard way.
struct Panics(AtomicUsize);

impl Watch for Panics {
    fn progress(&self, _: Progress) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < 3, "as planned");
    }
}

#[test]
fn b18_a_log_is_given_back_however_its_holder_ends() {
    let disk = Disk::empty();
    let storage = disk.as_storage();
    let log = open(&storage);
    for i in 0..300 {
        append(&log, &[Record::new(format!("key-{}", i % 10), "x".repeat(100))]);
    }
    log.roll().unwrap();
    let options = CleanOptions { chunk_bytes: 500, ..CleanOptions::new(T0) };
    // A panic in a pass, a truncation that has nothing to do, and one below the start.
    let panicked = std::thread::scope(|scope| scope.spawn(|| clean(&log, &options, &Panics(AtomicUsize::new(0)))).join());
    assert!(panicked.is_err());
    assert!(!has_working_files(&storage), "{:?}", names(&storage));
    log.truncate_to(u64::MAX).unwrap();
    log.advance_start(5).unwrap();
    assert_eq!(log.advance_start(1000).unwrap_err().kind(), ErrorKind::OutOfRange);
    // Several at once; of the passes some are stopped, some find the log taken.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|i| log.truncate_to(300 - i).unwrap()));
        scope.spawn(|| (0..50).for_each(|_| assert_eq!(log.apply_retention().unwrap().segments, 0)));
        scope.spawn(|| {
            for _ in 0..20 {
                let result = clean(&log, &options, &());
                assert!(result.is_ok() || result.is_err_and(|e| e.kind() == ErrorKind::Locked));
            }
        });
    });
    log.roll().unwrap();
    let report = clean(&log, &options, &()).unwrap();
    assert_eq!((report.outcome, report.new_dirty), (CleanOutcome::Cleaned, 281));
    // A truncation that the disk fails.
    append(&log, &[Record::new("key", "1"), Record::new("key", "2")]);
    log.roll().unwrap();
    disk.fails.store(true, Ordering::Relaxed);
    assert_eq!(log.truncate_to(100).unwrap_err().kind(), ErrorKind::Io);
    disk.fails.store(false, Ordering::Relaxed);
    assert_eq!(clean(&log, &options, &()).unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(log.close().is_err(), "it does not wait for a turn that nobody has");
    let log = open(&storage);
    append(&log, &[Record::new("key", "3")]);
    log.roll().unwrap();
    assert_eq!(clean(&log, &options, &()).unwrap().outcome, CleanOutcome::Cleaned);
}

/// Where no batch is left that says where the log ends, it still ends there after a restart: no offset is given twice.
#[test]
fn a_truncation_into_a_gap_that_a_pass_has_made_is_remembered() {
    for cut in [300, 299, 295, 290, 285, 281, 1] {
        for closes in [true, false] {
            let storage = Disk::empty().as_storage();
            let log = open(&storage);
            for i in 0..300 {
                append(&log, &[Record::new(format!("key-{}", i % 10), "x".repeat(100))]);
            }
            log.roll().unwrap();
            clean(&log, &CleanOptions::new(T0), &()).unwrap();
            log.truncate_to(cut).unwrap();
            assert_eq!(log.end_offset(), cut);
            if closes {
                log.close().unwrap();
            }
            drop(log);
            let log = open(&storage);
            assert_eq!((log.start_offset(), log.end_offset()), (0, cut));
            append(&log, &[Record::new("key-0", "y")]);
            assert_eq!(log.read_from(0).unwrap().last().unwrap().unwrap().offset(), cut);
            log.roll().unwrap();
            assert_eq!(clean(&log, &CleanOptions::new(T0), &()).unwrap().new_dirty, cut + 1);
        }
    }
}
