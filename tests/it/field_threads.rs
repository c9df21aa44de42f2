//! Field reports about a store that is used from many sides at once.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keeplog::inspect::storage::{MemoryStorage, Storage};
use keeplog::{
    CleanOptions, CleanupPolicy, Durability, ErrorKind, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Progress, Record,
    Store, StoreOptions, Watch,
};

use crate::disk::{T0, disk};

fn small() -> LogOptions {
    LogOptions::new()
        .segment_bytes(4096)
        .index_interval_bytes(256)
        .cleanup_policy(CleanupPolicy::CompactDelete)
        .retention_bytes(Some(30_000))
}

fn open(disk: &Arc<MemoryStorage>, options: StoreOptions) -> Store {
    Store::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap()
}

fn append(log: &Log, from: u64, records: u64) -> keeplog::Result<()> {
    for i in from..from + records {
        log.append(&[Record::new(format!("key-{}", i % 10), format!("{i:0100}"))], Durability::Buffered)?;
    }
    Ok(())
}

/// Counts who works on the segments of a log at the same time: its pass, by its progress.
struct Alone<'a>(&'a AtomicUsize);

impl Watch for Alone<'_> {
    fn progress(&self, _: Progress) {
        assert_eq!(self.0.load(Ordering::Acquire), 0, "a truncation came in between");
    }
}

/// Cleaning, retention, truncation and removal of one log, each in a loop: one at a time, and nobody keeps the turn.
#[test]
fn f04_who_replaces_segments_does_it_alone_and_gives_the_turn_back() {
    let store = open(&disk(), StoreOptions::new().log(small()).background_thread(false));
    let log = store.log("t", 0).unwrap();
    append(&log, 0, 300).unwrap();
    let (truncated, passes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..60 {
                let mut options = CleanOptions::for_log(log.options(), T0);
                options.chunk_bytes = 1000;
                match keeplog::clean(&log, &options, &Alone(&truncated)) {
                    Ok(_) => _ = passes.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Locked | ErrorKind::Closed), "{error:?}"),
                }
            }
        });
        scope.spawn(|| (0..60).for_each(|_| _ = log.apply_retention().unwrap()));
        scope.spawn(|| {
            for _ in 0..60 {
                log.truncate_to(log.end_offset().saturating_sub(3)).unwrap();
            }
        });
        scope.spawn(|| (0..60).for_each(|i| append(&log, i * 10, 10).unwrap()));
        scope.spawn(|| {
            for i in 0..60 {
                store.pause_cleaning("t", 0).unwrap();
                let policy = [CleanupPolicy::Compact, CleanupPolicy::Delete, CleanupPolicy::CompactDelete][i % 3];
                store.set_log_options("t", &small().cleanup_policy(policy)).unwrap();
                store.resume_cleaning("t", 0).unwrap();
                let _ = store.clean(&log);
            }
        });
        scope.spawn(|| {
            for _ in 0..20 {
                let other = store.log("u", 0).unwrap();
                append(&other, 0, 50).unwrap();
                other.roll().unwrap();
                let _ = store.clean(&other);
                store.delete_log("u", 0).unwrap();
            }
        });
    });
    drop(log.begin_rewrite().expect("the turn is free"));
    assert!(store.cleaner().paused.is_empty());
    assert!(log.read_from(log.start_offset()).unwrap().all(|record| record.is_ok()));
    store.close().unwrap();
}

/// Truncates the log from another thread once the pass has begun, and lets the pass go on.
struct Truncating<'a, 's, 'e> {
    log: &'a Log,
    target: u64,
    scope: &'s std::thread::Scope<'s, 'e>,
    begun: Mutex<bool>,
}

impl<'a: 's, 's> Watch for Truncating<'a, 's, '_> {
    fn progress(&self, _: Progress) {
        if !std::mem::replace(&mut *self.begun.lock().unwrap(), true) {
            let (log, target) = (self.log, self.target);
            self.scope.spawn(move || log.truncate_to(target).unwrap());
        }
    }
}

/// To every offset, while the segments around it are cleaned: the pass gives up, or what it wrote is cut.
#[test]
fn f05_a_truncation_during_a_pass_ends_where_it_was_asked() {
    let before = disk();
    let options = small().retention_bytes(None);
    let store = open(&before, StoreOptions::new().log(options.clone()).background_thread(false));
    let log = store.log("t", 0).unwrap();
    append(&log, 0, 120).unwrap();
    log.roll().unwrap();
    append(&log, 120, 3).unwrap();
    store.close().unwrap();
    for target in 0..123 {
        let disk = Arc::new(before.image());
        let store = open(&disk, StoreOptions::new().log(options.clone()).background_thread(false));
        let log = store.log("t", 0).unwrap();
        std::thread::scope(|scope| {
            let watch = Truncating { log: &log, target, scope, begun: Mutex::new(false) };
            let mut options = CleanOptions::for_log(log.options(), T0);
            options.chunk_bytes = 1000;
            let _ = keeplog::clean(&log, &options, &watch);
        });
        assert_eq!(log.end_offset(), target);
        let check = |log: &Log| {
            let offsets: Vec<_> = log.read_from(0).unwrap().map(|record| record.unwrap().offset()).collect();
            assert!(offsets.is_sorted_by(|a, b| a < b) && offsets.iter().all(|offset| *offset < target), "{target}: {offsets:?}");
            // A restart finds the end of the last batch: below the target, where nothing is left right below it.
            for offset in 0..log.end_offset() {
                let next = log.read_from(offset).unwrap().next().map(|record| record.unwrap().offset());
                assert_eq!(next, offsets.iter().copied().find(|o| *o >= offset), "truncated to {target}");
            }
            offsets
        };
        let there = check(&log);
        store.close().unwrap();
        let store = open(&disk, StoreOptions::new().log(options.clone()).background_thread(false));
        let log = store.log("t", 0).unwrap();
        assert!(log.recovery_report().rebuilt.is_empty() && log.recovery_report().is_sound(), "{}", log.recovery_report());
        assert_eq!(check(&log), there);
    }
}

/// Thirty-two threads at work when the store is closed and dropped: they are told, and it comes to its end.
#[test]
fn f11_a_close_under_load_tells_everybody_and_ends() {
    for round in 0..5 {
        let disk = disk();
        let options =
            OffsetOptions::new().offsets_topic_segment_bytes(4096).offsets_topic_num_partitions(2).store(StoreOptions::new().log(small()));
        let offsets = OffsetStore::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), options.clone()).unwrap();
        let log = offsets.store().log("t", 0).unwrap();
        let (working, acknowledged) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for worker in 0..32_u64 {
                let (offsets, log, working, acknowledged) = (offsets.clone(), log.clone(), &working, &acknowledged);
                scope.spawn(move || {
                    let group = format!("group-{worker}");
                    for i in 0.. {
                        let outcome = match worker % 4 {
                            0 => append(&log, i, 1),
                            1 => log.read_from(log.start_offset()).map(|records| assert!(records.take(20).all(|record| record.is_ok()))),
                            _ => offsets.commit(&group, &[("t", 0, OffsetAndMetadata::new(i))]),
                        };
                        match outcome {
                            Ok(()) if worker % 4 > 1 => acknowledged.lock().unwrap().push((group.clone(), i)),
                            Ok(()) => {}
                            Err(error) => {
                                // Between the two calls, retention may have passed by.
                                if worker % 4 == 1 && error.kind() == ErrorKind::OutOfRange {
                                    continue;
                                }
                                return assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
                            }
                        }
                        working.fetch_add(1, Ordering::AcqRel);
                    }
                });
            }
            while working.load(Ordering::Acquire) < 200 {
                std::thread::yield_now();
            }
            if round % 2 == 0 { offsets.close().unwrap() } else { offsets.store().clone().close().unwrap() }
        });
        drop((offsets, log));
        assert!(disk.metadata(Path::new("/data/.kafka_cleanshutdown")).is_ok());
        let offsets = OffsetStore::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap();
        for (group, offset) in acknowledged.into_inner().unwrap() {
            let found = offsets.fetch(&group, &[("t", 0)]).unwrap()[0].as_ref().map(|committed| committed.offset);
            assert!(found >= Some(offset), "{group}: {found:?}, {offset} was acknowledged");
        }
    }
}
