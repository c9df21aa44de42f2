//! Truncation against append, sync, clean and retention: what is cut is gone, what is acknowledged besides stays.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::{Durability, ErrorKind, Log};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{allow, any, check_no_leftovers, check_segment, durable_end, open, read_all, read_from, record};

/// One truncation, and everybody else.
pub(super) const MODEL: Model =
    Model { name: "truncation", claim: "what is acknowledged beside a truncation stays, the rest is gone", run };

const BEFORE: u64 = 6;

/// How far the truncation is; changed and read between steps only.
const AHEAD: u8 = 0;
const UNDER_WAY: u8 = 1;
const OVER: u8 = 2;

struct Scene {
    disk: Disk,
    log: Log,
    target: u64,
    phase: AtomicU8,
    /// Acknowledged, and not touched by the truncation.
    kept: Mutex<Vec<(u64, String)>>,
}

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    for number in 0..BEFORE {
        log.append(&[record(format!("before.{number}"), number.to_string())], Durability::Synced).expect("it is appended");
    }
    let target = 1 + u64::from(any(BEFORE as u32 + 1));
    let scene = Scene { disk, log, target, phase: AtomicU8::new(AHEAD), kept: Mutex::default() };
    thread::scope(|scope| {
        for (writer, durability) in [(0, Durability::Synced), (1, Durability::Buffered)] {
            let scene = &scene;
            scope.spawn(move || (0..2).for_each(|number| scene.append(&format!("{writer}.{number}"), durability)));
        }
        scope.spawn(|| scene.truncate());
        scope.spawn(|| scene.compact());
        scope.spawn(|| scene.retain());
        scope.spawn(|| scene.look());
    });
    scene.check();
}

impl Scene {
    fn append(&self, value: &str, durability: Durability) {
        let began = self.phase.load(Ordering::Relaxed);
        let appended = self.log.append(&[record(value, value)], durability).and_then(|placed| self.log.sync().map(|()| placed));
        let ended = self.phase.load(Ordering::Relaxed);
        match appended {
            Ok(placed) if began == OVER || (ended == AHEAD && placed.base_offset < self.target) => {
                self.kept.lock().expect("nobody panicked").push((placed.base_offset, value.to_owned()));
            }
            Ok(_) => {}
            Err(error) => {
                allow(&error, &[ErrorKind::OutOfRange]);
                assert_ne!((began, ended), (OVER, OVER), "nothing overtook it");
            }
        }
    }

    fn truncate(&self) {
        self.phase.store(UNDER_WAY, Ordering::Relaxed);
        self.log.truncate_to(self.target).expect("it is truncated");
        self.phase.store(OVER, Ordering::Relaxed);
    }

    fn compact(&self) {
        if let Err(error) = clean(&self.log, &CleanOptions::for_log(self.log.options(), self.log.storage().now_ms()), &()) {
            allow(&error, &[ErrorKind::Locked]);
        }
    }

    fn retain(&self) {
        self.log.advance_start(1).expect("below every end");
        self.log.apply_retention().expect("it is applied");
    }

    fn look(&self) {
        for _ in 0..2 {
            let (earlier, point, cut) = (self.log.truncations(), self.log.recovery_point(), self.disk.cut());
            let (safe, is_same) = (durable_end(&cut), self.log.truncations() == earlier);
            assert!(!is_same || point <= safe, "the recovery point is {point}, the disk ends at {safe}: {cut:?}");
            let start = self.log.start_offset();
            if let Err(error) = read_from(&self.log, start) {
                allow(&error, &[ErrorKind::OutOfRange]);
            }
        }
    }

    fn check(&self) {
        self.log.sync().expect("it syncs");
        let live = read_all(&self.log);
        let before: Vec<_> = (1..BEFORE.min(self.target)).collect();
        assert!(live.iter().map(|seen| seen.offset).take(before.len()).eq(before), "what lies below the cut stays: {live:?}");
        for number in self.target..BEFORE {
            assert!(live.iter().all(|seen| seen.key != format!("before.{number}")), "{number} was cut: {live:?}");
        }
        for (offset, value) in &*self.kept.lock().expect("nobody panicked") {
            assert!(live.iter().any(|seen| seen.offset == *offset && seen.value == *value), "{offset} was acknowledged: {live:?}");
        }
        let set = self.log.segments();
        set.sealed().iter().for_each(|segment| check_segment(segment, true));
        check_segment(set.active(), false);
        drop(set);
        check_no_leftovers(&self.disk);
        assert_eq!(read_all(&open(&self.disk.cut().restore())), live, "after a power cut");
        self.log.close().expect("it closes");
        assert_eq!(read_all(&open(&self.disk)), live, "after a close");
    }
}
