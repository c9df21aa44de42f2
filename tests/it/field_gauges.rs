//! Field reports about what a cleaner tells of itself: as the recorder of an application hears it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind::Other;
use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage};
use keeplog::{CleanerSettings, Durability, ErrorKind, Log, LogOptions, METRICS, MetricKind, Record, Store, StoreOptions};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::disk::disk;
use crate::shim::{Call, Shim, Verdict};

fn open(storage: Arc<dyn Storage>, buffer_bytes: u64) -> Store {
    let options = StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false);
    Store::open_with(storage, Path::new("/data"), options.log_cleaner_dedupe_buffer_size(buffer_bytes)).unwrap()
}

fn fill(log: &Log, records: u64, keys: u64) {
    for i in 0..records {
        log.append(&[Record::new(format!("key-{}", i % keys), "x".repeat(100))], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
}

fn rounds(store: &Store) {
    (0..5).for_each(|_| _ = store.housekeep());
}

/// What a recorder has heard so far.
struct Heard {
    snapshotter: Snapshotter,
    /// The recorder starts counting anew with each look.
    counts: RefCell<BTreeMap<String, f64>>,
}

impl Heard {
    /// All gauges and counters of the store as a whole, by the last part of their names.
    fn now(&self, store: &Store) -> BTreeMap<String, f64> {
        store.publish_metrics();
        let (mut told, mut counts) = (BTreeMap::new(), self.counts.borrow_mut());
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            if key.key().labels().any(|label| label.key() == "topic") {
                continue;
            }
            let name = key.key().name().rsplit('.').next().unwrap().to_owned();
            match value {
                DebugValue::Gauge(value) => _ = told.insert(name, value.into_inner()),
                DebugValue::Counter(more) => *counts.entry(name).or_default() += more as f64,
                DebugValue::Histogram(_) => {}
            }
        }
        told.extend(counts.clone());
        for metric in METRICS.iter().filter(|metric| !metric.per_log && metric.kind != MetricKind::Histogram) {
            assert!(told.contains_key(metric.name.rsplit('.').next().unwrap()), "{} is not told", metric.name);
        }
        told
    }
}

fn recorded(test: impl FnOnce(&Heard)) {
    let recorder = DebuggingRecorder::new();
    let heard = Heard { snapshotter: recorder.snapshotter(), counts: RefCell::default() };
    metrics::with_local_recorder(&recorder, || test(&heard));
}

/// From the open on, while a log fails and is deleted, while threads become more, none and fewer, and after the close.
#[test]
fn b19_every_gauge_is_there_throughout_and_counts_what_there_is() {
    recorded(|heard| {
        let disk = disk();
        let store = open(disk.clone(), 1 << 20);
        let gauges = |names: [&str; 4]| {
            let told = heard.now(&store);
            names.map(|name| told[name])
        };
        let of_logs = ["uncleanable-partitions-count", "uncleanable-bytes", "logs", "failed-passes"];
        assert_eq!(gauges(of_logs), [0.0; 4]);
        let (good, bad) = (store.log("good", 0).unwrap(), store.log("bad", 0).unwrap());
        [&good, &bad].into_iter().for_each(|log| fill(log, 200, 10));
        let file = disk.open(&bad.segments().sealed().last().unwrap().path(), OpenMode::Write).unwrap();
        file.write_at(&[0xee], 100).unwrap();
        rounds(&store);
        let dirty: u64 = bad.segments().sealed().iter().map(|segment| segment.size_bytes()).sum();
        assert_eq!(gauges(of_logs), [1.0, dirty as f64, 2.0, 1.0]);
        assert_eq!((store.cleaner().passes, store.cleaner().failed_passes), (1, 1));
        store.delete_log("bad", 0).unwrap();
        assert_eq!(gauges(of_logs), [0.0, 0.0, 1.0, 1.0], "a deleted log does not count");

        let of_threads = ["threads", "DeadThreadCount", "passes", "paused-logs"];
        let set = |change: fn(CleanerSettings) -> CleanerSettings| store.set_cleaner(&change(store.cleaner_settings()));
        assert_eq!(gauges(of_threads), [1.0, 0.0, 1.0, 0.0]);
        set(|settings| settings.log_cleaner_threads(4)).unwrap();
        fill(&good, 200, 10);
        rounds(&store);
        assert_eq!(gauges(of_threads), [4.0, 0.0, 2.0, 0.0]);
        assert_eq!(set(|settings| settings.log_cleaner_threads(0)).unwrap_err().kind(), ErrorKind::InvalidInput);
        set(|settings| settings.log_cleaner_enable(false)).unwrap();
        fill(&good, 200, 10);
        rounds(&store);
        assert_eq!(gauges(of_threads), [0.0, 0.0, 2.0, 0.0], "none works");
        set(|settings| settings.log_cleaner_enable(true).log_cleaner_threads(2)).unwrap();
        rounds(&store);
        assert_eq!(gauges(of_threads), [2.0, 0.0, 3.0, 0.0]);
        store.close().unwrap();
        assert_eq!(gauges(["threads", "passes", "logs", "size"]), [0.0, 3.0, 0.0, 0.0]);
    });
}

/// A truncation whose disk fails, a panic, and pauses of three threads within each other: each takes back what it took.
#[test]
fn b18_a_gauge_shows_paused_logs_and_comes_back_to_none() {
    recorded(|heard| {
        let shim = Shim::over(&disk());
        let store = open(shim.clone(), 1 << 20);
        let log = store.log("t", 0).unwrap();
        fill(&log, 200, 10);
        let paused = || (heard.now(&store)["paused-logs"], store.cleaner().paused.values().sum::<u32>());
        let (first, second) = (store.hold_cleaning("t", 0).unwrap(), store.hold_cleaning("t", 0).unwrap());
        assert_eq!(paused(), (1.0, 2));
        drop(first);
        rounds(&store);
        assert_eq!((paused(), store.cleaner().passes), ((1.0, 1), 0));
        drop(second);
        assert_eq!(paused(), (0.0, 0));

        let truncate = |target| {
            let _paused = store.hold_cleaning("t", 0)?;
            log.truncate_to(target)
        };
        truncate(u64::MAX).unwrap();
        shim.set_rule(|call, path| if call.changes() && path.starts_with("/data/t-0") { Verdict::Fail(Other) } else { Verdict::Go });
        assert_eq!(truncate(100).unwrap_err().kind(), ErrorKind::Io);
        shim.heal();
        assert_eq!(paused(), (0.0, 0));
        let panics = || {
            let _paused = store.hold_cleaning("t", 0).unwrap();
            assert!(store.cleaner().passes > 0, "none has come");
        };
        assert!(std::thread::scope(|scope| scope.spawn(panics).join()).is_err());
        assert_eq!(paused(), (0.0, 0));

        let log = store.log("t", 0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _outer = store.hold_cleaning("t", 0).unwrap();
                        store.pause_cleaning("t", 0).unwrap();
                        drop(store.hold_cleaning("t", 0).unwrap());
                        assert_eq!(store.clean(&log).unwrap_err().kind(), ErrorKind::Locked);
                        store.resume_cleaning("t", 0).unwrap();
                    }
                });
            }
        });
        assert_eq!(paused(), (0.0, 0));
        // One that is held over the end of its log takes nothing from the next of its name.
        let old = store.hold_cleaning("t", 0).unwrap();
        store.delete_log("t", 0).unwrap();
        let log = store.log("t", 0).unwrap();
        store.pause_cleaning("t", 0).unwrap();
        drop(old);
        assert_eq!(paused(), (1.0, 1));
        store.resume_cleaning("t", 0).unwrap();
        fill(&log, 200, 10);
        rounds(&store);
        assert_eq!((store.cleaner().passes, log.read_from(0).unwrap().count()), (1, 10));
    });
}

/// A map for 96 keys of 1000: a pass reads again, which is told, and after it the store touches nothing any more.
#[test]
fn b02_passes_that_a_small_map_makes_longer_are_told_and_the_store_is_quiet_after_them() {
    recorded(|heard| {
        let shim = Shim::over(&disk());
        let store = open(shim.clone(), 1024);
        let log = store.log("t", 0).unwrap();
        fill(&log, 2000, 1000);
        rounds(&store);
        let told = || heard.now(&store);
        let before = told();
        assert_eq!((before["passes"], before["rereading-passes"], log.read_from(0).unwrap().count()), (1.0, 1.0, 1000));
        assert!(before["cleaner-io"] >= 10.0 * before["bytes-read"], "{before:?}");
        let touched = shim.count(|call, path| !matches!(call, Call::Metadata) && path.starts_with("/data/t-0"));
        let looks = store.cleaner().dirtiness_looks;
        (0..10).for_each(|_| rounds(&store));
        let after = told();
        assert_eq!((*touched.lock().unwrap(), store.cleaner().dirtiness_looks), (0, looks));
        assert_eq!((after["passes"], after["cleaner-io"]), (1.0, before["cleaner-io"]));
    });
}

#[test]
fn b10_a_log_whose_mark_lies_in_its_active_segment_is_not_chosen() {
    recorded(|heard| {
        let disk: Arc<MemoryStorage> = disk();
        let store = open(disk.clone(), 1 << 20);
        let log = store.log("t", 0).unwrap();
        fill(&log, 200, 10);
        fill(&log, 3, 10);
        for i in 0..10 {
            log.append(&[Record::new("k", format!("{i}"))], Durability::Buffered).unwrap();
        }
        let active = log.segments().active().base_offset();
        for mark in [active, active + 4, log.end_offset()] {
            log.data_dir().set_cleaner_offset(log.topic_partition(), Some(mark));
            rounds(&store);
            let told = heard.now(&store);
            assert_eq!((store.cleaner().passes, told["max-dirty-percent"]), (0, 0.0), "a mark at {mark}");
            assert_eq!(log.data_dir().cleaner_offset(log.topic_partition()), Some(mark));
        }
    });
}
