//! What allocates, and how much: its own binary, for it counts with the allocator of the whole process.
#![allow(clippy::disallowed_methods)] // it looks at files behind the back of the engine

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::record::{BatchSpec, BatchWriter, Codec, Decoder, Header};
use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog::{
    CONSUMER_OFFSETS, CleanOptions, Durability, ErrorKind, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Record,
    RequiredAcks, Store, StoreOptions,
};

/// The system's allocator, counted by thread: tests run beside each other.
struct Counted;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Allocations {
    calls: usize,
    largest: usize,
    /// Bytes taken less bytes given back, and the most that this came to.
    held: isize,
    peak: isize,
}

thread_local! {
    static SO_FAR: Cell<Allocations> = const { Cell::new(Allocations { calls: 0, largest: 0, held: 0, peak: 0 }) };
    /// What is larger is refused.
    static LARGEST: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn note(taken: usize, given_back: usize) {
    let so_far = SO_FAR.get();
    let held = so_far.held + taken.cast_signed() - given_back.cast_signed();
    let (calls, largest) = (so_far.calls + usize::from(taken > 0), so_far.largest.max(taken));
    SO_FAR.set(Allocations { calls, largest, held, peak: so_far.peak.max(held) });
}

// SAFETY: every call goes to the system's allocator as it is; counting touches nothing of it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST.get() {
            return std::ptr::null_mut();
        }
        note(layout.size(), 0);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST.get() {
            return std::ptr::null_mut();
        }
        note(layout.size(), 0);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if new_size > LARGEST.get() {
            return std::ptr::null_mut();
        }
        note(new_size, layout.size());
        // SAFETY: the caller's own promise.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// What `work` allocates on this thread.
fn allocations<T>(work: impl FnOnce() -> T) -> (T, Allocations) {
    SO_FAR.set(Allocations::default());
    let done = work();
    (done, SO_FAR.get())
}

/// Runs `work` on a machine that gives this thread no more than `bytes` at a time.
fn with_no_more_than<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    LARGEST.set(bytes);
    let done = work();
    LARGEST.set(usize::MAX);
    done
}

const T0: i64 = 1_760_000_000_000;

fn disk() -> Arc<MemoryStorage> {
    let disk = MemoryStorage::new();
    disk.set_now_ms(T0);
    disk.create_dir(Path::new("/data")).unwrap();
    Arc::new(disk)
}

fn open(disk: &Arc<MemoryStorage>) -> Log {
    Log::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data/t-0"), LogOptions::new()).unwrap()
}

fn headers() -> Vec<Header> {
    (0..5).map(|i| Header { key: format!("header {i}"), value: Some("value".into()) }).collect()
}

/// A batch of `records` records with five headers each, of keys from `first` on.
fn batch(first: usize, records: usize) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec::default());
    let headers = headers();
    for i in 0..records {
        writer.push(i as u64, T0, Some(format!("key {}", first + i).as_bytes()), Some(b"value"), &headers).unwrap();
    }
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

/// With a thousand times the records, as many allocations: on append in both ways, on recovery, and in a pass that keeps all.
#[test]
fn g06_allocations_are_by_the_batch_and_not_by_the_record() {
    const BATCHES: usize = 20;
    let mut counted = Vec::new();
    for records in [1, 1000] {
        let disk = disk();
        let log = open(&disk);
        let batches: Vec<_> = (0..2 * BATCHES).map(|i| batch(i * records, records)).collect();
        let (warm, batches) = batches.split_at(BATCHES);
        warm.iter().for_each(|batch| _ = log.append_batch(batch.clone(), Durability::Buffered).unwrap());
        let ready = batches.to_vec();
        let ((), produced) = allocations(|| ready.into_iter().for_each(|batch| _ = log.append_batch(batch, Durability::Buffered).unwrap()));
        let entries = |at: u64| -> Vec<Record> {
            (0..records)
                .map(|i| Record { headers: headers(), ..Record::new(format!("own {}", at as usize * records + i), "value") })
                .collect()
        };
        log.append(&entries(0), Durability::Buffered).unwrap();
        let own: Vec<_> = (1..=BATCHES as u64).map(entries).collect();
        let ((), appended) = allocations(|| own.iter().for_each(|records| _ = log.append(records, Durability::Buffered).unwrap()));
        log.roll().unwrap();
        let image = Arc::new(disk.image());
        let (recovered, recovery) = allocations(|| open(&image));
        assert_eq!(recovered.end_offset(), log.end_offset());
        let options = CleanOptions::new(T0);
        let (report, cleaning) = allocations(|| keeplog::clean(&log, &options, &()).unwrap());
        assert_eq!(report.records_kept, log.end_offset(), "all are kept");
        counted.push([produced.calls, appended.calls, recovery.calls, cleaning.calls]);
    }
    for (what, (few, many)) in ["append_batch", "append", "recovery", "clean"].into_iter().zip(counted[0].iter().zip(&counted[1])) {
        // The file in memory grows, and buffers do.
        assert!(*many <= few + 4 * BATCHES, "{what}: {few} allocations for 1 record a batch, {many} for 1000");
    }
}

/// Eight bytes that ask for gigabytes: nothing larger than a window is allocated for them.
#[test]
fn h02_no_allocation_follows_a_count() {
    let whole = batch(0, 1);
    let (count, delta, length) = (57, 23, 8);
    let mut broken = Vec::new();
    for (at, value) in [(count, i32::MAX), (delta, i32::MAX), (length, i32::MAX), (count, i32::MAX - 1)] {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        broken.push(bytes);
    }
    // Each byte of the record area as the largest varint that has one more behind it.
    for at in 61..whole.len() {
        for fill in [&[0xfe, 0xff, 0xff, 0xff, 0x0f][..], &[0xff; 4], &[0x7f]] {
            let mut bytes = whole.clone();
            let end = (at + fill.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&fill[..end - at]);
            broken.push(bytes);
        }
    }
    for mut bytes in broken {
        let crc = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let mut decoder = Decoder::new(1 << 30);
        let (_, decoding) = allocations(|| decoder.records(&bytes).is_ok_and(|mut records| records.all(|record| record.is_ok())));
        assert!(decoding.largest < 1024, "{decoding:?}");
        let disk = disk();
        let log = open(&disk);
        let (_, appending) = allocations(|| log.append_batch(bytes.clone(), Durability::Buffered).is_ok());
        let (_, following) = allocations(|| log.append_as_follower(&bytes, Durability::Buffered).is_ok());
        assert!(appending.largest.max(following.largest) < 1 << 16, "{appending:?} {following:?}");
        let image = Arc::new(disk.image());
        let file = image.open(Path::new("/data/t-0/00000000000000000000.log"), OpenMode::Truncate).unwrap();
        write_all_at(&*file, &bytes, 0).unwrap();
        let (log, opening) = allocations(|| open(&image));
        let (_, reading) = allocations(|| log.read_from(log.start_offset()).unwrap().filter(Result::is_ok).count());
        assert!(opening.largest.max(reading.largest) <= (1 << 20) + 4096, "{opening:?} {reading:?}");
    }
}

/// What a closed segment leaves in memory, with its place in the lists.
#[test]
fn g08_a_closed_segment_takes_less_than_a_kilobyte() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("t-0"), LogOptions::new().segment_bytes(4096)).unwrap();
    let rolls = |count| {
        for _ in 0..count {
            log.append(&[Record::new("k", "v")], Durability::Buffered).unwrap();
            log.roll().unwrap();
        }
    };
    rolls(50);
    let ((), more) = allocations(|| rolls(50));
    assert!(more.held <= 50 * 1024, "{more:?}");
    assert_eq!(log.read_from(0).unwrap().count(), 100);
}

/// A round over a store with nothing to do: as many allocations and calls to the file system for many segments as for few.
#[test]
fn g12_a_round_with_nothing_to_do_looks_at_no_segment() {
    let mut counted = Vec::new();
    for segments in [10, 200] {
        let disk = disk();
        let options = StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false);
        let store = Store::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap();
        let log = store.log("t", 0).unwrap();
        for i in 0..segments {
            // Each key once: all of it stays, one segment for each.
            log.append(&[Record::new(format!("key {i}"), "v".repeat(3000))], Durability::Buffered).unwrap();
        }
        log.roll().unwrap();
        store.clean(&log).unwrap();
        assert!(log.segments().all().len() >= segments);
        let (_, round) = allocations(|| store.housekeep());
        counted.push(round.calls);
    }
    assert!(counted[1] <= counted[0] + 8, "{counted:?}");
}

/// With the same segments, a pass over four times the log takes no more memory, but for its keys.
#[test]
fn g14_the_memory_of_a_pass_does_not_grow_with_the_log() {
    let mut peaks = Vec::new();
    for rounds in [8, 32_isize] {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path().join("t-0"), LogOptions::new().segment_bytes(256 << 10)).unwrap();
        for i in 0..rounds * 1000 {
            log.append(&[Record::new(format!("key {i}"), "v".repeat(200))], Durability::Buffered).unwrap();
        }
        log.roll().unwrap();
        let mut options = CleanOptions::for_log(log.options(), T0);
        options.dedupe_buffer_bytes = 1 << 20;
        let (report, pass) = allocations(|| keeplog::clean(&log, &options, &()).unwrap());
        assert_eq!(report.records_kept, log.end_offset());
        // Within its room, the set of keys is as large as they are many: a bucket of 64 bytes for six.
        peaks.push(pass.peak - rounds * 1000 * 64 / 6);
    }
    assert!(peaks[1] * 10 <= peaks[0] * 11 && peaks[1] <= 1 << 20, "{peaks:?}");
}

/// A store of 16 logs of which none fits: whichever of them a pass is at, it stays within what it may have, a tenth more at most.
#[test]
fn g14_sixteen_logs_share_one_budget() {
    const LOGS: u32 = 16;
    const KEYS: u64 = 40_000;
    const CHUNK: u32 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::new().background_thread(false).log(LogOptions::new().segment_bytes(1 << 20));
    let store = Store::open(dir.path(), options).unwrap();
    let logs: Vec<Log> = (0..LOGS).map(|number| store.log("t", number).unwrap()).collect();
    for log in &logs {
        for first in (0..KEYS).step_by(100) {
            let records: Vec<_> = (first..first + 100).map(|i| Record::new(format!("key {i:06}"), "v".repeat(100))).collect();
            log.append(&records, Durability::Buffered).unwrap();
        }
        log.roll().unwrap();
    }
    let (keys_bytes, held_bytes) = (64 << 10, 1 << 20);
    // What is read, what is decided on in it (24 bytes a record), and what is written.
    let budget = (keys_bytes + held_bytes + 8 * u64::from(CHUNK)) as isize;
    let mut peaks = Vec::new();
    let ((), all) = allocations(|| {
        for log in &logs {
            let before = SO_FAR.get();
            SO_FAR.set(Allocations { peak: before.held, ..before });
            let options =
                CleanOptions::for_log(log.options(), T0).dedupe_buffer_bytes(keys_bytes).held_bytes_max(held_bytes).chunk_bytes(CHUNK);
            let report = store.clean_with(log, &options, &()).unwrap();
            assert_eq!((report.records_kept, report.map_size), (KEYS, KEYS));
            assert!(report.readings > 4, "the keys of one do not fit: {report}");
            peaks.push(SO_FAR.get().peak - before.held + report.map_bytes as isize);
        }
    });
    assert!(peaks.iter().all(|peak| *peak <= budget + budget / 10), "{peaks:?} of {budget}");
    assert!(all.held <= (64 << 10), "{} bytes are left of {LOGS} passes", all.held);
}

/// A segment as large as one can be, of holes for the most part: no count ends at 1.5 GiB, or at 2.
#[test]
fn g14_a_segment_of_two_gibibytes_is_cleaned() {
    const VALUE: usize = 32 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    std::fs::create_dir(&path).unwrap();
    let file = std::fs::File::create(path.join("00000000000000000000.log")).unwrap();
    let (mut bytes, mut batches, value) = (0, 0, vec![0; VALUE]);
    loop {
        let mut writer = BatchWriter::new();
        writer.begin(BatchSpec { base_offset: batches, ..BatchSpec::default() });
        writer.push(batches, T0, Some(format!("key {}", batches % 2).as_bytes()), Some(&value), &[]).unwrap();
        let mut batch = Vec::new();
        writer.finish(&mut batch).unwrap();
        if bytes + batch.len() as u64 > i32::MAX as u64 {
            break;
        }
        // The rest are zeros, which need not be written.
        assert!(batch[128..].iter().all(|byte| *byte == 0));
        std::os::unix::fs::FileExt::write_all_at(&file, &batch[..128], bytes).unwrap();
        (bytes, batches) = (bytes + batch.len() as u64, batches + 1);
        file.set_len(bytes).unwrap();
    }
    assert!(bytes > 2_000_000_000);
    let log = Log::open(&path, LogOptions::new().segment_bytes(i32::MAX as u32).max_message_bytes(VALUE as u32 + 1000)).unwrap();
    assert!(log.recovery_report().is_sound() && log.end_offset() == batches, "{}", log.recovery_report());
    log.roll().unwrap();
    let report = keeplog::clean(&log, &CleanOptions::for_log(log.options(), T0), &()).unwrap();
    assert_eq!((report.bytes_read, report.records_read, report.records_kept, report.new_dirty), (bytes, batches, 2, batches));
    assert!(report.bytes_kept < 3 * VALUE as u64);
}

/// What is larger than the memory there is: an error that says so with its place, and neither the end of the process nor damage.
#[test]
fn what_there_is_no_memory_for_is_an_error_and_no_damage() {
    const SMALL: usize = 4 << 20;
    for codec in [Codec::None, Codec::Zstd, Codec::Lz4, Codec::Gzip, Codec::Snappy] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        let options = LogOptions::new().compression(codec).segment_bytes(64 << 20).max_message_bytes(64 << 20);
        let log = Log::open(&path, options.clone()).unwrap();
        for _ in 0..2 {
            log.append(&[Record::new("small", "v")], Durability::Buffered).unwrap();
            log.append(&[Record::new("large", vec![0; 16 << 20])], Durability::Synced).unwrap();
        }
        let told = |error: keeplog::Error, what: &str| {
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{codec:?}, {what}: {error:?}");
            assert!(error.path().is_some() && (error.position().is_some() || what == "opening"), "{codec:?}, {what}: {error:?}");
            assert!(error.to_string().contains("memory"), "{codec:?}, {what}: {error:?}");
        };
        with_no_more_than(SMALL, || {
            let mut records = log.read_from(0).unwrap();
            assert_eq!(records.next().unwrap().unwrap().key().unwrap(), "small");
            told(records.next().unwrap().unwrap_err(), "reading");
        });
        log.roll().unwrap();
        let clean = || keeplog::clean(&log, &CleanOptions::for_log(log.options(), T0), &());
        told(with_no_more_than(SMALL, || clean().unwrap_err()), "cleaning");
        assert_eq!(log.read_from(0).unwrap().map(Result::unwrap).count(), 4, "all is there");
        log.append(&[Record::new("large", vec![0; 16 << 20])], Durability::Synced).unwrap();
        if codec == Codec::None {
            // As a crash leaves it: the next open reads it.
            let killed = tempfile::tempdir().unwrap();
            let copy = killed.path().join("t-0");
            std::fs::create_dir(&copy).unwrap();
            let files = std::fs::read_dir(&path).unwrap().map(Result::unwrap);
            files.for_each(|file| _ = std::fs::copy(file.path(), copy.join(file.file_name())).unwrap());
            let open = || Log::open(&copy, options.clone());
            told(with_no_more_than(SMALL, || open().unwrap_err()), "opening");
            assert!(open().unwrap().recovery_report().is_sound(), "nothing was cut");
        }
        drop(log);
        let log = Log::open(&path, options).unwrap();
        log.roll().unwrap();
        assert_eq!((log.end_offset(), keeplog::clean(&log, &CleanOptions::for_log(log.options(), T0), &()).unwrap().records_kept), (5, 2));
    }
}

/// Zeros compress to nothing: what a chunk of them decompresses to is not kept.
#[test]
fn a_pass_over_batches_that_are_large_when_decompressed_holds_little() {
    for codec in [Codec::Zstd, Codec::Lz4, Codec::Gzip, Codec::Snappy] {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path().join("t-0"), LogOptions::new().compression(codec).segment_bytes(8 << 20)).unwrap();
        for i in 0..300 {
            log.append(&[Record::new(format!("key {}", i % 200), vec![0; 256 << 10]), Record::new("same", "1")], Durability::Buffered)
                .unwrap();
        }
        log.roll().unwrap();
        let mut options = CleanOptions::for_log(log.options(), T0);
        options.dedupe_buffer_bytes = 1 << 20;
        let (report, pass) = allocations(|| keeplog::clean(&log, &options, &()).unwrap());
        assert_eq!(report.records_kept, 201);
        assert!(pass.peak < 48 << 20, "{codec:?}: {} bytes for 75 MiB", pass.peak);
    }
}

/// Bytes of the files below `dir`.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| if entry.metadata().unwrap().is_dir() { disk_bytes(&entry.path()) } else { entry.metadata().unwrap().len() }).sum()
}

/// Five minutes of commits, as counters: of all that was ever committed, the disk holds three times what is live at most, and
/// memory holds what it held after the first of many rounds over all keys.
#[test]
fn commits_without_end_take_neither_disk_nor_memory() {
    const GROUPS: usize = 200;
    const PARTITIONS: i32 = 100;
    const ROUNDS: u64 = 30;
    let dir = tempfile::tempdir().unwrap();
    let options = OffsetOptions::new()
        .offsets_commit_required_acks(RequiredAcks::Written)
        .offsets_topic_num_partitions(1)
        .offsets_topic_segment_bytes(256 << 10)
        .store(StoreOptions::new().background_thread(false));
    let offsets = OffsetStore::open(dir.path(), options).unwrap();
    let store = offsets.store();
    let log = store.log(CONSUMER_OFFSETS, 0).unwrap();
    let commit = |round: u64, group: usize| {
        let all: Vec<_> = (0..PARTITIONS).map(|partition| ("topic", partition, OffsetAndMetadata::new(round))).collect();
        offsets.commit(&format!("group {group}"), &all).unwrap();
    };
    let (mut live_bytes, mut disk_most, mut first, mut most) = (0, 0, 0, 0);
    let ((), _) = allocations(|| {
        for round in 0..ROUNDS {
            for group in 0..GROUPS {
                commit(round, group);
                if group % 20 == 0 {
                    disk_most = disk_most.max(disk_bytes(dir.path()));
                    store.housekeep();
                }
            }
            let held = SO_FAR.get().held;
            match round {
                0 => live_bytes = disk_bytes(dir.path()),
                1..6 => first = first.max(held),
                _ => most = most.max(held),
            }
        }
    });
    let appended = live_bytes * ROUNDS;
    assert!(live_bytes > 1 << 20 && log.end_offset() == ROUNDS * (GROUPS as u64) * PARTITIONS as u64);
    assert!(disk_most <= 3 * live_bytes, "{disk_most} bytes on the disk for {live_bytes} live ones, of {appended}");
    assert!(store.cleaner().passes > ROUNDS / 3, "{} passes", store.cleaner().passes);
    // What is held for each pass that was is a few numbers, and no more after many than after few.
    assert!(most <= first + first / 20, "{most} bytes of memory, {first} at first");
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
