//! Passes give way to appends, by a clock that the test makes.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keeplog::inspect::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog::{CleanReport, Durability, Log, LogOptions, Record, Store, StoreOptions};

const WRITE: Duration = Duration::from_micros(1);
const READ: Duration = Duration::from_micros(100);

/// A storage on which reads and writes take time, writes more of it beside a pass. In the middle of each read of a segment
/// somebody appends to another log.
#[derive(Debug)]
struct Busy {
    below: MemoryStorage,
    world: Arc<World>,
}

#[derive(Debug, Default)]
struct World {
    nanos: AtomicU64,
    /// How often the time was asked for and nothing else was done since: somebody waits for it to pass.
    waited: AtomicU64,
    /// A pass reads, and writes take ten times as long.
    is_disturbed: AtomicBool,
    /// What is appended to meanwhile, and how many records at each read.
    other: OnceLock<(Log, u64)>,
    reads: AtomicU64,
}

impl World {
    fn spend(&self, time: Duration) {
        self.waited.store(0, Ordering::SeqCst);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Layer for Busy {
    fn below(&self) -> &dyn Storage {
        &self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let below = self.below.open(path, mode)?;
        let world = Arc::clone(&self.world);
        let is_segment = mode == OpenMode::Read && path.extension().is_some_and(|extension| extension == "log");
        Ok(Arc::new(BusyFile { below, world, is_segment }))
    }

    fn monotonic(&self) -> Duration {
        if self.world.waited.fetch_add(1, Ordering::SeqCst) > 6 {
            self.world.nanos.fetch_add(100_000, Ordering::SeqCst);
        }
        Duration::from_nanos(self.world.nanos.load(Ordering::SeqCst))
    }
}

#[derive(Debug)]
struct BusyFile {
    below: Arc<dyn File>,
    world: Arc<World>,
    is_segment: bool,
}

impl FileLayer for BusyFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.world.spend(READ);
        if let Some((other, records)) = self.world.other.get().filter(|_| self.is_segment) {
            self.world.reads.fetch_add(1, Ordering::SeqCst);
            self.world.is_disturbed.store(true, Ordering::SeqCst);
            append(other, *records);
            self.world.is_disturbed.store(false, Ordering::SeqCst);
        }
        self.below.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.world.spend(if self.world.is_disturbed.load(Ordering::SeqCst) { 10 * WRITE } else { WRITE });
        self.below.write_at(bytes, position)
    }
}

fn append(log: &Log, records: u64) {
    (0..records).for_each(|i| _ = log.append(&[Record::new(format!("key {}", i % 10), "v".repeat(100))], Durability::Buffered).unwrap());
}

/// One pass over a log while another one is appended to: what it did, how much time was worked and rested, in seconds.
fn pass(prepare: impl FnOnce(&Store)) -> (CleanReport, f64, f64) {
    pass_beside(prepare, "other", 20)
}

/// The same, with so many records at each read for the log of this name.
fn pass_beside(prepare: impl FnOnce(&Store), name: &str, records: u64) -> (CleanReport, f64, f64) {
    let world = Arc::new(World::default());
    let options = StoreOptions::new().log(LogOptions::new().segment_bytes(65_536)).background_thread(false);
    let storage = Arc::new(Busy { below: MemoryStorage::new(), world: Arc::clone(&world) });
    let store = Store::open_with(storage, Path::new("/data"), options).unwrap();
    let (log, other) = (store.log("t", 0).unwrap(), store.log("other", 0).unwrap());
    append(&log, 20_000);
    log.roll().unwrap();
    append(&other, 1000);
    prepare(&store);
    assert!(world.other.set((store.log(name, 0).unwrap(), records)).is_ok());
    let began = world.nanos.load(Ordering::SeqCst);
    let report = store.clean(&log).unwrap();
    let (rested, reads) = (store.cleaner().rested_seconds, world.reads.load(Ordering::SeqCst));
    assert!(reads > 20, "{reads} reads");
    let took = Duration::from_nanos(world.nanos.load(Ordering::SeqCst) - began).as_secs_f64();
    (report, took - rested, rested)
}

#[test]
fn a_pass_rests_where_appends_take_longer_beside_it() {
    let (report, worked, rested) = pass(|_| ());
    assert_eq!(report.records_kept, 10, "and comes to its end");
    assert!(rested > worked, "appends took ten times as long: {rested} s of rest for {worked} s of work");
    assert!(rested <= 9.0 * worked, "a tenth of the time is the pass's: {rested} s of rest for {worked} s of work");
}

#[test]
fn a_pass_does_not_rest_while_its_own_log_grows_too_much() {
    let (_, worked, rested) = pass_beside(|_| (), "t", 20);
    assert!(rested > worked, "it grows a little: {rested} s of rest for {worked} s of work");
    let (report, worked, rested) = pass_beside(|_| (), "t", 1000);
    assert_eq!(report.records_kept, 10);
    assert!(rested < worked / 2.0, "it grows by as much as is read: {rested} s of rest for {worked} s of work");
}

#[test]
fn yield_to_appends() {
    let (report, _, rested) = pass(|store| store.set_cleaner(&store.cleaner_settings().yield_to_appends(false)).unwrap());
    assert_eq!((report.records_kept, rested.to_bits()), (10, 0.0_f64.to_bits()));
    let (_, _, rested) = pass(|store| {
        let settings = store.cleaner_settings();
        store.set_cleaner(&settings.clone().yield_to_appends(false)).unwrap();
        store.set_cleaner(&settings).unwrap();
    });
    assert!(rested > 0.0, "switched on again");
}
