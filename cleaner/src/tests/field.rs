//! Field reports about what stays, on logs of the engine.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use keeplog_engine::record::{BatchSpec, BatchWriter, Codec, Record, TxnResult};
use keeplog_engine::storage::{Layer, MemoryStorage, OpenMode, Storage, read_exact_at, write_all_at};
use keeplog_engine::{Durability, Log, LogOptions, TransactionEnd};

use super::build::T0;
use super::real::{PATH, names, open};
use crate::clean;
use crate::options::{CleanOptions, CleanOutcome};

/// A file system in memory that keeps a copy of itself from before each call that moves names, once it is told to.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) memory: MemoryStorage,
    images: Mutex<Option<Vec<MemoryStorage>>>,
    /// New names of what was renamed, and "sync".
    calls: Mutex<Vec<String>>,
    /// No directory can be synced.
    pub(super) fails: AtomicBool,
}

impl Disk {
    pub(super) fn empty() -> Arc<Self> {
        let memory = MemoryStorage::new();
        memory.set_now_ms(T0);
        memory.create_dir(Path::new("/data")).unwrap();
        Self::over(memory)
    }

    pub(super) fn over(memory: MemoryStorage) -> Arc<Self> {
        Arc::new(Self { memory, images: Mutex::default(), calls: Mutex::default(), fails: AtomicBool::new(false) })
    }

    pub(super) fn as_storage(self: &Arc<Self>) -> Arc<dyn Storage> {
        Arc::clone(self) as Arc<dyn Storage>
    }

    pub(super) fn keep_images(&self) {
        *self.images.lock().unwrap() = Some(Vec::new());
    }

    /// The copies, and what is there now.
    pub(super) fn take_images(&self) -> Vec<Arc<dyn Storage>> {
        self.take_memories().into_iter().map(|image| Arc::new(image) as Arc<dyn Storage>).collect()
    }

    pub(super) fn take_memories(&self) -> Vec<MemoryStorage> {
        self.images.lock().unwrap().take().unwrap().into_iter().chain([self.memory.image()]).collect()
    }

    fn note(&self) {
        if let Some(images) = self.images.lock().unwrap().as_mut() {
            images.push(self.memory.image());
        }
    }
}

impl Layer for Disk {
    fn below(&self) -> &dyn Storage {
        &self.memory
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note();
        self.calls.lock().unwrap().push(to.file_name().unwrap().to_string_lossy().into_owned());
        self.memory.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.note();
        self.calls.lock().unwrap().push("sync".to_owned());
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::other("a planned failure"));
        }
        self.memory.sync_dir(dir)
    }
}

pub(super) fn open_with(storage: &Arc<dyn Storage>, options: LogOptions) -> Log {
    Log::open_with(Arc::clone(storage), Path::new(PATH), options).unwrap()
}

pub(super) fn append(log: &Log, records: &[Record]) -> u64 {
    log.append(records, Durability::Buffered).unwrap().base_offset
}

/// Offset, key and value; a tombstone is "-".
pub(super) fn contents(log: &Log) -> Vec<(u64, String, String)> {
    let text = |bytes: Option<&[u8]>| bytes.map_or("-".to_owned(), |b| String::from_utf8_lossy(b).into_owned());
    let records = log.read_from(log.start_offset()).unwrap().map(Result::unwrap);
    records.map(|r| (r.offset(), text(r.key().map(|k| &k[..])), text(r.value().map(|v| &v[..])))).collect()
}

pub(super) fn bytes_of(storage: &Arc<dyn Storage>, name: &str) -> Vec<u8> {
    let file = storage.open(&Path::new(PATH).join(name), OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    bytes
}

pub(super) fn put_file(storage: &Arc<dyn Storage>, name: &str, bytes: &[u8]) {
    let file = storage.open(&Path::new(PATH).join(name), OpenMode::Truncate).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

/// One batch of text records, all else as `spec` says.
pub(super) fn batch(spec: BatchSpec, records: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    let base = spec.base_offset;
    writer.begin(spec);
    for (i, (key, value)) in records.iter().enumerate() {
        writer.push(base + i as u64, T0 + i as i64, Some(key.as_bytes()), value.map(str::as_bytes), &[]).unwrap();
    }
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

#[test]
fn a02_a_stamped_batch_keeps_the_times_of_its_records_and_holds_the_horizon_where_tools_look() {
    const RETENTION_MS: i64 = 1_000_000;
    let disk = Disk::empty();
    let log = open(&disk.as_storage());
    append(&log, &[Record::new("k", "1").timestamp_ms(T0 - 500)]);
    append(&log, &[Record::tombstone("k").timestamp_ms(T0 - 400), Record::new("j", "1").timestamp_ms(T0 - 300)]);
    log.roll().unwrap();
    let options = CleanOptions { delete_retention_ms: RETENTION_MS, ..CleanOptions::new(T0) };
    clean(&log, &options, &()).unwrap();
    let stored = log.batches_from(0).unwrap().next().unwrap().unwrap();
    assert_eq!(stored.bytes[22] & 64, 64, "attribute bit 6");
    assert_eq!(stored.bytes[27..35], (T0 + RETENTION_MS).to_be_bytes(), "in the place of the base timestamp");
    assert_eq!(stored.header.max_timestamp, T0 - 300);
    let times: Vec<_> = log.read_from(0).unwrap().map(|r| r.unwrap().timestamp_ms()).collect();
    assert_eq!(times, [T0 - 400, T0 - 300]);
    assert_eq!(log.find_by_timestamp(T0 - 300).unwrap(), Some((2, T0 - 300)));
}

#[test]
fn a06_a_segment_that_spans_more_than_an_index_can_hold_is_split_by_the_cleaner() {
    let storage = Disk::empty().as_storage();
    open(&storage).close().unwrap();
    let far = (1_u64 << 31) + 1;
    let at = |base_offset, key| batch(BatchSpec { base_offset, ..BatchSpec::default() }, &[(key, Some("1")), ("twice", Some("1"))]);
    put_file(&storage, "00000000000000000000.log", &[at(1, "a"), at(far, "b"), at(far + 10, "c")].concat());
    let log = open_with(&storage, LogOptions::new().recovery_full_scan(true));
    append(&log, &[Record::new("end", "1")]);
    log.roll().unwrap();
    let report = clean(&log, &CleanOptions::new(T0), &()).unwrap();
    assert_eq!(report.outcome, CleanOutcome::Cleaned);
    let bases = |log: &Log| log.segments().all().iter().map(|s| s.base_offset()).collect::<Vec<_>>();
    assert_eq!(bases(&log), [0, far, far + 12, far + 13]);
    let left: Vec<_> = contents(&log).into_iter().map(|(offset, key, _)| (offset, key)).collect();
    let expected = [(1, "a"), (far, "b"), (far + 10, "c"), (far + 11, "twice"), (far + 12, "end")].map(|(o, k)| (o, k.to_owned()));
    assert_eq!(left, expected);
    assert_eq!((report.segments_before, report.segments_after), (2, 3));
    log.close().unwrap();
    let log = open_with(&storage, LogOptions::new().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(contents(&log).len(), 5);
}

/// Batches of compressible data that a high level of compression made small: written again, they are larger.
fn squeezed(log: &Log, batches: u64) {
    for i in 0..batches {
        let noise: String = (0..3000_u64).map(|n| format!("{} ", (n + i) * n % 9973)).collect();
        let spec = BatchSpec {
            codec: Codec::Zstd,
            level: Some(19),
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: i32::try_from(i * 2).unwrap(),
            transactional: true,
            ..BatchSpec::default()
        };
        log.append_batch(batch(spec, &[("gone", Some("1")), (&format!("key-{i}"), Some(&noise))]), Durability::Buffered).unwrap();
    }
}

#[test]
fn a06_an_output_that_outgrows_its_file_goes_on_in_a_second_one() {
    let disk = Disk::empty();
    let storage = disk.as_storage();
    let options = LogOptions::new().segment_bytes(1 << 20);
    let log = open_with(&storage, options.clone());
    squeezed(&log, 12);
    let end = |result| TransactionEnd { producer_id: 7, producer_epoch: 0, result, coordinator_epoch: 0 };
    log.end_transaction(&end(TxnResult::Committed), Durability::Buffered).unwrap();
    append(&log, &[Record::new("gone", "2")]);
    log.roll().unwrap();
    let source = log.segments().all()[0].size_bytes();
    let before = contents(&log);
    disk.keep_images();
    disk.calls.lock().unwrap().clear();
    let limit = u32::try_from(source).unwrap();
    let report = clean(&log, &CleanOptions { output_bytes_max: limit, segment_bytes: 1 << 20, ..CleanOptions::new(T0) }, &()).unwrap();
    assert!(report.bytes_kept > source, "{report}");
    assert_eq!((report.outcome, report.segments_before, report.segments_after), (CleanOutcome::Cleaned, 1, 2));
    // The second output does not count before the names of the first are durable, nor is it finished before that.
    let calls = disk.calls.lock().unwrap().clone();
    let logs: Vec<_> = calls
        .iter()
        .filter(|call| *call == "sync" || call.contains(".log"))
        .map(|call| call.split('.').skip(1).collect::<Vec<_>>().join("."))
        .collect();
    // What a pass reads is synced before it begins, and so is how far that goes.
    let first = logs.iter().position(|call| !call.is_empty()).unwrap();
    assert!(first > 0, "{calls:?}");
    assert_eq!(logs[first..], ["log.swap", "", "log.swap", "", "log.deleted", "", "log", "", "log", ""], "{calls:?}");
    let set = log.segments();
    assert!(set.sealed().iter().all(|s| s.size_bytes() <= source && s.size_bytes() > 0));
    assert_eq!(set.sealed().len(), 2);
    let after = contents(&log);
    assert_eq!(after.len(), 13);
    assert_eq!(after, before.iter().filter(|(offset, key, _)| key != "gone" || *offset == 25).cloned().collect::<Vec<_>>());
    let committed = |log: &Log| log.read_committed_from(0).unwrap().map(|r| r.unwrap().offset()).collect::<Vec<_>>();
    let read = committed(&log);
    assert_eq!(read.len(), 13);
    // Stopped before any of its calls, it is done or not done.
    let mut seen = [0, 0];
    for image in disk.take_images() {
        let log = open_with(&image, options.clone());
        assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
        let is_done = contents(&log) == after;
        assert!(is_done || contents(&log) == before);
        seen[usize::from(is_done)] += 1;
        assert_eq!(log.end_offset(), 26);
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

#[test]
fn a06_the_aborted_transactions_of_a_split_output_are_known_in_each_part() {
    let storage = Disk::empty().as_storage();
    let log = open_with(&storage, LogOptions::new().segment_bytes(1 << 20));
    let txn = |id, key: &str| {
        let spec = BatchSpec { producer_id: id, producer_epoch: 0, base_sequence: 0, transactional: true, ..BatchSpec::default() };
        log.append_batch(batch(spec, &[(key, Some("never"))]), Durability::Buffered).unwrap();
        let end = TransactionEnd { producer_id: id, producer_epoch: 0, result: TxnResult::Aborted, coordinator_epoch: 0 };
        log.end_transaction(&end, Durability::Buffered).unwrap();
    };
    for id in 0..8 {
        txn(id, "k");
        append(&log, &[Record::new(format!("key-{id}"), "x".repeat(200)), Record::new("gone", "1")]);
    }
    append(&log, &[Record::new("gone", "2")]);
    log.roll().unwrap();
    let report = clean(&log, &CleanOptions { output_bytes_max: 700, segment_bytes: 1 << 20, ..CleanOptions::new(T0) }, &()).unwrap();
    assert!(report.segments_after > 2, "{report}");
    let names = names(&storage);
    assert!(names.iter().filter(|name| name.ends_with(".txnindex")).count() > 2, "{names:?}");
    let keys: Vec<_> =
        log.read_committed_from(0).unwrap().map(|r| String::from_utf8_lossy(r.unwrap().key().unwrap()).into_owned()).collect();
    assert_eq!(keys.len(), 9);
    // The emptied batches of active producers are what their abort markers still stand for.
    log.close().unwrap();
    let log = open_with(&storage, LogOptions::new().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(log.read_committed_from(0).unwrap().count(), 9);
}

#[test]
fn a09_an_emptied_batch_gives_the_time_index_its_own_time_and_no_time_finds_it() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    let spec = BatchSpec { producer_id: 3, producer_epoch: 0, base_sequence: 5, ..BatchSpec::default() };
    log.append_batch(batch(spec, &[("a", Some("1")), ("b", Some("1"))]), Durability::Buffered).unwrap();
    log.roll().unwrap();
    append(&log, &[Record::new("a", "2").timestamp_ms(T0 + 9), Record::new("b", "2").timestamp_ms(T0 + 9)]);
    log.roll().unwrap();
    clean(&log, &CleanOptions { segment_bytes: 1, ..CleanOptions::new(T0) }, &()).unwrap();
    let header = log.batches_from(0).unwrap().next().unwrap().unwrap().header;
    assert_eq!((header.base_offset, header.last_offset, header.base_sequence, header.count), (0, 1, 5, 0));
    // As Kafka writes it: the largest time of a segment is that of its batches, with records or without.
    assert_eq!(bytes_of(&storage, "00000000000000000000.timeindex"), [&(T0 + 1).to_be_bytes()[..], &[0, 0, 0, 1]].concat());
    assert_eq!(log.find_by_timestamp(T0).unwrap(), Some((2, T0 + 9)));
}

#[test]
fn a17_what_stays_of_a_batch_keeps_its_offsets_times_and_headers() {
    for codec in [Codec::None, Codec::Lz4] {
        let log = open_with(&Disk::empty().as_storage(), LogOptions::new().compression(codec));
        let one =
            |key: &'static str, i: i64| Record::new(key, format!("{i}")).timestamp_ms(T0 - i).header("n", format!("{i}")).header("n", "");
        append(&log, &[one("k", 1), one("j", 1), one("k", 2), Record::tombstone("j").timestamp_ms(T0 - 7).header("why", "x"), one("k", 3)]);
        log.roll().unwrap();
        clean(&log, &CleanOptions::new(T0), &()).unwrap();
        let left: Vec<_> = log.read_from(0).unwrap().map(Result::unwrap).collect();
        let headers = |i: usize| left[i].headers().map(|(k, v)| (k.to_vec(), v.unwrap().to_vec())).collect::<Vec<_>>();
        assert_eq!(left.iter().map(|r| (r.offset(), r.timestamp_ms())).collect::<Vec<_>>(), [(3, T0 - 7), (4, T0 - 3)]);
        assert_eq!(headers(0), [(b"why".to_vec(), b"x".to_vec())]);
        assert_eq!(headers(1), [(b"n".to_vec(), b"3".to_vec()), (b"n".to_vec(), Vec::new())]);
    }
}

#[test]
fn a22_a_batch_that_grew_beyond_what_an_append_may_have_is_readable() {
    let noise: String = (0..20_000_u64).map(|i| format!("{} ", i * i % 9973)).collect();
    let spec = BatchSpec { codec: Codec::Zstd, level: Some(19), ..BatchSpec::default() };
    let full = batch(spec, &[("gone", Some("1")), ("k", Some(&noise))]);
    let storage = Disk::empty().as_storage();
    let options = LogOptions::new().max_message_bytes(u32::try_from(full.len()).unwrap());
    let log = open_with(&storage, options.clone());
    log.append_batch(full.clone(), Durability::Buffered).unwrap();
    append(&log, &[Record::new("gone", "2")]);
    log.roll().unwrap();
    clean(&log, &CleanOptions::for_log(log.options(), T0), &()).unwrap();
    let size = log.batches_from(0).unwrap().next().unwrap().unwrap().header.size as usize;
    assert!(size > full.len(), "{size} bytes after {}", full.len());
    let whole = |log: &Log| contents(log) == [(1, "k".to_owned(), noise.clone()), (2, "gone".to_owned(), "2".to_owned())];
    assert!(whole(&log));
    log.close().unwrap();
    let log = open_with(&storage, options.recovery_full_scan(true));
    assert!(log.recovery_report().is_sound() && whole(&log), "{}", log.recovery_report());
}
