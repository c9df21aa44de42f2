//! Close against everything: it returns, the others are told, and all that was appended is on the disk.

use std::path::Path;
use std::sync::Mutex;

use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::{Durability, ErrorKind, Log};
use shuttle::thread;

use crate::disk::{Cut, Disk};
use crate::run::Model;
use crate::world::{DIR, allow, any, open, read_all, read_from, record};

/// Writers, a reader, a cleaner, retention, syncs, and a close in the midst of them.
pub(super) const MODEL: Model = Model { name: "close", claim: "close returns, others get Closed, every append that returned is kept", run };

const START: u64 = 2;

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    let (placed, left) = (Mutex::new(Vec::new()), Mutex::default());
    let target = if any(2) == 0 { 4 } else { u64::MAX };
    for number in 0..5 {
        append(&log, &format!("before.{number}"), Durability::Buffered, &placed);
    }
    thread::scope(|scope| {
        for (writer, durability) in [(0, Durability::Buffered), (1, Durability::Synced)] {
            let (log, placed) = (&log, &placed);
            scope.spawn(move || (0..3).all(|number| append(log, &format!("{writer}.{number}"), durability, placed)));
        }
        scope.spawn(|| {
            if let Err(error) = read_from(&log, 0) {
                allow(&error, &[ErrorKind::Closed, ErrorKind::OutOfRange]);
            }
        });
        scope.spawn(|| {
            if let Err(error) = clean(&log, &CleanOptions::for_log(log.options(), log.storage().now_ms()), &()) {
                allow(&error, &[ErrorKind::Closed, ErrorKind::Locked]);
            }
        });
        scope.spawn(|| {
            let changes = [log.sync(), log.roll(), log.advance_start(START), log.apply_retention().map(drop), log.truncate_to(target)];
            for error in changes.into_iter().filter_map(Result::err) {
                allow(&error, &[ErrorKind::Closed]);
            }
        });
        scope.spawn(|| {
            log.close().expect("it closes");
            *left.lock().expect("nobody panicked") = files(&disk.cut());
        });
    });
    assert!(!append(&log, "late", Durability::Buffered, &placed), "a closed log takes nothing");
    assert_eq!(files(&disk.cut()), left.into_inner().expect("nobody panicked"), "nothing changes after the close");
    let again = open(&disk.cut().restore());
    assert!(again.recovery_report().clean, "the clean mark is durable");
    let kept = read_all(&again);
    for (offset, value) in placed.into_inner().expect("nobody panicked") {
        let is_there = kept.iter().any(|seen| seen.offset == offset && seen.value == value);
        assert!(is_there || offset < START || offset >= target, "{offset} was appended: {kept:?}");
    }
}

/// What is durable of a log, but for what only waits for its last reader.
fn files(cut: &Cut) -> Vec<(String, Vec<u8>)> {
    let files = cut.files(Path::new(DIR), "").into_iter().filter(|(name, _)| !name.ends_with(".deleted"));
    files.map(|(name, bytes)| (name, bytes.to_vec())).collect()
}

/// Whether it was appended. If not, the log was closed.
fn append(log: &Log, value: &str, durability: Durability, placed: &Mutex<Vec<(u64, String)>>) -> bool {
    match log.append(&[record(value, value)], durability) {
        Ok(at) => {
            placed.lock().expect("nobody panicked").push((at.base_offset, value.to_owned()));
            true
        }
        Err(error) => {
            allow(&error, &[ErrorKind::Closed, ErrorKind::OutOfRange]); // out of range: the truncation overtook it
            false
        }
    }
}
