//! What is said about the next pass.

use keeplog_engine::record::{BatchSpec, Record, TxnResult};
use keeplog_engine::{Durability, Log, LogOptions, TransactionEnd};

use super::build::T0;
use super::field::{Disk, append, batch, open_with};
use crate::clean;
use crate::explain::{Due, Explanation, Obstacle};
use crate::options::CleanOptions;
use crate::schedule::{CheckpointFault, Rules};

const RULES: Rules = Rules { min_cleanable_dirty_ratio: 0.5, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX };

fn explain(log: &Log, checkpoint: Option<u64>, rules: &Rules) -> Explanation {
    Explanation::of(log, checkpoint, rules, log.storage().now_ms()).unwrap()
}

fn in_transaction(log: &Log, producer_id: i64, records: &[(&str, Option<&str>)]) -> u64 {
    let spec = BatchSpec { producer_id, producer_epoch: 3, base_sequence: 0, transactional: true, ..BatchSpec::default() };
    log.append_batch(batch(spec, records), Durability::Buffered).unwrap().base_offset
}

#[test]
fn every_open_transaction_is_named_with_its_producer_and_its_beginning() {
    let storage = Disk::empty().as_storage();
    let log = open_with(&storage, LogOptions::new());
    append(&log, &[Record::new("a", "1"), Record::new("a", "2")]);
    log.roll().unwrap();
    let first = in_transaction(&log, 7, &[("b", Some("1")), ("c", Some("1"))]);
    in_transaction(&log, 8, &[("d", Some("1"))]);
    log.roll().unwrap();
    let second = in_transaction(&log, 9, &[("e", Some("1"))]);
    let end = TransactionEnd { producer_id: 8, producer_epoch: 3, result: TxnResult::Aborted, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Buffered).unwrap();
    log.roll().unwrap();
    let found = explain(&log, None, &RULES);
    let active = log.segments().active().base_offset();
    let transaction = |producer_id, first_offset, since_ms| Obstacle::OpenTransaction {
        producer_id,
        producer_epoch: 3,
        first_offset,
        since_ms: Some(since_ms),
    };
    // The time of a batch is that of its newest record.
    let expected = [transaction(7, first, T0 + 1), transaction(9, second, T0), Obstacle::ActiveSegment { base_offset: active }];
    assert_eq!(found.obstacles, expected);
    assert_eq!((found.dirtiness.first_dirty, found.dirtiness.first_uncleanable), (0, 2));
    let sizes: Vec<u64> = log.segments().all().iter().map(|segment| segment.size_bytes()).collect();
    assert_eq!((found.dirtiness.cleanable_bytes, found.uncleanable_bytes), (sizes[0], sizes[1] + sizes[2]));
    assert_eq!(found.due, Due::Dirty);
    // And that is what a pass does.
    let report = clean(&log, &CleanOptions::new(T0), &()).unwrap();
    assert_eq!((report.first_uncleanable, report.dirty_bytes), (2, sizes[0]));
}

#[test]
fn a_lag_says_which_segment_waits_and_until_when() {
    let storage = Disk::empty().as_storage();
    let log = open_with(&storage, LogOptions::new());
    for i in 0..3_u32 {
        let spec = BatchSpec::default();
        log.append_batch(batch(spec, &[("a", Some("1")), (&format!("b{i}"), None)]), Durability::Buffered).unwrap();
        log.roll().unwrap();
    }
    let lag = Rules { min_compaction_lag_ms: 1000, ..RULES };
    let found = Explanation::of(&log, Some(2), &lag, T0 + 1000).unwrap();
    let active = Obstacle::ActiveSegment { base_offset: 6 };
    assert_eq!(found.obstacles, [Obstacle::CompactionLag { base_offset: 2, until_ms: T0 + 1001 }, active]);
    assert_eq!((found.due, found.dirtiness.first_uncleanable), (Due::NothingCleanable, 2));
    let found = Explanation::of(&log, Some(2), &lag, T0 + 1001).unwrap();
    assert_eq!((found.obstacles, found.due), (vec![active], Due::Dirty));
}

#[test]
fn whether_a_pass_is_due_has_a_reason() {
    let storage = Disk::empty().as_storage();
    let log = open_with(&storage, LogOptions::new());
    for _ in 0..4 {
        log.append_batch(batch(BatchSpec::default(), &[("a", Some("1"))]), Durability::Buffered).unwrap();
        log.roll().unwrap();
    }
    assert_eq!(explain(&log, Some(1), &RULES).due, Due::Dirty);
    assert_eq!(explain(&log, Some(2), &RULES).due, Due::NotYet, "just the ratio is not above it");
    assert_eq!(explain(&log, Some(4), &RULES).due, Due::Clean);
    assert_eq!(explain(&log, Some(4), &Rules { min_compaction_lag_ms: i64::MAX, ..RULES }).due, Due::Clean);
    let overdue = Rules { max_compaction_lag_ms: 10, ..RULES };
    assert_eq!(Explanation::of(&log, Some(3), &overdue, T0 + 10).unwrap().due, Due::NotYet);
    let found = Explanation::of(&log, Some(3), &overdue, T0 + 11).unwrap();
    assert_eq!((found.due, found.dirtiness.overdue_ms), (Due::Overdue, 1));
    let beyond = explain(&log, Some(99), &RULES);
    assert_eq!((beyond.dirtiness.checkpoint_fault, beyond.dirtiness.first_dirty), (Some(CheckpointFault::AboveEnd), 0));
}
