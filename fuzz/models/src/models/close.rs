//! Close against everything: it returns, the others are told, and all that was appended is on the disk.

use std::path::Path;
use std::sync::Mutex;

use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::storage::{OpenMode, Storage};
use keeplog_engine::{Durability, ErrorKind, Log};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{DIR, allow, any, open, read_all, read_from, record};

/// Writers, a reader, a cleaner, retention, syncs, and two closes in the midst of them.
pub(super) const MODEL: Model = Model { name: "close", claim: "close returns, others get Closed, every append that returned is kept", run };

/// The close and one other.
pub(super) const LATE: Model = Model { name: "close-late", claim: "who had to wait for a close changes nothing any more", run: late };

const START: u64 = 2;

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    let (placed, left) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
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
        for _ in 0..2 {
            scope.spawn(|| {
                log.close().expect("it closes");
                let files = files(&disk);
                left.lock().expect("nobody panicked").push(files);
            });
        }
    });
    assert!(!append(&log, "late", Durability::Buffered, &placed), "a closed log takes nothing");
    for left in left.into_inner().expect("nobody panicked") {
        assert_eq!(files(&disk), left, "nothing changes after a close has returned");
    }
    let again = open(&disk.cut().restore());
    assert!(again.recovery_report().clean, "the clean mark is durable");
    let kept = read_all(&again);
    for (offset, value) in placed.into_inner().expect("nobody panicked") {
        let is_there = kept.iter().any(|seen| seen.offset == offset && seen.value == value);
        assert!(is_there || offset < START || offset >= target, "{offset} was appended: {kept:?}");
    }
}

/// The files of the log with what is in them, but for those that only wait for their last reader.
fn files(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    let (dir, live) = (Path::new(DIR), disk.live());
    let names = live.list(dir).expect("the directory is there").into_iter().map(|entry| entry.name);
    let read = |name: String| {
        let file = live.open(&dir.join(&name), OpenMode::Read).expect("it was listed");
        let bytes = file.map(file.len().expect("a length")).expect("it can be mapped");
        (name, bytes.to_vec())
    };
    names.filter(|name| !name.ends_with(".deleted")).map(read).collect()
}

/// One who changes something, and the close: few steps, so that every one of them meets every other.
fn late() {
    let disk = Disk::new();
    let log = open(&disk);
    let placed = Mutex::new(Vec::new());
    for number in 0..7 {
        append(&log, &format!("before.{number}"), Durability::Buffered, &placed);
    }
    log.advance_start(4).expect("below the end");
    let change = any(5);
    let left = thread::scope(|scope| {
        scope.spawn(|| {
            let changed = match change {
                0 => log.roll(),
                1 => log.apply_retention().map(drop),
                2 => log.truncate_to(5),
                3 => log.begin_rewrite().and_then(|turn| turn.create_output(0)).map(drop),
                _ => log.append(&[record("late", "late")], Durability::Buffered).map(drop),
            };
            if let Err(error) = changed {
                allow(&error, &[ErrorKind::Closed, ErrorKind::Locked]);
            }
        });
        let close = scope.spawn(|| {
            log.close().expect("it closes");
            files(&disk)
        });
        close.join().expect("it returns")
    });
    assert_eq!(files(&disk), left, "nothing changes after a close has returned");
    assert!(open(&disk.cut().restore()).recovery_report().clean);
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
