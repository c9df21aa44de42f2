use std::collections::BTreeMap;
use std::path::Path;

use keeplog_engine::record::Record;
use keeplog_engine::storage::{MemoryStorage, OpenMode, Storage, read_exact_at, write_all_at};
use keeplog_engine::{Durability, LogOptions};
use metrics::Unit;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::*;
use crate::{Store, StoreOptions};

/// Metrics by name and, for those of a log, ` topic-partition`; with unit and description.
type Told = BTreeMap<String, (DebugValue, Option<Unit>, String)>;

fn told(snapshotter: &Snapshotter) -> Told {
    let all = snapshotter.snapshot().into_vec().into_iter().map(|(key, unit, description, value)| {
        let (_, key) = key.into_parts();
        let label = |name: &str| key.labels().find(|label| label.key() == name).map(|label| label.value().to_owned());
        assert_eq!(label("logDirectory").as_deref(), Some("/data"), "{key}");
        let of_log = label("topic").map_or(String::new(), |topic| format!(" {topic}-{}", label("partition").unwrap()));
        (format!("{}{of_log}", key.name()), (value, unit, description.map_or_else(String::new, |text| text.to_string())))
    });
    all.collect()
}

fn number(told: &Told, name: &str) -> f64 {
    match &told.get(name).unwrap_or_else(|| panic!("{name} is not told")).0 {
        DebugValue::Gauge(value) => value.into_inner(),
        DebugValue::Counter(value) => *value as f64,
        DebugValue::Histogram(values) => values.iter().map(|value| value.into_inner()).sum(),
    }
}

fn open(storage: &MemoryStorage) -> Store {
    let log = LogOptions::new().segment_bytes(4096).min_cleanable_dirty_ratio(0.4).max_compaction_lag_ms(1000).min_compaction_lag_ms(0);
    let mut options = StoreOptions::new().log(log).background_thread(false).log_flush_offset_checkpoint_interval_ms(0);
    options.log_cleaner_dedupe_buffer_size = 1024;
    Store::open_with(Arc::new(storage.clone()), Path::new("/data"), options).unwrap()
}

fn fill(store: &Store, topic: &str) -> Log {
    let log = store.log(topic, 3).unwrap();
    for i in 0..100 {
        log.append(&[Record::new(format!("key-{}", i % 10), "x".repeat(100))], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    log
}

#[test]
fn a_recorder_hears_of_passes_and_of_every_log() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let log = fill(&store, "prices");
        let before: u64 = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
        store.housekeep();
        let after: u64 = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
        assert!(before > 5 * after && after > 0);
        let all = told(&snapshotter);
        for (name, expected) in [
            (RECOPY, 100.0 * after as f64 / before as f64),
            (PASSES, 1.0),
            ("keeplog.log.passes prices-3", 1.0),
            (BYTES_READ, before as f64),
            ("keeplog.log.bytes-read prices-3", before as f64),
            (BYTES_DROPPED, (before - after) as f64),
            ("keeplog.log.bytes-dropped prices-3", (before - after) as f64),
            (BYTES_WRITTEN, after as f64),
            ("keeplog.log.bytes-written prices-3", after as f64),
            (MAX_DIRTY, 100.0),
            (DEAD_THREADS, 0.0),
            (UNCLEANABLE_LOGS, 0.0),
            (UNCLEANABLE_BYTES, 0.0),
            (LOGS, 1.0),
            (ALL_BYTES, after as f64),
            (ALL_SEGMENTS, 2.0),
            ("kafka.log.Log.LogStartOffset prices-3", 0.0),
            ("kafka.log.Log.LogEndOffset prices-3", 100.0),
            ("kafka.log.Log.Size prices-3", after as f64),
            ("kafka.log.Log.NumLogSegments prices-3", 2.0),
        ] {
            assert_eq!(number(&all, name), expected, "{name}");
        }
        let report = store.cleaner().last.into_values().next().unwrap().report;
        assert_eq!((number(&all, BUFFER_USE), report.map_size), (report.map_use() * 100.0, 10));
        assert_eq!((number(&all, CLEAN_TIME), number(&all, PASS_SECONDS)), (report.seconds, report.seconds));
        assert_eq!(number(&all, COMPACTION_DELAY), 0.0);
        assert!(all[SINCE_LAST_RUN].1 == Some(Unit::Milliseconds) && number(&all, SINCE_LAST_RUN) >= 0.0);
        for metric in METRICS.iter().filter(|metric| !metric.per_log) {
            assert_eq!(all[metric.name].2, metric.meaning);
        }
        // Overdue, though it is not dirty enough.
        storage.set_now_ms(storage.now_ms() + 60_000);
        log.append(&[Record::new("key-1", "y")], Durability::Buffered).unwrap();
        log.roll().unwrap();
        storage.set_now_ms(storage.now_ms() + 60_000);
        store.housekeep();
        let all = told(&snapshotter);
        assert!(number(&all, COMPACTION_DELAY) > 0.0);
        assert_eq!(store.cleaner().passes, 2);
        assert!(number(&all, MAX_DIRTY) < 40.0);
    });
}

#[test]
fn logs_that_can_not_be_cleaned_are_told_with_their_bytes() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let log = fill(&store, "prices");
        fill(&store, "others");
        // Behind the back of the store, a byte of a sealed segment is flipped.
        let file = storage.open(&log.path().join("00000000000000000000.log"), OpenMode::Write).unwrap();
        let mut byte = [0];
        read_exact_at(&*file, &mut byte, 100).unwrap();
        write_all_at(&*file, &[byte[0] ^ 1], 100).unwrap();
        for _ in 0..4 {
            store.housekeep();
        }
        store.publish_metrics();
        let all = told(&snapshotter);
        assert_eq!(store.cleaner().uncleanable.len(), 1, "{:?}", store.cleaner());
        let dirty: u64 = log.segments().sealed().iter().map(|segment| segment.size_bytes()).sum();
        let figures = [UNCLEANABLE_LOGS, UNCLEANABLE_BYTES, FAILED_PASSES, PASSES, LOGS].map(|name| number(&all, name));
        assert_eq!(figures, [1.0, dirty as f64, 1.0, 1.0, 2.0]);
    });
}

/// The page is what people read; the code is what is told.
#[test]
fn the_page_and_the_code_agree() {
    const PAGE: &str = include_str!("../../../docs/METRICS.md");
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = METRICS
        .iter()
        .chain(crate::OFFSET_METRICS)
        .map(|metric| {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels = if metric.per_log { "topic, partition" } else { "" };
            let kafka = metric.kafka.unwrap_or("-");
            format!("| `{}` | {kind} | {} | {labels} | {} | {kafka} |", metric.name, metric.unit, metric.meaning)
        })
        .collect();
    assert_eq!(rows, expected);
}
