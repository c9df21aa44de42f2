//! Cleaning that is paused, resumed and ended, log by log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use keeplog::inspect::storage::{MemoryStorage, Storage};
use keeplog::{CleanOptions, CleanOutcome, CleanupPolicy, Durability, ErrorKind, Log, LogOptions, Record, Store, StoreOptions, Watch};

use crate::disk::{T0, disk};

fn open(disk: &Arc<MemoryStorage>) -> Store {
    let options = StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false);
    Store::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap()
}

/// A log that is worth a pass.
fn dirty(store: &Store, topic: &str) -> Log {
    with_keys(store, topic, 10)
}

fn with_keys(store: &Store, topic: &str, keys: u64) -> Log {
    let log = store.log(topic, 0).unwrap();
    for i in 0..200 {
        log.append(&[Record::new(format!("key-{}", i % keys), "x".repeat(100)).timestamp_ms(T0)], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    log
}

fn held(log: &Log) -> usize {
    log.read_from(log.start_offset()).unwrap().map(Result::unwrap).count()
}

fn leftovers(disk: &MemoryStorage, topic: &str) -> usize {
    let names = disk.list(Path::new(&format!("/data/{topic}-0"))).unwrap();
    names.iter().filter(|entry| [".cleaned", ".swap"].iter().any(|suffix| entry.name.ends_with(suffix))).count()
}

#[test]
fn a_paused_log_is_left_alone_until_the_last_pause_is_taken_back() {
    let store = open(&disk());
    let (paused, other) = (dirty(&store, "paused"), dirty(&store, "other"));
    store.pause_cleaning("paused", 0).unwrap();
    store.pause_cleaning("paused", 0).unwrap();
    (0..4).for_each(|_| _ = store.housekeep());
    assert_eq!((held(&paused), held(&other)), (200, 10));
    assert_eq!(store.clean(&paused).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(store.cleaner().paused.get(paused.topic_partition()), Some(&2));
    store.resume_cleaning("paused", 0).unwrap();
    (0..4).for_each(|_| _ = store.housekeep());
    assert_eq!(held(&paused), 200, "one is left");
    store.resume_cleaning("paused", 0).unwrap();
    (0..4).for_each(|_| _ = store.housekeep());
    assert_eq!((held(&paused), store.cleaner().paused.len()), (10, 0));
    assert_eq!(store.resume_cleaning("paused", 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(store.pause_cleaning("nobody", 0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_pause_ends_the_pass_under_way_and_returns_when_it_has_ended() {
    for of_background in [true, false] {
        let disk = disk();
        let store = open(&disk);
        let log = dirty(&store, "t");
        store.set_cleaner_rate(1).unwrap(); // a pass takes years
        std::thread::scope(|scope| {
            let pass = scope.spawn(|| {
                if of_background {
                    store.housekeep();
                    return None;
                }
                store.clean(&log).ok().map(|report| report.outcome)
            });
            std::thread::yield_now(); // whether it has begun by then or not, it must end
            store.pause_cleaning("t", 0).unwrap();
            assert_eq!((leftovers(&disk, "t"), held(&log)), (0, 200), "the log is as it was");
            drop(log.begin_rewrite().expect("nobody has the turn any more"));
            assert!(matches!(pass.join().unwrap(), Some(CleanOutcome::Stopped) | None));
        });
        assert_eq!(store.cleaner().passes, 0);
        store.set_cleaner_rate(u64::MAX).unwrap();
        store.resume_cleaning("t", 0).unwrap();
        store.housekeep();
        assert_eq!(held(&log), 10);
    }
}

#[test]
fn a_paused_log_is_truncated_closed_and_deleted_like_any_other() {
    let store = open(&disk());
    let log = dirty(&store, "t");
    store.pause_cleaning("t", 0).unwrap();
    log.truncate_to(150).unwrap();
    assert_eq!(held(&log), 150);
    log.close().unwrap();
    let log = store.log("t", 0).unwrap();
    log.roll().unwrap();
    store.housekeep();
    assert_eq!(held(&log), 150, "opened anew, it is paused still");
    store.delete_log("t", 0).unwrap();
    assert!(store.cleaner().paused.is_empty());
    let log = dirty(&store, "t");
    (0..2).for_each(|_| _ = store.housekeep());
    assert_eq!(held(&log), 10, "a new one of its name is not");
    store.pause_cleaning("t", 0).unwrap();
    store.close().unwrap();
}

#[test]
fn a_pause_keeps_retention_from_compacted_logs_only() {
    let disk = disk();
    let both = LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::CompactDelete).retention_bytes(Some(4096));
    let store = open(&disk);
    for (topic, policy) in [("both", CleanupPolicy::CompactDelete), ("delete", CleanupPolicy::Delete)] {
        store.set_log_options(topic, &both.clone().cleanup_policy(policy)).unwrap();
        let log = with_keys(&store, topic, 200);
        assert_eq!(log.start_offset(), 0);
        store.pause_cleaning(topic, 0).unwrap();
        (0..2).for_each(|_| _ = store.housekeep());
        assert_eq!(log.start_offset() > 0, !policy.compacts(), "{topic}");
        store.resume_cleaning(topic, 0).unwrap();
        (0..2).for_each(|_| _ = store.housekeep());
        assert!(log.start_offset() > 0);
    }
}

#[test]
fn b18_pauses_of_many_threads_come_to_nothing_in_the_end() {
    let store = open(&disk());
    let log = dirty(&store, "t");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50 {
                    store.pause_cleaning("t", 0).unwrap();
                    store.pause_cleaning("t", 0).unwrap();
                    // As long as it is paused, no pass works on it.
                    drop(log.begin_rewrite());
                    assert!(log.truncate_to(log.end_offset() + 1).is_ok(), "nothing to truncate");
                    store.resume_cleaning("t", 0).unwrap();
                    store.resume_cleaning("t", 0).unwrap();
                }
            });
        }
        scope.spawn(|| (0..100).for_each(|_| _ = store.housekeep()));
        scope.spawn(|| (0..100).for_each(|_| _ = store.clean(&log)));
    });
    assert!(store.cleaner().paused.is_empty() && store.cleaner().uncleanable.is_empty(), "{:?}", store.cleaner());
    store.housekeep();
    assert_eq!(held(&log), 10);
}

/// Notes what it is told, and stops after so many looks.
struct Looks {
    bytes: AtomicU64,
    left: AtomicUsize,
}

impl Looks {
    fn new(left: usize) -> Self {
        Self { bytes: AtomicU64::new(0), left: AtomicUsize::new(left) }
    }
}

impl Watch for Looks {
    fn charge(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn a_pass_by_the_callers_options_obeys_store_and_watcher() {
    let store = open(&disk());
    let log = dirty(&store, "t");
    let name = log.topic_partition().clone();
    let options = CleanOptions::for_log(log.options(), T0);
    store.pause_cleaning("t", 0).unwrap();
    assert_eq!(store.clean_with(&log, &options, &()).unwrap_err().kind(), ErrorKind::Locked);
    store.resume_cleaning("t", 0).unwrap();

    let dry = Looks::new(usize::MAX);
    let report = store.clean_with(&log, &options.clone().dry_run(true), &dry).unwrap();
    assert_eq!((report.records_kept, held(&log), dry.bytes.into_inner()), (10, 200, report.bytes_read));
    assert_eq!((store.cleaner().passes, log.data_dir().cleaner_offset(&name)), (0, None), "a dry run is no pass");
    assert_eq!(store.clean_with(&log, &options, &Looks::new(2)).unwrap().outcome, CleanOutcome::Stopped);
    assert_eq!(held(&log), 200);

    // One that begins above what is clean leaves the mark where it was.
    store.clean_with(&log, &options.clone().first_dirty(100), &()).unwrap();
    assert_eq!(log.data_dir().cleaner_offset(&name), None);
    let report = store.clean_with(&log, &options, &()).unwrap();
    assert_eq!((held(&log), log.data_dir().cleaner_offset(&name)), (10, Some(report.new_dirty)));
    let status = store.cleaner();
    assert_eq!((status.passes, status.last.len(), status.under_way.len()), (2, 1, 0));
    assert_eq!(store.clean(&log).unwrap().outcome, CleanOutcome::NothingDirty);

    // A rate that would let it go on for years.
    store.set_cleaner_rate(1).unwrap();
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| store.clean_with(&log, &options, &()));
        while store.cleaner().under_way.first().is_none_or(|pass| pass.bytes_total == 0) {
            std::thread::yield_now();
        }
        let under_way = store.cleaner().under_way[0].clone();
        assert_eq!((under_way.bytes_done, under_way.segment), (0, Some(0)), "what is known is told while it waits");
        store.pause_cleaning("t", 0).unwrap();
        assert_eq!(pass.join().unwrap().unwrap().outcome, CleanOutcome::Stopped);
    });
}
