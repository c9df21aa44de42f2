//! Field reports about the rate of passes, measured on a clock that goes on each time somebody looks at it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keeplog::inspect::storage::{Layer, MemoryStorage, Storage};
use keeplog::{CleanOptions, CleanOutcome, Durability, Log, LogOptions, Record, Store, StoreOptions, Watch};

use crate::disk::{T0, disk};

const MIB: u64 = 1 << 20;
const TICK_NS: u64 = 250_000;

/// Time passes by looking at the clock alone: what takes long on this machine takes no time, and a wait as long as it must.
#[derive(Debug)]
struct Ticking {
    below: Arc<MemoryStorage>,
    now_ns: AtomicU64,
}

impl Ticking {
    fn seconds(&self) -> f64 {
        self.now_ns.load(Ordering::SeqCst) as f64 / 1e9
    }
}

impl Layer for Ticking {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now_ns.fetch_add(TICK_NS, Ordering::SeqCst))
    }
}

fn open(clock: &Arc<Ticking>, bytes_per_second: u64) -> Store {
    let options = StoreOptions::new().log(LogOptions::new().segment_bytes(10 << 20)).background_thread(false).yield_to_appends(false);
    Store::open_with(clock.clone(), Path::new("/data"), options.log_cleaner_io_max_bytes_per_second(bytes_per_second)).unwrap()
}

/// A log of so many MiB, almost all of which is dead.
fn filled(store: &Store, topic: &str, mib: u64) -> Log {
    let log = store.log(topic, 0).unwrap();
    for i in 0..mib * 8 {
        log.append(&[Record::new(format!("key-{}", i % 5), "x".repeat(128 << 10))], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    log
}

/// Lets `work` run with waits that end as soon as their time has come on that clock.
fn awake<T>(store: &Store, work: impl FnOnce() -> T) -> T {
    store.log("other", 0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                drop(store.hold_cleaning("other", 0).unwrap()); // wakes all that wait
            }
        });
        let done_with = work();
        done.store(true, Ordering::Release);
        done_with
    })
}

/// Sets another rate when half of `of_bytes` is done; notes bytes and seconds at that moment.
struct Half<'a> {
    store: &'a Store,
    clock: &'a Ticking,
    of_bytes: u64,
    then: u64,
    bytes: AtomicU64,
    at: Mutex<Option<(u64, f64)>>,
}

impl Watch for Half<'_> {
    fn charge(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        let mut at = self.at.lock().unwrap();
        if before >= self.of_bytes / 2 && at.is_none() {
            *at = Some((before, self.clock.seconds()));
            self.store.set_cleaner_rate(self.then).unwrap();
        }
    }
}

/// No faster, and not much slower: those who wait look at the clock now and then, each of which costs time on it.
fn assert_rate(bytes: u64, seconds: f64, mib_per_second: f64) {
    let measured = bytes as f64 / MIB as f64 / seconds;
    assert!((0.6..1.1).contains(&(measured / mib_per_second)), "{measured:.1} MiB/s, and {mib_per_second} are set");
}

/// 200 MiB at 10 MiB/s, from the middle on at 50 MiB/s; by one thread and by four.
#[test]
fn b16_a_pass_keeps_to_its_rate_and_takes_a_new_one_half_way() {
    for threads in [1, 4] {
        let clock = Arc::new(Ticking { below: disk(), now_ns: AtomicU64::new(0) });
        let store = open(&clock, 10 * MIB);
        let log = filled(&store, "t", 200);
        let (of_bytes, then) = (200 * MIB, 50 * MIB);
        let watch = Half { store: &store, clock: &clock, of_bytes, then, bytes: AtomicU64::new(0), at: Mutex::default() };
        let options = CleanOptions::for_log(log.options(), T0).threads(threads);
        let began = clock.seconds();
        let report = awake(&store, || store.clean_with(&log, &options, &watch).unwrap());
        let ended = clock.seconds();
        assert_eq!((report.outcome, report.records_kept), (CleanOutcome::Cleaned, 5));
        let (bytes, (half, at)) = (watch.bytes.into_inner(), watch.at.into_inner().unwrap().unwrap());
        assert!(bytes >= of_bytes);
        assert_rate(half, at - began, 10.0);
        assert_rate(bytes - half, ended - at, 50.0);

        // What was set is what the application keeps: given to the next open, it counts from the start.
        let kept = store.cleaner_settings().log_cleaner_io_max_bytes_per_second;
        assert_eq!(kept, then);
        store.close().unwrap();
        drop((log, store));
        let store = open(&clock, kept);
        let log = filled(&store, "t", 50);
        let began = clock.seconds();
        let report = awake(&store, || store.clean(&log).unwrap());
        assert_rate(report.bytes_read + report.bytes_written, clock.seconds() - began, 50.0);
    }
}

/// Two passes at the same time have one rate together.
#[test]
fn b16_all_passes_share_one_rate() {
    let clock = Arc::new(Ticking { below: disk(), now_ns: AtomicU64::new(0) });
    let store = open(&clock, 10 * MIB);
    let logs = [filled(&store, "a", 20), filled(&store, "b", 20)];
    let began = clock.seconds();
    let bytes = awake(&store, || {
        std::thread::scope(|scope| {
            let passes = logs.each_ref().map(|log| scope.spawn(|| store.clean(log).unwrap()));
            passes.map(|pass| pass.join().unwrap()).iter().map(|report| report.bytes_read + report.bytes_written).sum()
        })
    });
    assert_rate(bytes, clock.seconds() - began, 10.0);
}
