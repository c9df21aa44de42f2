//! What went wrong elsewhere when several did something at once: part (f) of docs/FIELD_REPORTS.md. Schedules are explored in
//! `fuzz/models`; here the threads of a real machine run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keeplog_engine::record::{BatchSpec, Record, TxnResult};
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{CleanupPolicy, Durability, ErrorKind, Log, TransactionEnd};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{LOG, T0, all, append, batch, disk, files, open, open_on, producer, small, text};

fn fill(log: &Log, records: u64) {
    (0..records).for_each(|i| _ = append(log, &format!("{i:0100}")).unwrap());
}

/// Retention comes while a rewrite of the same segments is about to swap: it leaves them, and each file goes once.
#[test]
fn f02_retention_and_a_rewrite_never_remove_the_same_file() {
    let shim = Shim::over(&disk());
    let log = open_on(&shim, small().cleanup_policy(CleanupPolicy::CompactDelete).retention_bytes(Some(4096))).unwrap();
    fill(&log, 100);
    let removed = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&removed);
    shim.set_rule(move |call, path| {
        if call == Call::Remove {
            seen.lock().unwrap().push(path.to_owned());
        }
        Verdict::Go
    });
    let rewrite = log.begin_rewrite().unwrap();
    let sources = rewrite.sources().sealed()[..2].to_vec();
    let end = rewrite.sources().all()[2].base_offset();
    let mut output = rewrite.create_output(0).unwrap();
    for batch in log.batches_from(0).unwrap().map(Result::unwrap).take_while(|b| b.header.base_offset < end) {
        output.append(&batch.bytes).unwrap();
    }
    let output = output.seal(T0).unwrap();
    assert_eq!(log.apply_retention().unwrap().segments, 0, "a pass is under way");
    rewrite.swap(&sources, vec![output]).unwrap();
    drop((sources, rewrite));
    assert!(log.apply_retention().unwrap().segments > 1);
    assert!(log.start_offset() >= end);
    let gone: Vec<_> = removed.lock().unwrap().iter().filter(|path| path.to_string_lossy().ends_with(".log.deleted")).cloned().collect();
    // The first name twice: that of the source, and that of the output in its place.
    assert_eq!(gone.iter().filter(|path| path.ends_with("00000000000000000000.log.deleted")).count(), 2, "{gone:?}");
    let mut others: Vec<_> = gone.iter().filter(|path| !path.ends_with("00000000000000000000.log.deleted")).collect();
    let count = others.len();
    others.dedup();
    assert_eq!(others.len(), count);
    assert!(files(&shim.live()).iter().all(|name| !name.contains(".deleted")));
    assert_eq!(all(&log).len() as u64, 100 - log.start_offset());
}

/// Transactions begin and end in a loop, and readers stand at the end: nothing unstable comes out, and the end is in range.
#[test]
fn f06_readers_at_the_moving_end_see_no_unstable_record() {
    let log = open(&disk(), small());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut next = 0;
                while !done.load(Ordering::Acquire) {
                    for record in log.read_committed_from(next).unwrap() {
                        let record = record.unwrap();
                        assert!(text(&record).2.unwrap() != "aborted" && record.offset() >= next);
                        next = record.offset() + 1;
                    }
                    assert!(log.read_from(log.end_offset()).is_ok(), "the end is never out of range");
                    assert!(log.last_stable_offset() <= log.end_offset());
                }
            });
        }
        for sequence in 0..300 {
            let aborts = sequence % 3 == 0;
            let spec = BatchSpec { transactional: true, ..producer(7, 0, sequence) };
            log.append_batch(batch(spec, &[("k", Some(if aborts { "aborted" } else { "committed" }))]), Durability::Buffered).unwrap();
            let result = if aborts { TxnResult::Aborted } else { TxnResult::Committed };
            let end = TransactionEnd { producer_id: 7, producer_epoch: 0, result, coordinator_epoch: 0 };
            log.end_transaction(&end, Durability::Buffered).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(log.read_committed_from(0).unwrap().count(), 200);
}

/// A roll with every append: whoever looks finds offsets, segments and sizes of one moment.
#[test]
fn f07_offset_segment_and_position_change_together() {
    let log = open(&disk(), small());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let end = log.end_offset();
                    let set = log.segments();
                    let bases: Vec<_> = set.all().iter().map(|s| s.base_offset()).collect();
                    assert!(bases.is_sorted_by(|a, b| a < b), "{bases:?}");
                    // What was published by then is in the segments: the last one may have come after.
                    let held: u64 = set.all().iter().map(|s| s.size_bytes()).sum();
                    assert!(held >= end.saturating_sub(1) * 70, "{held} bytes up to offset {end}");
                    if end > 0 {
                        let last = log.read_from(end - 1).unwrap().next().unwrap().unwrap();
                        assert_eq!(last.offset(), end - 1);
                    }
                }
            });
        }
        for _ in 0..400 {
            append(&log, "v").unwrap();
            log.roll().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!((log.segments().all().len(), all(&log).len()), (401, 400));
}

/// The active segment is replaced while it is empty, again and again: there always is one.
#[test]
fn f09_there_is_never_no_segment() {
    let log = open(&disk(), small());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                assert!(!log.segments().all().is_empty());
                assert!(log.read_from(log.start_offset()).unwrap().all(|record| record.is_ok()));
            }
        });
        let mut offset = 0;
        for _ in 0..200 {
            log.roll().unwrap();
            log.roll().unwrap();
            // Too far for the empty one: another takes its place.
            offset += 1 << 32;
            log.append_as_follower(&batch(BatchSpec { base_offset: offset, ..BatchSpec::default() }, &[("k", None)]), Durability::Buffered)
                .unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(all(&log).len(), 200);
}

/// A hundred segments, of which the first 37 go: by age, by size, by the start. The active one never.
#[test]
fn f12_exactly_the_oldest_segments_go() {
    for rule in ["age", "size", "start", "all"] {
        let disk = disk();
        let options = small().cleanup_policy(CleanupPolicy::Delete).retention_ms(None);
        let log = open(&disk, options.clone());
        for i in 0..100 {
            log.append(&[Record::new("k", format!("{i:0100}")).timestamp_ms(T0 + i * 1000)], Durability::Synced).unwrap();
            log.roll().unwrap();
        }
        let size = log.segments().all()[0].size_bytes();
        log.close().unwrap();
        disk.set_now_ms(T0 + 100_000);
        let log = match rule {
            "age" => open(&disk, options.retention_ms(Some(100_000 - 36_500))),
            "size" => open(&disk, options.retention_bytes(Some(63 * size))),
            "start" => open(&disk, options),
            _ => open(&disk, options.retention_ms(Some(0))),
        };
        if rule == "start" {
            log.advance_start(37).unwrap();
        }
        let reader = log.read_from(log.start_offset()).unwrap();
        let gone = if rule == "all" { 100 } else { 37 };
        assert_eq!(log.apply_retention().unwrap().segments, gone, "{rule}");
        let left: Vec<_> = log.segments().all().iter().map(|s| s.base_offset()).collect();
        assert_eq!(left, (gone as u64..=100).collect::<Vec<_>>(), "{rule}");
        assert_eq!(reader.count(), if rule == "start" { 63 } else { 100 }, "who has begun reads on");
        let names = files(&disk);
        assert_eq!(names.iter().filter(|name| name.ends_with(".log")).count(), 101 - gone, "{names:?}");
        assert!(names.iter().all(|name| !name.ends_with(".deleted")), "{names:?}");
        assert_eq!((log.start_offset(), log.end_offset()), (gone as u64, 100));
        append(&log, "next").unwrap();
    }
}

/// Readers that rest in the middle hold up neither truncation nor retention; what they read next is of their own moment.
#[test]
fn f13_resting_readers_hold_nothing_up() {
    let log = open(&disk(), small());
    fill(&log, 200);
    let readers: Vec<_> = (0..100)
        .map(|i| {
            let mut reader = log.read_from(i).unwrap();
            reader.next().unwrap().unwrap();
            (i, reader)
        })
        .collect();
    log.truncate_to(50).unwrap();
    (0..10).for_each(|_| _ = append(&log, "new").unwrap());
    assert_eq!(all(&log).len(), 60);
    assert_eq!(all(&log)[50].2.as_deref(), Some("new"));
    for (i, reader) in readers {
        let rest: Vec<_> = reader.map(|record| text(&record.unwrap())).collect();
        assert!(rest.len() as u64 >= 199 - i && rest.iter().all(|record| record.2.as_deref() != Some("new")), "reader {i}: {}", rest.len());
    }
}

/// Reads of one file that begin only once so many of them are under way.
#[derive(Debug)]
struct Together {
    below: Arc<MemoryStorage>,
    readers: Arc<(Mutex<usize>, Condvar)>,
}

const READERS: usize = 8;

impl Layer for Together {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn File>> {
        Ok(Arc::new(TogetherFile { below: self.below.open(path, mode)?, readers: Arc::clone(&self.readers) }))
    }
}

#[derive(Debug)]
struct TogetherFile {
    below: Arc<dyn File>,
    readers: Arc<(Mutex<usize>, Condvar)>,
}

impl FileLayer for TogetherFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> std::io::Result<usize> {
        let (count, changed) = &*self.readers;
        let mut under_way = count.lock().unwrap();
        if *under_way > 0 {
            *under_way += 1;
            changed.notify_all();
            // The time limit only ends a test that hangs.
            let (_held, waited) = changed.wait_timeout_while(under_way, Duration::from_secs(60), |count| *count <= READERS).unwrap();
            assert!(!waited.timed_out(), "one read waits for another");
        }
        self.below.read_at(buffer, position)
    }
}

/// Also on the active segment, which is read and not mapped, no reader waits for another.
#[test]
fn f14_readers_of_one_file_are_under_way_at_once() {
    let readers = Arc::new((Mutex::new(0), Condvar::new()));
    let storage = Arc::new(Together { below: disk(), readers: Arc::clone(&readers) });
    let log = Log::open_with(storage, Path::new(LOG), small()).unwrap();
    fill(&log, 20);
    *readers.0.lock().unwrap() = 1;
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| assert_eq!(log.read_from(0).unwrap().count(), 20));
        }
    });
    assert!(*readers.0.lock().unwrap() > READERS);
}

/// Lets a thread that looks at it end, also where the one that it works beside has panicked.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The tightest retention there is, beside appends: it takes whole segments, and never leaves a start above the end, also where
/// the power fails; and no such start is taken.
#[test]
fn f16_retention_never_passes_what_is_appended() {
    for options in [small().retention_ms(Some(0)), small().retention_ms(None).retention_bytes(Some(0))] {
        let memory = disk();
        memory.set_now_ms(T0 + 1);
        let shim = Shim::over(&memory);
        let log = open_on(&shim, options.clone().cleanup_policy(CleanupPolicy::Delete)).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    log.apply_retention().unwrap();
                    let start = log.start_offset();
                    assert!(start <= log.end_offset());
                    let refused = log.advance_start(log.end_offset() + 1000).unwrap_err();
                    assert_eq!((refused.kind(), log.start_offset() >= start), (ErrorKind::OutOfRange, true));
                }
            });
            let _ends = SetOnDrop(&done);
            for i in 0..400 {
                let offset = append(&log, &format!("{i:0100}")).unwrap();
                match log.read_from(offset).map(|mut records| records.next()) {
                    Ok(Some(record)) => assert_eq!(record.unwrap().offset(), offset),
                    Ok(None) => assert!(log.start_offset() > offset, "{offset} is not there"),
                    Err(error) => assert!(error.kind() == ErrorKind::OutOfRange && log.start_offset() > offset, "{error}"),
                }
                if i % 40 == 20 {
                    let start = log.start_offset();
                    let log = open(&shim.after_power_cut(), options.clone());
                    assert!(log.start_offset() <= log.end_offset() && log.end_offset() >= start, "{}", log.recovery_report());
                }
            }
        });
        log.apply_retention().unwrap();
        assert!(log.start_offset() > 300);
        assert_eq!((log.end_offset(), all(&log).len() as u64), (400, 400 - log.start_offset()));
    }
}

/// Hundreds of segments are removed, and the log is closed: no call of the close has to do with them.
#[test]
fn f17_closing_after_many_removals_has_nothing_to_wait_for() {
    let mut closing = Vec::new();
    for segments in [1, 300] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        for _ in 0..segments {
            append(&log, "v").unwrap();
            log.roll().unwrap();
        }
        append(&log, "last").unwrap();
        log.sync().unwrap();
        log.advance_start(segments).unwrap();
        assert_eq!(log.apply_retention().unwrap().segments as u64, segments);
        let calls = shim.count(|_, _| true);
        log.close().unwrap();
        closing.push(*calls.lock().unwrap());
    }
    assert_eq!(closing[0], closing[1]);
}

/// While a reader holds it, a removed segment has other names, and then none: all four of its files.
#[test]
fn f18_all_files_of_a_removed_segment_go() {
    let disk = disk();
    let log = open(&disk, small());
    log.append_batch(batch(BatchSpec { transactional: true, ..producer(7, 0, 0) }, &[("t", Some("1"))]), Durability::Buffered).unwrap();
    let end = TransactionEnd { producer_id: 7, producer_epoch: 0, result: TxnResult::Aborted, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Buffered).unwrap();
    log.roll().unwrap();
    append(&log, "next").unwrap();
    let of_first = |suffix: &str| {
        let named = |name: &String| name.starts_with(&format!("{:020}.", 0)) && name.ends_with(suffix);
        files(&disk).iter().filter(|name| named(name)).count()
    };
    let kinds = [".log", ".index", ".timeindex", ".txnindex"];
    assert!(kinds.iter().all(|kind| of_first(kind) == 1), "{:?}", files(&disk));
    let reader = log.read_committed_from(0).unwrap();
    log.advance_start(2).unwrap();
    log.apply_retention().unwrap();
    assert!(kinds.iter().all(|kind| of_first(kind) == 0 && of_first(&format!("{kind}.deleted")) == 1), "{:?}", files(&disk));
    assert_eq!(reader.count(), 1, "the aborted one is still known as such");
    assert_eq!(of_first(""), 0, "{:?}", files(&disk));
    log.close().unwrap();
}

/// Buffers are used again, after failures too: no byte of one batch, or of another log, is found in the next.
#[test]
fn f20_no_byte_of_another_batch_is_ever_found() {
    let logs = [open(&disk(), small()), open(&disk(), small())];
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let log = &logs[worker % 2];
            scope.spawn(move || {
                for i in 0..100 {
                    let pattern = format!("{}", worker % 2).repeat(20 + i * 7 % 200);
                    if i % 5 == 0 {
                        // Too large: what was built of it must not be seen again.
                        let large = Record::new("k", "x".repeat(5000));
                        assert_eq!(log.append(&[large], Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
                        let wrong = [Record::new("k", "x".repeat(50)), Record::new("k", "v").timestamp_ms(-5)];
                        assert_eq!(log.append(&wrong, Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
                    }
                    log.append(&[Record::new("k", pattern.clone()), Record::new("k", pattern)], Durability::Buffered).unwrap();
                }
            });
        }
    });
    for (own, log) in ["0", "1"].into_iter().zip(&logs) {
        let records = all(log);
        assert_eq!(records.len(), 800);
        assert!(records.iter().all(|(_, key, value)| key == "k" && value.as_ref().unwrap().chars().all(|c| own.contains(c))));
    }
}
