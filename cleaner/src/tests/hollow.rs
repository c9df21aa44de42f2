//! Segments of which nothing stays, and logs of very many segments.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keeplog_engine::record::Record;
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{CleanupPolicy, Durability, Log, LogOptions};

use super::build::T0;
use super::real::PATH;
use crate::clean;
use crate::options::CleanOptions;

const HOUR: i64 = 60 * 60 * 1000;

/// Compacted and deleted: a segment an hour, kept for a day.
fn aging() -> LogOptions {
    let options = LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::CompactDelete).segment_ms(HOUR);
    options.retention_ms(Some(24 * HOUR)).delete_retention_ms(0)
}

fn open(options: LogOptions) -> (MemoryStorage, Log) {
    let storage = MemoryStorage::new();
    storage.create_dir(Path::new("/data")).unwrap();
    storage.set_now_ms(T0);
    let log = Log::open_with(Arc::new(storage.clone()), Path::new(PATH), options).unwrap();
    (storage, log)
}

fn put(log: &Log, now_ms: i64, keys: &[&str]) {
    let records: Vec<_> = keys.iter().map(|key| Record::new((*key).to_owned(), "v").timestamp_ms(now_ms)).collect();
    log.append(&records, Durability::Synced).unwrap();
    log.roll().unwrap();
}

/// A segment of which nothing stays has neither size nor age: it protects nothing behind it.
#[test]
fn retention_goes_past_a_segment_that_a_pass_has_emptied() {
    let (storage, log) = open(aging());
    put(&log, T0, &["a"]);
    storage.set_now_ms(T0 + 2 * HOUR);
    put(&log, T0 + 2 * HOUR, &["a", "b"]);
    clean(&log, &CleanOptions::for_log(log.options(), T0 + 2 * HOUR), &()).unwrap();
    let later = T0 + 365 * 24 * HOUR;
    storage.set_now_ms(later);
    put(&log, later, &["c"]);
    log.apply_retention().unwrap();
    assert_eq!(log.read_from(log.start_offset()).unwrap().count(), 1, "what is a year old is gone");
}

#[test]
fn retention_goes_past_a_segment_that_a_truncation_has_emptied() {
    let options = LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::Delete).retention_bytes(Some(1000));
    let (_, log) = open(options);
    let batch: Vec<_> = (0..10).map(|i| Record::new(format!("k{i}"), "v")).collect();
    log.append(&batch, Durability::Synced).unwrap();
    log.truncate_to(5).unwrap();
    for _ in 0..200 {
        log.append(&[Record::new("a", "1".repeat(100))], Durability::Synced).unwrap();
    }
    log.apply_retention().unwrap();
    let bytes: u64 = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
    assert!(bytes < 1000 + 4096, "{bytes} bytes stay");
}

/// Windows keep apart what retention must tell apart: what holds nothing is not among it.
#[test]
fn empty_segments_do_not_pile_up() {
    for retention_ms in [Some(24 * HOUR), None] {
        let (storage, log) = open(aging().retention_ms(retention_ms));
        let (mut first_dirty, mut now_ms) = (0, T0);
        for _ in 0..100 {
            put(&log, now_ms, &["a"]);
            now_ms += 2 * HOUR;
            storage.set_now_ms(now_ms);
            let options = CleanOptions { first_dirty, ..CleanOptions::for_log(log.options(), now_ms) };
            first_dirty = clean(&log, &options, &()).unwrap().new_dirty;
            log.apply_retention().unwrap();
        }
        assert!(log.segments().all().len() <= 4, "{} segments", log.segments().all().len());
    }
}

#[test]
fn a_pass_converges_where_outputs_are_smaller_than_segments() {
    let (_, log) = open(LogOptions::new().segment_bytes(4096));
    for i in 0..40 {
        log.append(&[Record::new(format!("k{i}"), "x".repeat(100))], Durability::Synced).unwrap();
    }
    log.roll().unwrap();
    let options = CleanOptions { output_bytes_max: 2000, segment_bytes: 100_000, ..CleanOptions::new(T0) };
    clean(&log, &options, &()).unwrap();
    clean(&log, &options, &()).unwrap();
    assert_eq!(clean(&log, &options, &()).unwrap().bytes_written, 0);
}

/// Counts the files that are open.
#[derive(Debug)]
struct Counting {
    below: MemoryStorage,
    open: Arc<Open>,
}

#[derive(Debug, Default)]
struct Open {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[derive(Debug)]
struct CountedFile {
    below: Arc<dyn File>,
    open: Arc<Open>,
}

impl Layer for Counting {
    fn below(&self) -> &dyn Storage {
        &self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn File>> {
        let below = self.below.open(path, mode)?;
        let now = self.open.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.most.fetch_max(now, Ordering::Relaxed);
        Ok(Arc::new(CountedFile { below, open: Arc::clone(&self.open) }))
    }
}

impl FileLayer for CountedFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.open.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A log whose cleaner was away for long has thousands of segments, and a process may have a thousand files.
#[test]
fn a_pass_and_retention_open_a_bounded_number_of_files() {
    let below = MemoryStorage::new();
    below.create_dir(Path::new("/data")).unwrap();
    let open = Arc::new(Open::default());
    let storage: Arc<dyn Storage> = Arc::new(Counting { below, open: Arc::clone(&open) });
    let options = LogOptions::new().segment_bytes(10_000).cleanup_policy(CleanupPolicy::CompactDelete).retention_bytes(Some(1));
    let log = Log::open_with(Arc::clone(&storage), Path::new(PATH), options).unwrap();
    for i in 0..1500 {
        log.append(&[Record::new("a", i.to_string()), Record::new(format!("k{i}"), "x".repeat(300))], Durability::Buffered).unwrap();
        log.roll().unwrap();
    }
    log.sync().unwrap();
    for threads in [1, 3] {
        open.most.store(0, Ordering::Relaxed);
        let options = CleanOptions { segment_bytes: 3000, merge_window_ms: None, threads, ..CleanOptions::new(storage.now_ms()) };
        clean(&log, &options, &()).unwrap();
        let most = open.most.load(Ordering::Relaxed);
        assert!(most < 700, "{most} files were open during a pass of {threads} threads");
    }
    assert!(log.segments().all().len() < 500);
    open.most.store(0, Ordering::Relaxed);
    assert!(log.apply_retention().unwrap().segments > 100);
    assert!(open.most.load(Ordering::Relaxed) < 200, "{} files were open during retention", open.most.load(Ordering::Relaxed));
}
