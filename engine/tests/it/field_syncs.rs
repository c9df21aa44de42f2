//! What went wrong elsewhere while segments were closed, synced or removed beside those who use them: part (f) of
//! docs/FIELD_REPORTS.md, with the threads of a real machine.

use std::collections::BTreeMap;
use std::io::ErrorKind::Other;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{CleanupPolicy, DataDir, ErrorKind, Log, TopicPartition};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{LOG, all, append, append_synced, disk, files, open, open_on, small, text, values};

fn fill(log: &Log, records: u64) {
    (0..records).for_each(|i| _ = append(log, &format!("{i:0100}")).unwrap());
}

/// A storage whose writes take long, and on which each segment says who writes to it.
#[derive(Debug)]
struct Slow {
    below: Arc<MemoryStorage>,
    segments: Arc<Mutex<BTreeMap<PathBuf, Written>>>,
}

#[derive(Debug, Default)]
struct Written {
    is_under_way: bool,
    end: u64,
    is_closed: bool,
}

impl Layer for Slow {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn File>> {
        if path.extension().is_some_and(|e| e == "index") && mode != OpenMode::Read {
            // A segment's indexes are written when it is closed.
            let mut segments = self.segments.lock().unwrap();
            let written = segments.entry(path.with_extension("log")).or_default();
            assert!(!written.is_under_way, "{} is closed while it is written to", path.display());
            written.is_closed = true;
        }
        let file = SlowFile { below: self.below.open(path, mode)?, path: path.to_owned(), segments: Arc::clone(&self.segments) };
        Ok(Arc::new(file))
    }
}

#[derive(Debug)]
struct SlowFile {
    below: Arc<dyn File>,
    path: PathBuf,
    segments: Arc<Mutex<BTreeMap<PathBuf, Written>>>,
}

impl FileLayer for SlowFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> std::io::Result<usize> {
        if self.path.extension().is_none_or(|e| e != "log") {
            return self.below.write_at(bytes, position);
        }
        let note = |is_under_way: bool, end: u64| {
            let mut segments = self.segments.lock().unwrap();
            let written = segments.entry(self.path.clone()).or_default();
            assert!(!written.is_closed, "{} is written to after it was closed", self.path.display());
            assert_ne!(written.is_under_way, is_under_way, "two writes to one segment");
            assert!(
                !is_under_way || written.end == position,
                "a write at {position}, where {} ends at {}",
                self.path.display(),
                written.end
            );
            (written.is_under_way, written.end) = (is_under_way, end);
        };
        note(true, position);
        (0..position % 700 + 100).for_each(|_| std::hint::spin_loop());
        let base: u64 = self.path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        assert!(u64::from_be_bytes(bytes[..8].try_into().unwrap()) >= base, "of another segment");
        let written = self.below.write_at(bytes, position)?;
        note(false, position + written as u64);
        Ok(written)
    }
}

/// Slow writes, segments that hold little, and 32 appenders: each write is where the index says, in the segment that it was
/// given; a closed segment has none under way, and gets none any more.
#[test]
fn f08_a_roll_takes_no_write_under_way_with_it() {
    let disk = disk();
    let segments = Arc::default();
    let storage = Arc::new(Slow { below: Arc::clone(&disk), segments: Arc::clone(&segments) });
    let log = Log::open_with(storage, Path::new(LOG), small()).unwrap();
    let placed: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..32_usize)
            .map(|worker| {
                let log = &log;
                scope.spawn(move || {
                    let one = |i: usize| format!("{worker} {i} {}", "v".repeat(i * 13 % 300));
                    (0..100).map(|i| (append(log, &one(i)).unwrap(), one(i))).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    for (offset, value) in &placed {
        let found = text(&log.read_from(*offset).unwrap().next().unwrap().unwrap());
        assert_eq!((found.0, found.2.as_ref()), (*offset, Some(value)));
    }
    let set = log.segments();
    {
        let segments = segments.lock().unwrap();
        assert!(set.sealed().len() > 100);
        assert!(set.sealed().iter().all(|s| segments[&s.path()].is_closed && segments[&s.path()].end == s.size_bytes()));
        assert!(!segments[&set.active().path()].is_closed);
    }
    log.close().unwrap();
    let log = open(&disk, small());
    assert_eq!((all(&log).len(), log.recovery_report().rebuilt.len()), (32 * 100, 0));
}

/// Holds one sync of a segment until it is let go.
#[derive(Debug)]
struct Gate {
    below: Arc<Shim>,
    state: Arc<(Mutex<Held>, Condvar)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Held {
    #[default]
    Nobody,
    TheNext,
    One,
}

impl Gate {
    fn set(&self, held: Held) {
        *self.state.0.lock().unwrap() = held;
        self.state.1.notify_all();
    }

    fn wait_until(&self, held: Held) {
        // The time limit only ends a test that hangs.
        let guard = self.state.0.lock().unwrap();
        let (_guard, waited) = self.state.1.wait_timeout_while(guard, Duration::from_secs(60), |now| *now != held).unwrap();
        assert!(!waited.timed_out());
    }
}

impl Layer for Gate {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn File>> {
        let file = Storage::open(&*self.below, path, mode)?;
        let is_log = path.extension().is_some_and(|e| e == "log");
        Ok(if is_log { Arc::new(GateFile { below: file, state: Arc::clone(&self.state) }) } else { file })
    }
}

#[derive(Debug)]
struct GateFile {
    below: Arc<dyn File>,
    state: Arc<(Mutex<Held>, Condvar)>,
}

impl FileLayer for GateFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn sync_data(&self) -> std::io::Result<()> {
        let (held, changed) = &*self.state;
        let mut now = held.lock().unwrap();
        if *now == Held::TheNext {
            *now = Held::One;
            changed.notify_all();
            drop(changed.wait_while(now, |now| *now == Held::One).unwrap());
        } else {
            drop(now);
        }
        self.below.sync_data()
    }
}

/// A sync of closed segments is under way when they are removed, the log is truncated, or closed and deleted: what is gone is
/// passed over without a word.
#[test]
fn f10_a_sync_under_way_passes_over_what_goes_beneath_it() {
    for what in ["retention", "truncation", "close", "deletion"] {
        let gate = Arc::new(Gate { below: Shim::over(&disk()), state: Arc::default() });
        let data_dir = Arc::new(DataDir::open_or_create(Arc::clone(&gate) as Arc<dyn Storage>, Path::new("/data")).unwrap());
        let name = TopicPartition::new("t", 0).unwrap();
        let log = Log::open_in(&data_dir, &name, small().cleanup_policy(CleanupPolicy::Delete)).unwrap();
        fill(&log, 100);
        assert!(log.segments().sealed().len() >= 3);
        gate.set(Held::TheNext);
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| log.sync());
            gate.wait_until(Held::One);
            match what {
                "retention" => {
                    log.advance_start(90).unwrap();
                    assert!(log.apply_retention().unwrap().segments >= 2);
                    assert!(log.segments().all()[0].base_offset() > 0);
                }
                "truncation" => log.truncate_to(5).unwrap(),
                _ => {
                    let closing = scope.spawn(|| log.close());
                    gate.set(Held::Nobody);
                    closing.join().unwrap().unwrap();
                    if what == "deletion" {
                        data_dir.remove(&name).unwrap();
                    }
                }
            }
            gate.set(Held::Nobody);
            let synced = syncing.join().unwrap();
            assert!(synced.is_ok(), "{what}: {synced:?}");
        });
        let end = log.end_offset();
        match what {
            "close" | "deletion" => assert_eq!(append(&log, "late").unwrap_err().kind(), ErrorKind::Closed),
            _ => assert_eq!((append_synced(&log, "next").unwrap(), log.recovery_point()), (end, end + 1), "{what}"),
        }
        let names = files_below_log(&gate);
        assert_eq!(names.is_empty(), what == "deletion", "{names:?}");
        assert!(names.iter().all(|name| !name.contains(".deleted")), "{names:?}");
    }
}

fn files_below_log(gate: &Gate) -> Vec<String> {
    if gate.below.live().metadata(Path::new(LOG)).is_err() { Vec::new() } else { files(&gate.below.live()) }
}

/// Segments that wait for their sync are removed before it comes, by retention or truncation. A real error is told.
#[test]
fn f10_a_late_sync_passes_over_what_is_gone() {
    let shim = Shim::over(&disk());
    let log = open_on(&shim, small().cleanup_policy(CleanupPolicy::Delete)).unwrap();
    fill(&log, 100);
    log.advance_start(60).unwrap();
    assert!(log.apply_retention().unwrap().segments > 0);
    log.sync().unwrap();
    fill(&log, 100);
    log.truncate_to(70).unwrap();
    log.sync().unwrap();
    assert_eq!(log.recovery_point(), 70);
    fill(&log, 100);
    shim.set_rule(|call, path| if call == Call::Sync && path.starts_with(LOG) { Verdict::Fail(Other) } else { Verdict::Go });
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Io);
    shim.heal();
    assert_eq!(log.close().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Poisoned);
}

/// Sixteen that append and flush, syncs that take now longer and now shorter, and one that fails: the durable offset only rises,
/// and whenever the power fails, all below it is there.
#[test]
fn f15_the_durable_offset_only_rises() {
    for fails_at in [5, 60, usize::MAX] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        let mut syncs = 0_usize;
        shim.set_rule(move |call, path| {
            if call != Call::Sync || !path.to_string_lossy().ends_with(".log") {
                return Verdict::Go;
            }
            syncs += 1;
            (0..syncs.wrapping_mul(0x9e37_79b9) % 5000).for_each(|_| std::hint::spin_loop());
            if syncs == fails_at { Verdict::Fail(Other) } else { Verdict::Go }
        });
        let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let (mut last, mut images) = (0, 0);
                while !done.load(Ordering::Acquire) || images == 0 {
                    let point = log.recovery_point();
                    assert!(point >= last && point <= log.end_offset(), "{last}, then {point}");
                    if point > last && images < 20 {
                        images += 1;
                        assert!(open(&shim.after_power_cut(), small()).end_offset() >= point, "{point} was not synced");
                    }
                    last = point;
                }
            });
            let flusher = |worker: u64| {
                let (log, acknowledged) = (&log, &acknowledged);
                move || {
                    for i in 0..60 {
                        let flushed = match (worker + i) % 3 {
                            0 => append_synced(log, "v"),
                            _ => append(log, &"v".repeat(100)).and_then(|offset| log.sync().map(|()| offset)),
                        };
                        match flushed {
                            Ok(offset) => _ = acknowledged.fetch_max(offset + 1, Ordering::AcqRel),
                            Err(error) => return assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{error:?}"),
                        }
                    }
                }
            };
            let workers: Vec<_> = (0..16).map(|worker| scope.spawn(flusher(worker))).collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Release);
            watching.join().unwrap();
        });
        let (point, acknowledged) = (log.recovery_point(), acknowledged.into_inner());
        assert!(point >= acknowledged && (point == log.end_offset() || fails_at < usize::MAX));
        let image = shim.after_power_cut();
        drop(log);
        let log = open(&image, small());
        assert!(log.end_offset() >= point && log.recovery_report().is_sound(), "{point}: {}", log.recovery_report());
    }
}

/// Rolls, appends and a close at the same instant, on a hundred thousand logs: what was appended is there, nothing comes after, and
/// nobody holds on to the storage.
#[test]
fn f19_a_close_takes_the_last_batch_with_it() {
    const ROUNDS: usize = 10_000;
    const LOGS: usize = 10;
    let barrier = Barrier::new(3);
    let logs: Mutex<Vec<Log>> = Mutex::default();
    let appended: [AtomicU64; LOGS] = std::array::from_fn(|_| AtomicU64::new(0));
    // From one log to the next, as fast as each can.
    let on_each = |work: &dyn Fn(usize, &Log)| {
        barrier.wait();
        let all = logs.lock().unwrap().clone();
        all.iter().enumerate().for_each(|(at, log)| work(at, log));
        drop(all);
        barrier.wait();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let append_some = |at: usize, log: &Log| {
                for _ in (0..3).take_while(|_| append(log, "v").is_ok()) {
                    appended[at].fetch_add(1, Ordering::AcqRel);
                }
            };
            (0..ROUNDS).for_each(|_| on_each(&append_some));
        });
        scope.spawn(|| (0..ROUNDS).for_each(|_| on_each(&|_, log| while log.roll().is_ok() && log.end_offset() < 3 {})));
        for round in 0..ROUNDS {
            let disks: [_; LOGS] = std::array::from_fn(|_| disk());
            *logs.lock().unwrap() = disks.iter().map(|disk| open(disk, small())).collect();
            appended.iter().for_each(|count| count.store(0, Ordering::Release));
            on_each(&|at, log| {
                (0..(round + at) % 50).for_each(|_| std::hint::spin_loop());
                log.close().unwrap();
            });
            let closed = std::mem::take(&mut *logs.lock().unwrap());
            closed.iter().for_each(|log| assert_eq!(append(log, "late").unwrap_err().kind(), ErrorKind::Closed));
            drop(closed);
            for (disk, appended) in disks.iter().zip(&appended) {
                assert_eq!(Arc::strong_count(disk), 1, "somebody is still at work");
                let log = open(disk, small());
                assert!(log.recovery_report().clean);
                assert_eq!(log.end_offset(), appended.load(Ordering::Acquire), "round {round}");
                assert_eq!(values(&log).len() as u64, log.end_offset());
            }
        }
    });
}
