//! A store of many logs and its background cleaner.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keeplog::inspect::storage::MemoryStorage;
use keeplog::{CleanupPolicy, Durability, ErrorKind, Log, LogOptions, Record, Store, StoreOptions};

fn small() -> StoreOptions {
    StoreOptions::new().log(LogOptions::new().segment_bytes(4096).index_interval_bytes(256)).log_cleaner_backoff_ms(20)
}

fn fill(log: &Log, rounds: usize) {
    for round in 0..rounds {
        let batch: Vec<_> = (0..20).map(|key| Record::new(format!("key-{key}"), format!("value {round}"))).collect();
        log.append(&batch, Durability::Buffered).unwrap();
    }
}

/// Waits for what a background thread brings about; the time limit only ends a hanging test.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if holds() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

fn newest(log: &Log) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let records = log.read_from(log.start_offset()).unwrap().map(Result::unwrap);
    records.map(|r| (r.key().unwrap().to_vec(), r.value().unwrap().to_vec())).collect()
}

#[test]
fn dirty_logs_are_cleaned_behind_the_back_of_their_users() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    let log = store.log("accounts", 0).unwrap();
    fill(&log, 100);
    let size = || log.segments().all().iter().map(|s| s.size_bytes()).sum::<u64>();
    // It may have been at work while the log was written, and have more to do now.
    let written = size();
    store.wake_cleaner();
    eventually("all passes", || size() < 12_000 && store.cleaner().passes > 0);
    assert!(written >= size(), "a pass adds nothing");
    let newest = newest(&log);
    assert_eq!(newest.len(), 20);
    assert!(newest.values().all(|v| v == b"value 99"));
    assert_eq!(log.end_offset(), 2000);
    store.close().unwrap();
    let checkpoint = std::fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).unwrap();
    assert!(checkpoint.contains("accounts 0 "), "{checkpoint}");
}

#[test]
fn deleted_by_age_where_the_policy_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let events = LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::Delete).retention_ms(Some(1));
    let store = Store::open(dir.path(), small().topic("events", events)).unwrap();
    let log = store.log("events", 0).unwrap();
    for i in 0..200 {
        log.append(&[Record::keyless("x".repeat(100)).timestamp_ms(i)], Durability::Buffered).unwrap();
    }
    store.wake_cleaner();
    eventually("retention", || log.start_offset() > 150);
}

#[test]
fn a_reopened_store_has_all_its_logs_and_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    for partition in 0..5 {
        fill(&store.log("t", partition).unwrap(), 10);
    }
    assert_eq!(Store::open(dir.path(), small()).unwrap_err().kind(), ErrorKind::Locked);
    let log = store.log("t", 3).unwrap();
    store.close().unwrap();
    store.close().unwrap();
    assert_eq!(log.append(&[Record::new("a", "b")], Durability::Buffered).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(store.log("t", 3).unwrap_err().kind(), ErrorKind::Closed);
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    let store = Store::open(dir.path(), small()).unwrap();
    assert_eq!(store.logs().len(), 5);
    assert!(store.logs().iter().all(|l| l.recovery_report().clean && newest(l).len() == 20));
    assert!(!dir.path().join(".kafka_cleanshutdown").exists());
}

/// C26: a damaged log does not keep the others from opening, and its bytes stay.
#[test]
fn a_log_that_does_not_open_is_listed_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    for partition in 0..3 {
        fill(&store.log("t", partition).unwrap(), 10);
    }
    store.close().unwrap();
    let broken = dir.path().join("t-1/00000000000000000000.log");
    let huge = std::fs::OpenOptions::new().write(true).open(&broken).unwrap();
    huge.set_len(3 << 30).unwrap(); // a hole: more than a segment can hold
    let store = Store::open(dir.path(), small()).unwrap();
    assert_eq!(store.logs().len(), 2);
    let failed = store.failed();
    assert_eq!((failed.len(), failed[0].0.partition()), (1, 1));
    assert!(failed[0].1.contains("2147483647"), "{}", failed[0].1);
    assert!(store.log("t", 1).is_err());
    store.delete_log("t", 1).unwrap();
    assert!(!dir.path().join("t-1").exists());
    fill(&store.log("t", 1).unwrap(), 1);
    assert!(store.failed().is_empty());
}

/// A26: a log that is deleted and made again starts anew for the cleaner too.
#[test]
fn a_log_made_again_is_cleaned_from_its_own_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small().log_cleaner_enable(false)).unwrap();
    let log = store.log("t", 0).unwrap();
    fill(&log, 50);
    log.roll().unwrap();
    assert_eq!(store.clean(&log).unwrap().new_dirty, 1000);
    store.delete_log("t", 0).unwrap();
    let log = store.log("t", 0).unwrap();
    fill(&log, 5);
    log.roll().unwrap();
    let report = store.clean(&log).unwrap();
    assert_eq!((report.first_dirty, report.new_dirty), (0, 100));
    assert_eq!(newest(&log).len(), 20);
}

/// Cleaning would throw away what a log without compaction is for.
#[test]
fn only_compacted_logs_of_the_store_are_cleaned() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(dir.path(), small().topic("events", LogOptions::new().cleanup_policy(CleanupPolicy::Delete))).unwrap();
    let events = store.log("events", 0).unwrap();
    events.append(&[Record::keyless("x")], Durability::Buffered).unwrap();
    events.roll().unwrap();
    assert_eq!(store.clean(&events).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(events.read_from(0).unwrap().count(), 1);
    let stranger = Store::open(other.path(), small()).unwrap();
    assert_eq!(store.clean(&stranger.log("t", 0).unwrap()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// B17: closing does not wait for the back-off.
#[test]
fn closing_does_not_wait_for_the_cleaners_sleep() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions::new().log_cleaner_backoff_ms(u64::MAX)).unwrap();
    store.log("t", 0).unwrap();
    store.close().unwrap();
}

#[test]
fn dropping_the_last_handle_closes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    fill(&store.log("t", 0).unwrap(), 3);
    let other = store.clone();
    drop(store);
    fill(&other.log("t", 0).unwrap(), 3);
    drop(other);
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
}

/// Appends and reads go on while the cleaner replaces segments beneath them.
#[test]
fn writers_readers_and_the_cleaner_at_once() {
    [1, 3].into_iter().for_each(at_once);
}

fn at_once(cleaner_threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small().log_cleaner_backoff_ms(1).log_cleaner_threads(cleaner_threads)).unwrap();
    let log = Arc::new(store.log("t", 0).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..600 {
                log.append(&[Record::new(format!("key-{}", round % 7), format!("{round:0200}"))], Durability::Buffered).unwrap();
                if round % 50 == 0 {
                    store.wake_cleaner();
                }
            }
        });
        while !writer.is_finished() {
            let mut last = None;
            for record in log.read_from(0).unwrap() {
                let record = record.unwrap();
                assert!(last.is_none_or(|l| l < record.offset()));
                last = Some(record.offset());
            }
        }
    });
    eventually("a pass", || store.cleaner().passes > 0);
    let newest = newest(&log);
    for key in 0..7_u64 {
        let round = (0..600).rev().find(|r| r % 7 == key).unwrap();
        assert_eq!(newest[format!("key-{key}").as_bytes()], format!("{round:0200}").into_bytes());
    }
    assert!(store.cleaner().dead.is_none());
}

#[test]
fn a_cleaner_without_threads_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::open(dir.path(), small().log_cleaner_threads(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("log_cleaner_threads"), "{error}");
}

/// A broker's directory, or our own opened with other settings: nothing says that these logs are compacted.
#[test]
fn logs_that_nobody_has_spoken_of_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let delete = LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::Delete);
    let store = Store::open(dir.path(), small().topic("events", delete)).unwrap();
    fill(&store.log("events", 0).unwrap(), 100);
    store.close().unwrap();

    let store = Store::open(dir.path(), small()).unwrap();
    let events = store.logs().pop().unwrap();
    let held = |log: &Log| log.read_from(0).unwrap().map(Result::unwrap).count();
    // The cleaner takes this one, and looks at all in each of its rounds.
    let accounts = store.log("accounts", 0).unwrap();
    fill(&accounts, 100);
    store.wake_cleaner();
    eventually("a pass", || store.cleaner().passes > 0 && held(&accounts) < 500);
    assert_eq!((held(&events), store.cleaner().last.len()), (2000, 1), "it took the other one only");
    // Asked for with settings that compact, it is compacted.
    let events = store.log("events", 0).unwrap();
    store.wake_cleaner();
    eventually("a pass over events", || held(&events) < 500);
}

#[test]
fn a_log_that_was_closed_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    fill(&store.log("t", 0).unwrap(), 1);
    store.log("t", 0).unwrap().close().unwrap();
    let log = store.log("t", 0).unwrap();
    fill(&log, 1);
    assert_eq!(log.end_offset(), 40);
}

#[test]
fn the_directory_of_a_log_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    drop(Log::open(dir.path().join("t-0"), LogOptions::new()).unwrap());
    let error = Store::open(dir.path().join("t-0"), small()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(!dir.path().join("t-0/.lock").exists());
}

#[test]
fn a_store_without_a_thread_works_when_told() {
    let storage = Arc::new(MemoryStorage::new());
    let log_options = LogOptions::new().min_cleanable_dirty_ratio(0.1);
    let options = StoreOptions::new().background_thread(false).topic("prices", log_options);
    let store = Store::open_with(storage, Path::new("/data"), options).unwrap();
    let log = store.log("prices", 0).unwrap();
    for price in ["1", "2", "3"] {
        log.append(&[Record::new("EURUSD", price)], Durability::Buffered).unwrap();
        log.roll().unwrap();
    }
    assert_eq!(store.cleaner().passes, 0);
    assert_eq!(store.housekeep(), Duration::ZERO);
    assert_eq!(store.cleaner().passes, 1);
    assert_eq!(log.read_from(0).unwrap().count(), 1);
    assert!(store.housekeep() > Duration::ZERO, "nothing is left to clean");
    store.close().unwrap();
    assert_eq!(store.housekeep(), Duration::MAX);
}
