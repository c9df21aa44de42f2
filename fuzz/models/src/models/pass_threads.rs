//! Several threads on one pass: what stays is what one thread would keep, and a pass that is stopped or fails ends for all; also
//! where what is finished is swapped at once.

use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, Watch, clean};
use keeplog_engine::{Durability, Log};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{any, check_no_leftovers, open, read_all, record};

/// A pass on three threads, of one batch a chunk, beside one who appends; then one that is stopped somewhere.
pub(super) const MODEL: Model = Model { name: "pass-threads", claim: "threads of a pass keep what one would, and stop together", run };

const RECORDS: u64 = 9;

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    for number in 0..RECORDS {
        let key = (number % 4).to_string();
        log.append(&[record(key, number.to_string())], Durability::Buffered).expect("it is appended");
        if number % 3 == 2 {
            log.roll().expect("it rolls");
        }
    }

    let watch = Impatient { after: any(9), asked: AtomicU32::new(0), wants_room: any(2) == 1 };
    let before = read_all(&log);
    let stopped = clean(&log, &options(&log, 3), &watch).expect("stopping is no failure");
    if stopped.outcome == CleanOutcome::Stopped {
        let after = read_all(&log);
        if watch.wants_room {
            assert!(after.ends_with(&before[before.len() - 4..]), "the newest records of all keys stay");
            assert!(after.iter().all(|seen| before.contains(seen)));
        } else {
            assert_eq!(after, before, "a pass that was stopped leaves the log as it was");
        }
        check_no_leftovers(&disk);
    }
    // What the first one took away, if it came to its end, is missing from both.
    let alone = clean(&log, &options(&log, 1).dry_run(true), &()).expect("it can be read");
    let watch = Impatient { after: u32::MAX, ..watch };
    let together = thread::scope(|scope| {
        let cleaning = scope.spawn(|| clean(&log, &options(&log, 3), &watch));
        scope.spawn(|| log.append(&[record("0", RECORDS.to_string())], Durability::Buffered).expect("it is appended"));
        cleaning.join().expect("it does not panic")
    });
    let together = together.expect("it can be cleaned");
    assert_eq!(counts(&together), counts(&alone));
    let offsets: Vec<u64> = read_all(&log).iter().map(|seen| seen.offset).collect();
    assert_eq!(offsets, [5, 6, 7, 8, 9]);
    check_no_leftovers(&disk);
}

fn options(log: &Log, threads: usize) -> CleanOptions {
    // Each batch is a chunk, what stays of some is held, of others read again, and not all keys may fit into the set.
    let options = CleanOptions::for_log(log.options(), log.storage().now_ms()).chunk_bytes(1).threads(threads);
    // Each segment is a group, or they become one.
    let options = if any(2) == 0 { options } else { options.segment_bytes(1) };
    options.held_bytes_max(u64::from(any(3)) * 100).dedupe_keys_max([None, Some(3)][any(2) as usize])
}

fn counts(report: &CleanReport) -> [u64; 6] {
    let CleanReport { new_dirty, bytes_read, bytes_kept, records_read, records_kept, map_size, .. } = *report;
    [new_dirty, bytes_read, bytes_kept, records_read, records_kept, map_size]
}

/// Stops a pass after some questions.
struct Impatient {
    after: u32,
    asked: AtomicU32,
    wants_room: bool,
}

impl Watch for Impatient {
    fn wants_room(&self) -> bool {
        self.wants_room
    }

    fn is_stopped(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst) >= self.after
    }
}
