//! Turns at changing segments: never two at once, given back on every path, a panic included.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keeplog_engine::{Durability, ErrorKind, Log, Segment};
use shuttle::thread;

use crate::disk::{Disk, step};
use crate::run::Model;
use crate::world::{allow, open, read_all, record};

/// Two rewrites, one of which panics, a truncation and retention.
pub(super) const MODEL: Model =
    Model { name: "turnstile", claim: "one rewrite, truncation or removal at a time; the turn always comes back", run };

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    for number in 0..7 {
        log.append(&[record(number.to_string(), number.to_string())], Durability::Buffered).expect("it is appended");
    }
    let taken = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| (0..2).for_each(|_| rewrite(&log, &taken)));
        scope.spawn(|| {
            // Not `panic!`: the scheduler would take that for a failure of the model.
            let ended = catch_unwind(AssertUnwindSafe(|| {
                rewrite(&log, &taken);
                let turn = log.begin_rewrite();
                step();
                drop(turn.map(|turn| resume_unwind(Box::new(turn.is_unwanted()))));
            }));
            drop(ended);
        });
        scope.spawn(|| log.truncate_to(5).expect("it is truncated"));
        scope.spawn(|| {
            log.advance_start(2).expect("below the end");
            log.apply_retention().expect("it is applied");
        });
    });
    let turn = log.begin_rewrite().expect("nobody holds the turn any more");
    assert!(!turn.is_unwanted(), "nobody waits for it any more");
    drop(turn);
    log.apply_retention().expect("it is applied");
    assert!(read_all(&log).iter().map(|seen| seen.offset).eq(2..5));
    log.close().expect("it closes");
}

fn rewrite(log: &Log, taken: &AtomicBool) {
    let turn = match log.begin_rewrite() {
        Ok(turn) => turn,
        Err(error) => return allow(&error, &[ErrorKind::Locked]),
    };
    assert!(!taken.swap(true, Ordering::Relaxed), "two have the turn");
    let before = sealed(log);
    (0..4).for_each(|_| step());
    assert_eq!(sealed(log), before, "the segments stay while somebody has the turn");
    taken.store(false, Ordering::Relaxed);
    drop(turn);
}

fn sealed(log: &Log) -> Vec<*const Segment> {
    log.segments().all().iter().map(Arc::as_ptr).collect()
}
