//! What allocates, and how much: its own binary, for it counts with the allocator of the whole process.
#![allow(clippy::disallowed_methods)] // it looks at files behind the back of the engine

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::record::{BatchSpec, BatchWriter, Decoder, Header};
use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog::{CleanOptions, Durability, Log, LogOptions, Record};

/// The system's allocator, counted by thread: tests run beside each other.
struct Counted;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Allocations {
    calls: usize,
    largest: usize,
}

thread_local! {
    static SO_FAR: Cell<Allocations> = const { Cell::new(Allocations { calls: 0, largest: 0 }) };
}

fn note(bytes: usize) {
    let so_far = SO_FAR.get();
    SO_FAR.set(Allocations { calls: so_far.calls + 1, largest: so_far.largest.max(bytes) });
}

// SAFETY: every call goes to the system's allocator as it is; counting touches nothing of it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's own promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: the caller's own promise.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
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

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
