//! Settings that are changed while a store is open: each counts from the next look on.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keeplog::inspect::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog::{CleanOptions, CleanOutcome, CleanupPolicy, Durability, ErrorKind, Log, LogOptions, Record, Store, StoreOptions};

use crate::disk::{T0, disk};

fn small() -> LogOptions {
    LogOptions::new().segment_bytes(4096)
}

fn open_on(storage: Arc<dyn Storage>, options: StoreOptions) -> Store {
    Store::open_with(storage, Path::new("/data"), options.background_thread(false)).unwrap()
}

fn open(disk: &Arc<MemoryStorage>) -> Store {
    open_on(Arc::clone(disk) as Arc<dyn Storage>, StoreOptions::new().log(small()))
}

/// Appends `records` records of so many keys, and closes their segment.
fn append(log: &Log, records: u64, keys: u64) {
    for i in 0..records {
        let now_ms = log.storage().now_ms();
        log.append(&[Record::new(format!("key-{}", i % keys), "x".repeat(100)).timestamp_ms(now_ms)], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
}

fn held(log: &Log) -> usize {
    log.read_from(log.start_offset()).unwrap().map(Result::unwrap).count()
}

/// Rounds until nothing is left to do; how many passes that took.
fn passes(store: &Store) -> u64 {
    let before = store.cleaner().passes;
    while store.housekeep().is_zero() {}
    store.cleaner().passes - before
}

#[test]
fn log_cleaner_enable() {
    let store = open_on(disk(), StoreOptions::new().log(small()).log_cleaner_enable(false));
    let log = store.log("t", 0).unwrap();
    append(&log, 200, 10);
    assert_eq!(passes(&store), 0);
    store.set_cleaner(&store.cleaner_settings().log_cleaner_enable(true)).unwrap();
    assert_eq!(passes(&store), 1);
    // Switched off, it ends the pass that is under way, or the one that would be.
    append(&log, 200, 10);
    store.set_cleaner_rate(1).unwrap();
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| passes(&store));
        std::thread::yield_now();
        store.set_cleaner(&store.cleaner_settings().log_cleaner_enable(false)).unwrap();
        assert_eq!(pass.join().unwrap(), 0);
    });
    assert_eq!(held(&log), 210);
}

#[test]
fn log_cleaner_backoff_ms() {
    let store = open(&disk());
    assert_eq!(store.housekeep(), Duration::from_secs(15));
    store.set_cleaner(&store.cleaner_settings().log_cleaner_backoff_ms(7)).unwrap();
    assert_eq!(store.housekeep(), Duration::from_millis(7));
}

#[test]
fn a_backoff_of_nothing_takes_no_core_for_itself() {
    let store = open_on(Arc::new(MemoryStorage::new()), StoreOptions::new().background_thread(false).log_cleaner_backoff_ms(0));
    assert!(store.housekeep() >= Duration::from_millis(1), "nothing is to be cleaned");
}

#[test]
fn b08_log_cleaner_dedupe_buffer_size() {
    let store = open(&disk());
    let log = store.log("t", 0).unwrap();
    append(&log, 2000, 1000);
    store.set_cleaner(&store.cleaner_settings().log_cleaner_dedupe_buffer_size(1024)).unwrap();
    let report = store.clean(&log).unwrap();
    assert!(report.readings > 1, "{report}");
    for bytes in [0, 1, 63, 1023] {
        let error = store.set_cleaner(&store.cleaner_settings().log_cleaner_dedupe_buffer_size(bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("log_cleaner_dedupe_buffer_size"), "{error}");
    }
    assert_eq!(store.cleaner_settings().log_cleaner_dedupe_buffer_size, 1024, "what is refused changes nothing");
    store.set_cleaner(&store.cleaner_settings().log_cleaner_dedupe_buffer_size(1 << 20)).unwrap();
    append(&log, 1000, 1000);
    let report = store.clean(&log).unwrap();
    assert_eq!((report.readings, report.new_dirty, report.records_kept), (1, 3000, 1000));
}

/// A storage whose reads of log files wait, where that is asked for, until two threads have come to read.
#[derive(Debug)]
struct Meeting {
    below: Arc<MemoryStorage>,
    readers: Arc<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    /// The threads that have read since they were last forgotten; `None` while nobody asks.
    seen: Mutex<Option<Vec<std::thread::ThreadId>>>,
    more: Condvar,
}

impl Readers {
    fn read(&self) {
        let mut seen = self.seen.lock().unwrap();
        let Some(threads) = seen.as_mut() else { return };
        let this = std::thread::current().id();
        if !threads.contains(&this) {
            threads.push(this);
            self.more.notify_all();
        }
        // The time limit only ends a hanging test.
        drop(self.more.wait_timeout_while(seen, Duration::from_secs(20), |seen| seen.as_ref().is_some_and(|seen| seen.len() < 2)));
    }
}

impl Layer for Meeting {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.below.open(path, mode)?;
        if path.extension().is_some_and(|extension| extension == "log") {
            return Ok(Arc::new(MeetingFile { below: file, readers: Arc::clone(&self.readers) }));
        }
        Ok(file)
    }
}

#[derive(Debug)]
struct MeetingFile {
    below: Arc<dyn File>,
    readers: Arc<Readers>,
}

impl FileLayer for MeetingFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.readers.read();
        self.below.read_at(buffer, position)
    }
}

#[test]
fn log_cleaner_threads() {
    let readers = Arc::new(Readers::default());
    let store = open_on(Arc::new(Meeting { below: disk(), readers: Arc::clone(&readers) }), StoreOptions::new().log(small()));
    let log = store.log("t", 0).unwrap();
    append(&log, 2000, 10);
    store.set_cleaner(&store.cleaner_settings().log_cleaner_threads(2)).unwrap();
    *readers.seen.lock().unwrap() = Some(Vec::new());
    assert_eq!(store.clean(&log).unwrap().records_kept, 10);
    assert_eq!(readers.seen.lock().unwrap().take().unwrap().len(), 2, "two threads read");
    for threads in [0, 1_000_000] {
        let error = store.set_cleaner(&store.cleaner_settings().log_cleaner_threads(threads)).unwrap_err();
        assert!(error.to_string().contains("log_cleaner_threads"), "{error}");
    }
}

#[test]
fn log_cleaner_io_max_bytes_per_second() {
    let store = open(&disk());
    let settings = store.cleaner_settings().log_cleaner_io_max_bytes_per_second(1);
    store.set_cleaner(&settings).unwrap();
    let log = store.log("t", 0).unwrap();
    append(&log, 200, 10);
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| store.clean(&log).unwrap().outcome);
        std::thread::yield_now();
        // It would take hours else.
        store.set_cleaner(&settings.clone().log_cleaner_io_max_bytes_per_second(u64::MAX)).unwrap();
        assert_eq!(pass.join().unwrap(), CleanOutcome::Cleaned);
    });
    let error = store.set_cleaner(&settings.log_cleaner_io_max_bytes_per_second(0)).unwrap_err();
    assert!(error.to_string().contains("log_cleaner_io_max_bytes_per_second"), "{error}");
}

#[test]
fn min_cleanable_dirty_ratio() {
    let store = open(&disk());
    let log = store.log("t", 0).unwrap();
    append(&log, 200, 200);
    store.clean(&log).unwrap();
    append(&log, 100, 100);
    assert_eq!(passes(&store), 0, "a third is dirty");
    store.set_log_options("t", &small().min_cleanable_dirty_ratio(0.2)).unwrap();
    assert_eq!(passes(&store), 1);
    // One that is opened later has it from the beginning, and takes the others too.
    store.set_log_options("u", &small().min_cleanable_dirty_ratio(1.0).segment_bytes(8192)).unwrap();
    let log = store.log("u", 0).unwrap();
    assert_eq!((log.options().min_cleanable_dirty_ratio.to_bits(), log.options().segment_bytes), (1.0_f64.to_bits(), 8192));
}

#[test]
fn min_compaction_lag_ms() {
    let disk = disk();
    let store = open(&disk);
    let log = store.log("t", 0).unwrap();
    store.set_log_options("t", &small().min_compaction_lag_ms(1000)).unwrap();
    append(&log, 200, 10);
    assert_eq!(passes(&store), 0);
    disk.advance_ms(500);
    assert_eq!(passes(&store), 0);
    store.set_log_options("t", &small().min_compaction_lag_ms(500)).unwrap();
    assert_eq!(passes(&store), 1);
}

#[test]
fn max_compaction_lag_ms() {
    let disk = disk();
    let store = open(&disk);
    let log = store.log("t", 0).unwrap();
    append(&log, 200, 200);
    store.clean(&log).unwrap();
    // Little, and in the active segment.
    log.append(&[Record::new("key-0", "last").timestamp_ms(T0)], Durability::Buffered).unwrap();
    disk.advance_ms(10_000);
    assert_eq!(passes(&store), 0);
    store.set_log_options("t", &small().max_compaction_lag_ms(10_000)).unwrap();
    assert_eq!(passes(&store), 0);
    disk.advance_ms(1);
    (0..2).for_each(|_| _ = store.housekeep());
    assert_eq!((store.cleaner().passes, held(&log)), (2, 200), "rolled and cleaned once more though nobody appends");
}

#[test]
fn delete_retention_ms() {
    let disk = disk();
    let store = open(&disk);
    let log = store.log("t", 0).unwrap();
    append(&log, 20, 10);
    log.append(&[Record::tombstone("key-1")], Durability::Buffered).unwrap();
    log.roll().unwrap();
    store.set_log_options("t", &small().delete_retention_ms(1000)).unwrap();
    // The first pass that meets a tombstone sets the time until when it stays.
    assert_eq!(store.clean(&log).unwrap().tombstones_kept, 1);
    disk.advance_ms(1001);
    append(&log, 1, 1);
    assert_eq!(store.clean(&log).unwrap().tombstones_kept, 0);
}

#[test]
fn retention_ms_and_bytes() {
    let disk = disk();
    let store = open(&disk);
    let log = store.log("t", 0).unwrap();
    append(&log, 400, 400);
    let both = small().cleanup_policy(CleanupPolicy::CompactDelete).retention_ms(None);
    store.set_log_options("t", &both).unwrap();
    passes(&store);
    assert_eq!(log.start_offset(), 0);
    store.set_log_options("t", &both.clone().retention_bytes(Some(20_000))).unwrap();
    passes(&store);
    let start = log.start_offset();
    assert!(start > 0 && start < 400);
    // Appends that close no segment count, too.
    store.set_log_options("t", &both.clone().retention_bytes(Some(log.segments().all().iter().map(|s| s.size_bytes()).sum()))).unwrap();
    passes(&store);
    for _ in 0..30 {
        log.append(&[Record::new("k", "x".repeat(100)).timestamp_ms(T0)], Durability::Buffered).unwrap();
    }
    assert!(log.segments().active().size_bytes() > 0);
    store.housekeep();
    assert!(log.start_offset() > start);
    store.set_log_options("t", &both.retention_ms(Some(50))).unwrap();
    passes(&store);
    assert!(log.start_offset() < log.end_offset());
    disk.advance_ms(51);
    store.housekeep();
    assert_eq!(log.start_offset(), log.end_offset());
}

#[test]
fn a24_a_policy_that_does_not_compact_any_more_ends_the_pass_under_way() {
    let disk = disk();
    let store = open(&disk);
    let log = store.log("t", 0).unwrap();
    append(&log, 200, 10);
    store.set_cleaner_rate(1).unwrap();
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| store.clean(&log));
        std::thread::yield_now();
        store.set_log_options("t", &small().cleanup_policy(CleanupPolicy::Delete).retention_ms(None)).unwrap();
        drop(log.begin_rewrite().expect("nobody has the turn any more"));
        match pass.join().unwrap() {
            Ok(report) => assert_eq!(report.outcome, CleanOutcome::Stopped),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "it had not begun by then"),
        }
    });
    let names = disk.list(Path::new("/data/t-0")).unwrap();
    assert!(names.iter().all(|entry| !entry.name.contains(".cleaned") && !entry.name.contains(".swap")), "{names:?}");
    store.set_cleaner_rate(u64::MAX).unwrap();
    assert_eq!((passes(&store), held(&log)), (0, 200));
    assert_eq!(store.clean(&log).unwrap_err().kind(), ErrorKind::InvalidInput);
    // And back: it was opened as a compacted log.
    store.set_log_options("t", &small()).unwrap();
    assert_eq!((passes(&store), held(&log)), (1, 10));
}

#[test]
fn a_closed_store_takes_no_settings_and_no_pauses() {
    let store = Store::open_with(disk(), Path::new("/data"), StoreOptions::new().background_thread(false)).unwrap();
    let log = store.log("t", 0).unwrap();
    store.pause_cleaning("t", 0).unwrap();
    let before = store.cleaner_settings();
    store.close().unwrap();
    let refused = [
        store.set_cleaner(&before.clone().log_cleaner_threads(2)),
        store.set_cleaner_rate(1000),
        store.set_log_options("t", &LogOptions::new()),
        store.pause_cleaning("t", 0),
        store.hold_cleaning("t", 0).map(drop),
        store.resume_cleaning("t", 0),
        store.checkpoint(),
        store.delete_log("t", 0),
        store.clean(&log).map(drop),
        store.clean_with(&log, &CleanOptions::new(T0), &()).map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err(&format!("call {number}"));
        assert_eq!(error.kind(), ErrorKind::Closed, "call {number}: {error}");
    }
    assert_eq!(store.cleaner_settings(), before);
}
