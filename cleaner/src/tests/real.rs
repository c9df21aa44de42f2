//! Passes over logs of the engine.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keeplog_engine::record::{BatchSpec, BatchWriter, Record, TxnResult};
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{Durability, ErrorKind, Log, LogOptions, TransactionEnd};

use crate::clean;
use crate::options::{CleanOptions, CleanOutcome, Merge, Progress, Watch};
use crate::schedule::{Dirtiness, LogFacts, Rules};

pub(super) const PATH: &str = "/data/t-0";

pub(super) fn open(storage: &Arc<dyn Storage>) -> Log {
    Log::open_with(Arc::clone(storage), Path::new(PATH), LogOptions::new().segment_bytes(4096)).unwrap()
}

pub(super) fn empty() -> Arc<dyn Storage> {
    let storage = MemoryStorage::new();
    storage.create_dir(Path::new("/data")).unwrap();
    Arc::new(storage)
}

/// A hundred records of ten keys a round, in segments of 4 KiB.
fn fill(log: &Log, rounds: usize) {
    for i in 0..100 * rounds {
        let value = format!("value {i} {}", "x".repeat(100));
        log.append(&[Record::new(format!("key-{}", i % 10), value)], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
}

fn contents(log: &Log) -> Vec<(u64, Vec<u8>)> {
    log.read_from(log.start_offset()).unwrap().map(|record| record.unwrap()).map(|r| (r.offset(), r.key().unwrap().to_vec())).collect()
}

pub(super) fn names(storage: &Arc<dyn Storage>) -> Vec<String> {
    storage.list(Path::new(PATH)).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn options(log: &Log) -> CleanOptions {
    CleanOptions { segment_bytes: 4096, chunk_bytes: 1000, ..CleanOptions::new(log.storage().now_ms()) }
}

#[test]
fn a_cleaned_log_reads_as_before_but_for_what_was_replaced() {
    let storage = empty();
    let log = open(&storage);
    fill(&log, 2);
    let end_offset = log.end_offset();
    let report = clean(&log, &options(&log), &()).unwrap();
    assert_eq!((report.outcome, report.new_dirty, report.records_kept), (CleanOutcome::Cleaned, end_offset, 10));
    let expected: Vec<_> = (0..10).map(|i| (190 + i, format!("key-{i}").into_bytes())).collect();
    assert_eq!(contents(&log), expected);
    let again = clean(&log, &CleanOptions { first_dirty: report.new_dirty, ..options(&log) }, &()).unwrap();
    assert_eq!((again.outcome, again.bytes_read), (CleanOutcome::NothingDirty, 0));
    log.close().unwrap();
    let log = open(&storage);
    assert_eq!((contents(&log), log.end_offset()), (expected, end_offset));
}

#[test]
fn what_replaces_a_record_is_durable_before_the_record_goes() {
    let storage = empty();
    let log = open(&storage);
    fill(&log, 2);
    assert_eq!(log.recovery_point(), 0);
    let report = clean(&log, &options(&log), &()).unwrap();
    assert!(log.recovery_point() >= report.first_uncleanable);
}

#[test]
fn the_marker_of_an_aborted_transaction_is_durable_before_its_records_go() {
    let storage = empty();
    let log = open(&storage);
    let spec = BatchSpec { producer_id: 7, producer_epoch: 0, base_sequence: 0, transactional: true, ..BatchSpec::default() };
    log.append_batch(super::field::batch(spec, &[("key", Some("aborted"))]), Durability::Buffered).unwrap();
    log.roll().unwrap();
    log.sync().unwrap();
    let end = TransactionEnd { producer_id: 7, producer_epoch: 0, result: TxnResult::Aborted, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Buffered).unwrap();
    assert_eq!((log.recovery_point(), log.segments().active().base_offset()), (1, 1));
    let report = clean(&log, &options(&log), &()).unwrap();
    assert_eq!((report.new_dirty, log.read_from(0).unwrap().count()), (1, 0));
    assert_eq!(log.recovery_point(), 2);
}

#[test]
fn a_dry_run_counts_and_touches_nothing() {
    let storage = empty();
    let log = open(&storage);
    fill(&log, 2);
    let (before, files) = (contents(&log), names(&storage));
    let dry = clean(&log, &CleanOptions { dry_run: true, ..options(&log) }, &()).unwrap();
    assert_eq!((contents(&log), names(&storage)), (before, files));
    assert!(dry.to_string().starts_with("would clean"), "{dry}");
    let wet = clean(&log, &options(&log), &()).unwrap();
    let wet = crate::CleanReport { dry_run: true, seconds: dry.seconds, ..wet };
    assert_eq!(dry, wet);
}

/// Appends to the log, and reads it, between the pieces of a pass.
struct Busy<'l> {
    log: &'l Log,
    appended: AtomicU64,
}

impl Watch for Busy<'_> {
    fn progress(&self, _: Progress) {
        let i = self.appended.fetch_add(1, Ordering::Relaxed);
        self.log.append(&[Record::new(format!("key-{}", i % 10), "newer")], Durability::Buffered).unwrap();
        if i.is_multiple_of(4) {
            self.log.roll().unwrap();
        }
        let newest = self.log.read_from(0).unwrap().last().unwrap().unwrap();
        assert_eq!(newest.value().unwrap().as_ref(), b"newer");
    }
}

#[test]
fn appends_rolls_and_reads_go_on_during_a_pass() {
    let storage = empty();
    let log = open(&storage);
    fill(&log, 3);
    let end_offset = log.end_offset();
    let busy = Busy { log: &log, appended: AtomicU64::new(0) };
    let report = clean(&log, &options(&log), &busy).unwrap();
    assert_eq!((report.new_dirty, report.records_kept), (end_offset, 10));
    let appended = busy.appended.into_inner();
    assert!(appended > 10, "{appended}");
    assert_eq!(contents(&log).len() as u64, 10 + appended);
    // What was written meanwhile is the next pass's business.
    log.roll().unwrap();
    let next = clean(&log, &CleanOptions { first_dirty: report.new_dirty, ..options(&log) }, &()).unwrap();
    assert_eq!(next.records_kept, 10);
}

/// Once the pass has begun, lets another thread go, and waits until it is in the middle of something.
struct Interrupted<'a> {
    begun: &'a AtomicBool,
    pieces: AtomicU64,
}

impl Watch for Interrupted<'_> {
    fn progress(&self, _: Progress) {
        self.begun.store(true, Ordering::SeqCst);
        self.pieces.fetch_add(1, Ordering::Relaxed);
        // A pass of a real log takes a while: give the other thread time to ask for the log.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn b17_closing_or_truncating_a_log_stops_its_pass() {
    type Interrupt = fn(&Log);
    let interrupts: [(&str, Interrupt); 2] = [("close", |log| log.close().unwrap()), ("truncate", |log| log.truncate_to(150).unwrap())];
    for (name, interrupt) in interrupts {
        let storage = empty();
        let log = open(&storage);
        fill(&log, 10);
        let before = contents(&log);
        let begun = AtomicBool::new(false);
        let watch = Interrupted { begun: &begun, pieces: AtomicU64::new(0) };
        let report = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !begun.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                interrupt(&log);
            });
            let report = clean(&log, &options(&log), &watch).unwrap();
            other.join().unwrap();
            report
        });
        assert_eq!((report.outcome, report.new_dirty), (CleanOutcome::Stopped, 0), "{name}");
        assert!(!names(&storage).iter().any(|name| name.contains(".cleaned") || name.contains(".swap")), "{name}: {:?}", names(&storage));
        drop(log);
        let log = open(&storage);
        let left = if name == "close" { &before[..] } else { &before[..150] };
        assert_eq!(contents(&log), left, "{name}");
    }
}

#[test]
fn one_pass_at_a_time() {
    let storage = empty();
    let log = open(&storage);
    fill(&log, 2);
    let rewrite = log.begin_rewrite().unwrap();
    let error = clean(&log, &options(&log), &()).unwrap_err();
    assert!(error.kind() == ErrorKind::Locked && error.is_retriable(), "{error:?}");
    drop(rewrite);
    clean(&log, &options(&log), &()).unwrap();
}

#[test]
fn damage_is_reported_with_the_name_of_the_file_and_nothing_is_touched() {
    let storage = empty();
    let log = open(&storage);
    fill(&log, 2);
    let (before, files) = (contents(&log), names(&storage));
    let file = storage.open(&log.segments().all()[1].path(), OpenMode::Write).unwrap();
    file.write_at(&[0xee], 150).unwrap();
    let error = clean(&log, &options(&log), &()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*log.segments().all()[1].path())));
    assert!(error.position().unwrap() <= 150, "{error}");
    assert_eq!(names(&storage), files);
    file.write_at(b"x", 150).unwrap();
    assert_eq!(contents(&log), before);
}

#[test]
fn a_device_that_fills_up_during_a_pass_leaves_the_log_as_it_was() {
    let full = FullDisk::empty();
    let storage: Arc<dyn Storage> = full.clone();
    let log = open(&storage);
    fill(&log, 2);
    let before = contents(&log);
    let options = CleanOptions { segment_bytes: 1, ..options(&log) };
    let mut room = 0;
    loop {
        *full.room.lock().unwrap() = Some(room);
        let result = clean(&log, &options, &());
        *full.room.lock().unwrap() = None;
        match result {
            Ok(report) => break assert_eq!(report.records_kept, 10),
            Err(error) => assert_eq!(error.kind(), ErrorKind::StorageFull, "{error:?}"),
        }
        assert_eq!(contents(&log), before);
        assert!(!names(&storage).iter().any(|name| name.contains(".cleaned")), "{:?}", names(&storage));
        log.append(&[Record::new("key-3", "still writable")], Durability::Synced).unwrap();
        log.truncate_to(200).unwrap();
        room += 300;
    }
    assert!(room > 300);
}

#[test]
fn a27_outputs_take_their_places_oldest_first_once_all_are_there() {
    let disk = FullDisk::empty();
    let storage: Arc<dyn Storage> = disk.clone();
    let log = open(&storage);
    fill(&log, 5);
    log.append(&(0..10).map(|i| Record::new(format!("key-{i}"), "newest")).collect::<Vec<_>>(), Durability::Buffered).unwrap();
    log.roll().unwrap();
    let report = clean(&log, &CleanOptions { segment_bytes: 1, merge: Merge::Sources, ..options(&log) }, &()).unwrap();
    assert!(report.segments_after > 5, "{report}");
    let outputs: Vec<_> = disk.renames.lock().unwrap().iter().filter(|name| name.ends_with(".log.swap")).cloned().collect();
    assert_eq!(outputs.len(), report.segments_after - 1, "the last segment lost nothing");
    assert!(outputs.is_sorted(), "{outputs:?}");
}

#[test]
fn a10_a_producer_goes_on_after_its_records_are_gone_and_the_log_is_opened_again() {
    let storage = empty();
    let now_ms = storage.now_ms();
    let batch = |sequence| {
        let mut writer = BatchWriter::new();
        writer.begin(BatchSpec { producer_id: 9, producer_epoch: 1, base_sequence: sequence, ..BatchSpec::default() });
        writer.push(0, now_ms, Some(b"k"), Some(b"v"), &[]).unwrap();
        writer.push(1, now_ms, Some(b"j"), Some(b"v"), &[]).unwrap();
        let mut out = Vec::new();
        writer.finish(&mut out).unwrap();
        out
    };
    let log = open(&storage);
    log.append_batch(batch(0), Durability::Buffered).unwrap();
    log.append_batch(batch(2), Durability::Buffered).unwrap();
    log.append(&[Record::new("k", "2"), Record::new("j", "2")], Durability::Buffered).unwrap();
    log.roll().unwrap();
    let report = clean(&log, &options(&log), &()).unwrap();
    assert_eq!(report.records_kept, 2);
    let headers: Vec<_> = log.batches_from(0).unwrap().map(|batch| batch.unwrap().header).collect();
    assert_eq!(headers.iter().map(|h| (h.base_offset, h.base_sequence, h.count)).collect::<Vec<_>>(), [(2, 2, 0), (4, -1, 2)]);
    log.close().unwrap();
    // Rebuild its state from the log alone.
    for name in names(&storage).iter().filter(|name| name.ends_with(".snapshot")) {
        storage.remove_file(&Path::new(PATH).join(name)).unwrap();
    }
    storage.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    let log = open(&storage);
    assert_eq!(log.append_batch(batch(6), Durability::Buffered).unwrap_err().kind(), ErrorKind::OutOfOrderSequence);
    log.append_batch(batch(4), Durability::Buffered).unwrap();
}

#[test]
fn scheduling_reads_what_a_log_is() {
    let storage = empty();
    let log = open(&storage);
    let rules = Rules::from(log.options());
    fill(&log, 2);
    let now_ms = storage.now_ms();
    let dirtiness = |checkpoint, rules: &Rules| Dirtiness::of(&LogFacts::read(&log, checkpoint, rules).unwrap(), rules, now_ms + 10_000);
    let all: u64 = log.segments().sealed().iter().map(|segment| segment.size_bytes()).sum();
    let dirty = dirtiness(None, &rules);
    assert_eq!((dirty.clean_bytes, dirty.cleanable_bytes, dirty.first_uncleanable), (0, all, 200));
    assert!(dirty.is_eligible(&rules));
    assert_eq!(dirty.overdue_ms, 0);
    let due = dirtiness(None, &Rules { max_compaction_lag_ms: 1000, ..rules });
    assert_eq!(due.overdue_ms, 9000);

    let report = clean(&log, &options(&log), &()).unwrap();
    let clean_now = dirtiness(Some(report.new_dirty), &rules);
    assert_eq!((clean_now.cleanable_bytes, clean_now.checkpoint_fault), (0, None));
    assert!(!clean_now.is_eligible(&rules));
}

/// A device on which each file of an output can take only so many bytes.
#[derive(Debug)]
struct FullDisk {
    inner: MemoryStorage,
    room: Mutex<Option<usize>>,
    /// New names of what was renamed.
    renames: Mutex<Vec<String>>,
}

impl FullDisk {
    fn empty() -> Arc<Self> {
        let inner = MemoryStorage::new();
        inner.create_dir(Path::new("/data")).unwrap();
        Arc::new(Self { inner, room: Mutex::new(None), renames: Mutex::default() })
    }
}

#[derive(Debug)]
struct FullFile {
    inner: Arc<dyn File>,
    room: Mutex<Option<usize>>,
}

impl FileLayer for FullFile {
    fn below(&self) -> &dyn File {
        &*self.inner
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let mut room = self.room.lock().unwrap();
        let take = room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if take == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(room) = room.as_mut() {
            *room -= take;
        }
        self.inner.write_at(&bytes[..take], position)
    }
}

impl Layer for FullDisk {
    fn below(&self) -> &dyn Storage {
        &self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        if !path.to_string_lossy().contains(".cleaned") {
            return Ok(inner);
        }
        Ok(Arc::new(FullFile { inner, room: Mutex::new(*self.room.lock().unwrap()) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.renames.lock().unwrap().push(to.file_name().unwrap().to_str().unwrap().to_owned());
        self.inner.rename(from, to)
    }
}
