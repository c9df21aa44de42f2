//! What is due in a log at rest, and what whoever looks after it is told.

use std::sync::Arc;

use keeplog_engine::record::Record;
use keeplog_engine::storage::MemoryStorage;
use keeplog_engine::{CleanupPolicy, Durability, ErrorKind, Log, LogOptions};

use crate::support::*;

fn put(log: &Log, timestamp_ms: i64) {
    log.append(&[Record::new("k", "v".repeat(100)).timestamp_ms(timestamp_ms)], Durability::Buffered).unwrap();
}

/// Whether the log was noted since the last time.
fn is_noted(log: &Log) -> bool {
    log.data_dir().take_changed().contains(log.topic_partition())
}

fn opened(options: LogOptions) -> (Arc<MemoryStorage>, Log) {
    let disk = disk();
    let log = open(&disk, options);
    (disk, log)
}

#[test]
fn the_active_segment_of_a_log_at_rest_is_closed_when_it_is_due() {
    let (storage, log) = opened(LogOptions::new().segment_ms(1000).max_compaction_lag_ms(400));
    assert_eq!((log.roll_due_ms(), log.roll_if_due().unwrap()), (None, false), "it is empty");
    put(&log, T0 - 100);
    assert_eq!(log.roll_due_ms(), Some(T0 + 301));
    storage.set_now_ms(T0 + 300);
    assert!(!log.roll_if_due().unwrap());
    storage.set_now_ms(T0 + 301);
    assert!(log.roll_if_due().unwrap());
    assert_eq!((log.segments().sealed().len(), log.roll_due_ms(), log.roll_if_due().unwrap()), (1, None, false));
    // The time of a record from the future counts when it has come; until then that at which its segment was begun does.
    put(&log, T0 + 10_000);
    assert_eq!(log.roll_due_ms(), Some(T0 + 301 + 401));
    storage.set_now_ms(T0 + 10_000);
    assert_eq!((log.roll_due_ms(), log.roll_if_due().unwrap()), (Some(T0 + 10_401), false));
    // Without compaction only the age of a segment counts.
    let (_, log) = opened(LogOptions::new().cleanup_policy(CleanupPolicy::Delete).segment_ms(1000).max_compaction_lag_ms(400));
    put(&log, T0);
    assert_eq!(log.roll_due_ms(), Some(T0 + 1001));
}

#[test]
fn retention_is_due_when_the_oldest_segment_is_too_old() {
    let options = LogOptions::new().cleanup_policy(CleanupPolicy::CompactDelete).retention_ms(Some(500));
    let (storage, log) = opened(options);
    assert_eq!(log.retention_due_ms().unwrap(), None);
    put(&log, T0 - 100);
    log.roll().unwrap();
    put(&log, T0);
    assert_eq!(log.retention_due_ms().unwrap(), Some(T0 + 401));
    storage.set_now_ms(T0 + 400);
    assert_eq!(log.apply_retention().unwrap().segments, 0);
    storage.set_now_ms(T0 + 401);
    assert_eq!(log.apply_retention().unwrap().segments, 1);
    assert_eq!(log.retention_due_ms().unwrap(), Some(T0 + 501));
    log.set_options(&log.current_options().retention_ms(None)).unwrap();
    assert_eq!(log.retention_due_ms().unwrap(), None);
}

#[test]
fn changes_are_noted_and_appends_within_a_segment_are_none() {
    let (_, log) = opened(LogOptions::new().segment_bytes(4096));
    assert!(is_noted(&log), "it was opened");
    put(&log, T0);
    assert!(is_noted(&log), "its active segment has an age now");
    (0..10).for_each(|_| put(&log, T0));
    log.sync().unwrap();
    assert!(!is_noted(&log));
    (0..30).for_each(|_| put(&log, T0));
    assert!(is_noted(&log), "it rolled");
    log.advance_start(1).unwrap();
    assert!(is_noted(&log), "its start moved");
    log.truncate_to(35).unwrap();
    assert!(is_noted(&log), "it was truncated");
    log.set_cleaner_offset(20, 1);
    assert!(is_noted(&log), "the cleaner's offset moved");
    let rewrite = log.begin_rewrite().unwrap();
    assert_eq!((log.apply_retention().unwrap().segments, is_noted(&log)), (0, true), "what is due is to be done later");
    drop(rewrite);
    log.apply_retention().unwrap();
    assert!(!is_noted(&log), "there was nothing to do");
    log.close().unwrap();
    assert!(is_noted(&log));
}

#[test]
fn rules_of_an_open_log_change_and_formats_do_not() {
    let (_, log) = opened(LogOptions::new().segment_bytes(4096));
    let changed = LogOptions::new()
        .segment_bytes(8192)
        .cleanup_policy(CleanupPolicy::CompactDelete)
        .retention_ms(Some(1))
        .retention_bytes(Some(2))
        .delete_retention_ms(3)
        .min_compaction_lag_ms(4)
        .max_compaction_lag_ms(5)
        .min_cleanable_dirty_ratio(0.6);
    log.set_options(&changed).unwrap();
    assert_eq!(log.current_options(), changed.segment_bytes(4096));
    assert_eq!(log.options(), &LogOptions::new().segment_bytes(4096), "those of the open");
    let error = log.set_options(&LogOptions::new().min_compaction_lag_ms(2).max_compaction_lag_ms(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(log.current_options().min_compaction_lag_ms, 4, "nothing was changed");
    // An append goes by them, too.
    put(&log, T0);
    put(&log, T0 + 6);
    assert_eq!(log.segments().sealed().len(), 1, "max_compaction_lag_ms");

    let (_, log) = opened(LogOptions::new().cleanup_policy(CleanupPolicy::Delete));
    assert_eq!(log.set_options(&LogOptions::new()).unwrap_err().kind(), ErrorKind::InvalidInput, "it may hold records without keys");
}
