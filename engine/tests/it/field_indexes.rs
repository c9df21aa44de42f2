//! Field reports about the offset and time indexes of a log.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keeplog_engine::record::{BatchHeader, BatchSpec, Codec, Record, TxnResult};
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{Durability, ErrorKind, Log, LogOptions, Segment, TransactionEnd};
use keeplog_index::{OffsetIndex, TimeIndex};

use crate::support::{LOG, T0, all, batch, contents, crash, disk, files, open, producer, small};

/// A file system that counts how index files are opened and read, and fails what it is told to.
#[derive(Debug)]
struct Watched {
    memory: Arc<MemoryStorage>,
    opened: Arc<Mutex<Vec<String>>>,
    bytes_read: Arc<AtomicUsize>,
    fails_syncs_of: Mutex<Option<&'static str>>,
    /// A write to a log stops in its middle.
    tears_writes: Arc<AtomicBool>,
}

#[derive(Debug)]
struct WatchedFile {
    inner: Arc<dyn File>,
    /// Of an index.
    bytes_read: Option<Arc<AtomicUsize>>,
    fails_sync: bool,
    tears_writes: Arc<AtomicBool>,
}

impl Watched {
    fn over(memory: &Arc<MemoryStorage>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            opened: Arc::default(),
            bytes_read: Arc::default(),
            fails_syncs_of: Mutex::default(),
            tears_writes: Arc::default(),
        })
    }

    /// Forgets what was counted.
    fn reset(&self) {
        self.opened.lock().unwrap().clear();
        self.bytes_read.store(0, Ordering::Relaxed);
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Storage {
        &*self.memory
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.memory.open(path, mode)?;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let fails_sync = self.fails_syncs_of.lock().unwrap().is_some_and(|suffix| name.ends_with(suffix));
        let bytes_read = name.ends_with("index").then(|| Arc::clone(&self.bytes_read));
        if bytes_read.is_some() {
            self.opened.lock().unwrap().push(name);
        }
        Ok(Arc::new(WatchedFile { inner, bytes_read, fails_sync, tears_writes: Arc::clone(&self.tears_writes) }))
    }
}

impl FileLayer for WatchedFile {
    fn below(&self) -> &dyn File {
        &*self.inner
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if let Some(bytes_read) = &self.bytes_read {
            bytes_read.fetch_add(buffer.len(), Ordering::Relaxed);
        }
        self.inner.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        match self.tears_writes.load(Ordering::Relaxed) {
            true if bytes.len() > 10 => self.inner.write_at(&bytes[..10], position),
            true => Err(io::Error::other("a planned failure")),
            false => self.inner.write_at(bytes, position),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.fails_sync { Err(io::Error::other("a planned failure")) } else { self.inner.sync_data() }
    }
}

fn open_on(disk: &Arc<Watched>, options: LogOptions) -> Log {
    Log::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new(LOG), options).unwrap()
}

fn append(log: &Log, value_bytes: usize) -> u64 {
    log.append(&[Record::new("k", "v".repeat(value_bytes))], Durability::Buffered).unwrap().base_offset
}

/// Position and header of each batch of a segment.
fn batches(segment: &Segment) -> Vec<(u64, BatchHeader)> {
    let file = segment.file().unwrap();
    let mut scanner = segment.scan(&*file, 0, 1 << 16);
    std::iter::from_fn(|| scanner.next().map(|entry| entry.map(|e| (e.position, e.header)).unwrap())).collect()
}

/// Every entry leads to the start of a batch, and holds its last offset; returns how many there are.
fn check_entries(segment: &Segment) -> usize {
    let batches = batches(segment);
    let entries = segment.offset_entries().unwrap();
    for entry in &entries {
        let found = batches.iter().find(|(position, _)| *position == u64::from(entry.position));
        assert_eq!(found.map(|(_, header)| header.last_offset), Some(entry.offset), "in {}", segment.path().display());
    }
    assert!(entries.windows(2).all(|w| w[0].offset < w[1].offset && w[0].position < w[1].position));
    entries.len()
}

#[test]
fn d06_a_lookup_in_a_sealed_segment_reads_a_few_pages_of_its_index() {
    for batches in [1_u64, 2, 3, 512, 1023, 1024, 1025, 1026, 1540, 5000] {
        let disk = Watched::over(&disk());
        let log = open_on(&disk, LogOptions::new().index_interval_bytes(1));
        (0..batches).for_each(|_| _ = append(&log, 1));
        log.roll().unwrap();
        let segment = Arc::clone(&log.segments().all()[0]);
        let size = segment.size_bytes() / batches;
        for offset in 0..batches {
            disk.reset();
            assert_eq!(u64::from(segment.position_for(offset).unwrap()), offset * size, "offset {offset} of {batches}");
            let (read, index) = (disk.bytes_read.load(Ordering::Relaxed), 8 * (batches as usize - 1));
            let is_recent = index < 8192 || offset as usize > batches as usize - 1000;
            assert!(read <= if is_recent { 8192 } else { 8192 + 4096 + 8 * 4 }, "{read} bytes for offset {offset} of {batches}");
        }
    }
}

#[test]
fn d07_sixteen_readers_meet_a_log_that_was_just_opened() {
    let disk = disk();
    let log = open(&disk, small());
    (0..300).for_each(|i| _ = append(&log, i % 90));
    log.close().unwrap();
    let log = open(&disk, small());
    std::thread::scope(|scope| {
        for reader in 0..16 {
            let log = &log;
            scope.spawn(move || {
                for offset in (reader..300).step_by(7) {
                    assert_eq!(log.read_from(offset).unwrap().next().unwrap().unwrap().offset(), offset);
                    log.find_by_timestamp(T0).unwrap().unwrap();
                }
            });
        }
        scope.spawn(|| (0..200).for_each(|i| _ = append(&log, i % 90)));
    });
    let entries: usize = log.segments().all().iter().map(|segment| check_entries(segment)).sum();
    assert!(entries > 50);
    assert_eq!(all(&log).len(), 500);
}

#[test]
fn d08_an_index_that_is_cut_under_an_open_log_makes_reading_slow_and_ends_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("t-0"), LogOptions::new().index_interval_bytes(100)).unwrap();
    (0..500).for_each(|i| _ = append(&log, i % 90));
    log.roll().unwrap();
    (0..500).for_each(|i| _ = append(&log, i % 90));
    let read = |offset| log.read_from(offset).unwrap().next().unwrap().unwrap().offset();
    assert_eq!((read(400), read(900)), (400, 900));
    let time = log.find_by_timestamp(0).unwrap();
    assert!(time.is_some());
    for suffix in ["index", "timeindex"] {
        let path = log.segments().all()[0].path().with_extension(suffix);
        for len in [100, 1, 0] {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
            assert!((0..1000).all(|offset| read(offset) == offset));
            assert_eq!(log.find_by_timestamp(0).unwrap(), time);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!((read(400), log.find_by_timestamp(0).unwrap()), (400, time));
    }
    log.close().unwrap();
}

#[test]
fn d09_indexes_keep_their_entries_while_they_grow_are_sealed_and_go_on() {
    let disk = disk();
    let mut log = open(&disk, small().segment_bytes(1 << 16));
    let stop = AtomicBool::new(false);
    for round in 0..6 {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let end = log.end_offset();
                    for offset in (0..end).step_by(17) {
                        assert_eq!(log.read_from(offset).unwrap().next().unwrap().unwrap().offset(), offset);
                    }
                }
            });
            for _ in 0..50 {
                let before = log.segments().active().offset_entries().unwrap();
                append(&log, 60);
                let after = log.segments().active().offset_entries().unwrap();
                assert!(after.starts_with(&before) && after.len() <= before.len() + 1);
            }
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        stop.store(false, Ordering::Relaxed);
        let known = log.segments().active().offset_entries().unwrap();
        if round % 2 == 0 {
            log.close().unwrap();
            log = open(&disk, small().segment_bytes(1 << 16));
            assert_eq!(log.segments().active().offset_entries().unwrap(), known);
        } else {
            log.roll().unwrap();
            let sealed = Arc::clone(log.segments().sealed().last().unwrap());
            assert_eq!(sealed.offset_entries().unwrap(), known);
            let name = format!("{:020}.index", sealed.base_offset());
            assert_eq!(contents(&disk, &name).len(), 8 * known.len());
        }
    }
}

#[test]
fn d11_a_segment_rolls_when_an_index_is_full_and_not_before() {
    let refused = |bytes| {
        let disk = disk() as Arc<dyn Storage>;
        Log::open_with(disk, Path::new(LOG), LogOptions::new().segment_index_bytes(bytes)).unwrap_err().kind()
    };
    assert_eq!([0, 7, 8, 12, 23].map(refused), [ErrorKind::InvalidInput; 5]);
    // Rounded down to whole entries; in the time index one is kept for the closing entry, which none of these needs.
    for (bytes, entries) in [(24, 1), (35, 1), (36, 2), (47, 2), (1200, 99)] {
        let log = open(&disk(), LogOptions::new().index_interval_bytes(1).segment_index_bytes(bytes));
        for time in 0..250 {
            log.append(&[Record::new("k", "v").timestamp_ms(time)], Durability::Buffered).unwrap();
        }
        for segment in log.segments().sealed() {
            assert_eq!((segment.offset_index_bytes(), segment.time_index_bytes()), (8 * entries, 12 * entries), "room for {bytes} bytes");
        }
        assert!(log.segments().all().len() > 2);
    }
    let disk = disk();
    for partition in 0..50 {
        let path = format!("/data/many-{partition}");
        let log = Log::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new(&path), LogOptions::new()).unwrap();
        append(&log, 1);
        log.roll().unwrap();
        append(&log, 1);
        log.close().unwrap();
        let names = disk.list(Path::new(&path)).unwrap();
        let bytes: u64 = names.iter().map(|e| disk.metadata(&Path::new(&path).join(&e.name)).unwrap().len).sum();
        assert!(bytes < 500, "{bytes} bytes for two records: nothing is preallocated");
    }
}

#[test]
fn d12_entries_are_an_interval_apart_and_no_batch_more() {
    let log = open(&disk(), LogOptions::new().max_message_bytes(2 << 20));
    for i in 0..400_usize {
        append(&log, [100, 4096, 30, 100, 1 << 20, 2000][if i % 50 == 49 { 4 } else { i * 7 % 4 }]);
    }
    log.roll().unwrap();
    let segment = Arc::clone(&log.segments().all()[0]);
    assert!(check_entries(&segment) > 50);
    let batches = batches(&segment);
    let positions: Vec<_> = [0].into_iter().chain(segment.offset_entries().unwrap().iter().map(|e| u64::from(e.position))).collect();
    for pair in positions.windows(2) {
        let before = batches.iter().rev().find(|(position, _)| *position < pair[1]).unwrap();
        assert!(pair[1] - pair[0] > 4096, "more than one entry in an interval, at {}", pair[1]);
        assert!(pair[1] - pair[0] <= 4096 + u64::from(before.1.size), "none for a long stretch before {}", pair[1]);
    }
}

#[test]
fn d13_every_entry_leads_to_a_batch_whoever_appends_and_rolls() {
    let disk = disk();
    let options = small().segment_bytes(16 << 10).compression(Codec::Lz4);
    let log = open(&disk, options.clone());
    std::thread::scope(|scope| {
        for writer in 0..6_usize {
            let log = &log;
            scope.spawn(move || {
                for i in 0..80_usize {
                    let value: String = (0..(i * 37 + writer * 11) % 400).map(|n| format!("{} ", n * i)).collect();
                    let records: Vec<_> = (0..=i % 4).map(|r| Record::new(format!("{r}"), value.clone())).collect();
                    log.append(&records, Durability::Buffered).unwrap();
                    if i % 25 == 24 {
                        log.roll().unwrap();
                    }
                }
            });
        }
    });
    let check = |log: &Log| log.segments().all().iter().map(|segment| check_entries(segment)).sum::<usize>();
    assert!(check(&log) > 100);
    let image = crash(log.clone(), &disk);
    assert!(check(&open(&image, options.clone())) > 100, "as rebuilt");
    log.close().unwrap();
    assert!(check(&open(&disk, options)) > 100, "as stored");
}

#[test]
fn d13_entries_stay_right_behind_a_write_that_failed() {
    let memory = disk();
    let disk = Watched::over(&memory);
    let log = open_on(&disk, small());
    (0..30).for_each(|i| _ = append(&log, i % 90));
    disk.tears_writes.store(true, Ordering::Relaxed);
    let record = [Record::new("k", "torn")];
    assert_eq!(log.append(&record, Durability::Buffered).unwrap_err().kind(), ErrorKind::Io);
    disk.tears_writes.store(false, Ordering::Relaxed);
    assert_eq!(log.append(&record, Durability::Buffered).unwrap_err().kind(), ErrorKind::Poisoned);
    drop(log);
    let log = open(&memory, small());
    (30..60).for_each(|i| assert_eq!(append(&log, i % 90), i as u64));
    log.roll().unwrap();
    assert!(log.segments().all().iter().map(|segment| check_entries(segment)).sum::<usize>() > 10);
    assert_eq!(all(&log).len(), 60);
}

#[test]
fn d14_an_index_whose_sync_failed_has_each_entry_once_after_all() {
    for suffix in [".index", ".timeindex"] {
        let memory = disk();
        let disk = Watched::over(&memory);
        let log = open_on(&disk, small());
        (0..20).for_each(|_| _ = append(&log, 60));
        *disk.fails_syncs_of.lock().unwrap() = Some(suffix);
        log.roll().unwrap();
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Poisoned, "it is not tried again over the same pages");
        *disk.fails_syncs_of.lock().unwrap() = None;
        drop(log);
        let log = open(&memory, small());
        (0..20).for_each(|_| _ = append(&log, 60));
        log.roll().unwrap();
        log.close().unwrap();
        let log = open(&memory, small());
        for segment in log.segments().all() {
            check_entries(segment);
            let (size, next) = (u32::try_from(segment.size_bytes()).unwrap(), log.end_offset());
            let stored = |kind: &str| contents(&memory, &format!("{:020}.{kind}", segment.base_offset()));
            assert_eq!(OffsetIndex::new(segment.base_offset(), stored("index")).unwrap().check(size, next), Ok(()));
            assert_eq!(TimeIndex::new(segment.base_offset(), stored("timeindex")).unwrap().check(next), Ok(()));
        }
        assert_eq!(all(&log).len(), 40);
    }
}

/// A marker without data before it.
fn marker(log: &Log, producer_id: i64) {
    let end = TransactionEnd { producer_id, producer_epoch: 0, result: TxnResult::Committed, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Buffered).unwrap();
}

#[test]
fn d15_a_log_of_control_batches_has_an_index_like_any_other() {
    let log = open(&disk(), LogOptions::new().segment_bytes(1 << 20));
    for i in 0..20_000 {
        if i % 100 == 7 {
            append(&log, 10);
        } else {
            marker(&log, i % 10);
        }
    }
    assert!(log.segments().all().len() > 1);
    for segment in log.segments().all() {
        assert!(check_entries(segment) > 10);
        for (position, header) in batches(segment) {
            let from = u64::from(segment.position_for(header.base_offset).unwrap());
            assert!(from <= position && position - from <= 4096 + u64::from(header.size), "at {position} from {from}");
        }
    }
}

#[test]
fn d16_no_time_is_answered_with_a_marker() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let disk = disk();
    let log = open(&disk, small());
    let mut times = Vec::new();
    for i in 0..120_i64 {
        let time = T0 - YEAR_MS + i * 1000;
        let offset = log.append(&[Record::new("k", "v".repeat(60)).timestamp_ms(time)], Durability::Buffered).unwrap().base_offset;
        times.push((offset, time));
        marker(&log, i % 3);
    }
    let last = log.append(&[Record::new("k", "v").timestamp_ms(T0 - YEAR_MS / 4)], Durability::Buffered).unwrap().base_offset;
    times.push((last, T0 - YEAR_MS / 4));
    let brute = |time| times.iter().copied().find(|(_, t)| *t >= time);
    let check = |log: &Log| {
        for time in [0, T0 - YEAR_MS, T0 - YEAR_MS + 60_001, T0 - YEAR_MS / 2, T0 - YEAR_MS / 4, T0 - YEAR_MS / 4 + 1, T0, T0 + 1] {
            assert_eq!(log.find_by_timestamp(time).unwrap(), brute(time), "at {time}");
        }
    };
    check(&log);
    check(&open(&crash(log, &disk), small()));
}

#[test]
fn d17_the_time_index_of_a_sealed_segment_ends_with_its_largest_time() {
    let by_size = small();
    let by_time = LogOptions::new().index_interval_bytes(300).segment_ms(400);
    let by_index = LogOptions::new().index_interval_bytes(1).segment_index_bytes(240);
    for options in [by_size, by_time, by_index] {
        let disk = disk();
        let log = open(&disk, options.clone());
        for i in 0..300_i64 {
            let time = T0 + i * 10 - if i % 9 == 0 { 3000 } else { 0 };
            let records = [time, time - 1].map(|time| Record::new("k", "v".repeat(20)).timestamp_ms(time));
            log.append(&records, Durability::Buffered).unwrap();
        }
        let check = |log: &Log, disk: &MemoryStorage| {
            assert!(log.segments().sealed().len() > 3, "{:?}", files(disk));
            for segment in log.segments().sealed() {
                let stored = contents(disk, &format!("{:020}.timeindex", segment.base_offset()));
                let index = TimeIndex::new(segment.base_offset(), stored).unwrap();
                let largest =
                    batches(segment).into_iter().map(|(_, h)| (h.max_timestamp, h.last_offset)).rev().max_by_key(|(time, _)| *time);
                assert_eq!(index.last().map(|e| (e.timestamp, e.offset)), largest);
                assert_eq!(index.as_bytes().len() as u32, segment.time_index_bytes());
            }
        };
        check(&log, &disk);
        let image = crash(log.clone(), &disk);
        check(&open(&image, options.clone().recovery_full_scan(true)), &image);
        log.close().unwrap();
        check(&open(&disk, options), &disk);
    }
}

#[test]
fn d18_the_largest_time_is_found_at_its_record_compressed_or_not() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let log = open(&disk(), LogOptions::new().compression(codec));
        let records = [1, 9, 5].map(|time| Record::new("k", "v".repeat(100)).timestamp_ms(time));
        log.append(&records, Durability::Buffered).unwrap();
        let largest = log.segments().all().iter().map(|s| s.largest_timestamp()).max().unwrap();
        assert_eq!(log.find_by_timestamp(largest).unwrap(), Some((1, 9)), "{codec:?}");
    }
}

#[test]
fn d20_a_time_is_looked_for_in_the_segment_that_has_it() {
    const SEGMENTS: i64 = 1000;
    let memory = disk();
    let log = open(&memory, LogOptions::new());
    for i in 0..SEGMENTS {
        log.append(&[Record::new("k", "v").timestamp_ms(T0 + i)], Durability::Buffered).unwrap();
        log.roll().unwrap();
    }
    log.close().unwrap();
    let disk = Watched::over(&memory);
    let log = open_on(&disk, LogOptions::new());
    for i in [0, 1, 500, SEGMENTS - 1] {
        disk.reset();
        assert_eq!(log.find_by_timestamp(T0 + i).unwrap(), Some((i.unsigned_abs(), T0 + i)));
        let opened = disk.opened.lock().unwrap();
        assert!(opened.len() <= 2, "{opened:?}");
    }
    disk.reset();
    assert_eq!(log.find_by_timestamp(T0 + SEGMENTS).unwrap(), None);
    assert!(disk.opened.lock().unwrap().is_empty());
}

#[test]
fn d10_log_and_indexes_agree_after_a_truncation_at_any_edge() {
    for target in [0, 1, 9, 10, 11, 20, 21, 100] {
        let disk = disk();
        let log = open(&disk, LogOptions::new().index_interval_bytes(1));
        for base_offset in [0, 10, 20] {
            let spec = BatchSpec { base_offset, ..producer(1, 0, i32::try_from(base_offset).unwrap()) };
            log.append_as_follower(&batch(spec, &[("k", Some("v"))]), Durability::Buffered).unwrap();
        }
        log.truncate_to(target).unwrap();
        let segment = Arc::clone(log.segments().active());
        check_entries(&segment);
        assert!(segment.offset_entries().unwrap().iter().all(|e| e.offset < target));
        assert_eq!(all(&log).iter().map(|r| r.0).collect::<Vec<_>>(), [0, 10, 20].into_iter().filter(|o| *o < target).collect::<Vec<_>>());
        assert_eq!(append(&log, 1), target.min(21));
        log.close().unwrap();
        let log = open(&disk, LogOptions::new());
        assert!(log.recovery_report().is_sound() && log.recovery_report().rebuilt.is_empty(), "{}", log.recovery_report());
    }
}
