//! Group commit: who is acknowledged is safe, and nobody waits for ever, also when a sync fails.

use std::sync::Mutex;

use keeplog_engine::{Durability, ErrorKind, Log};
use shuttle::thread;

use crate::disk::{Disk, Syncs};
use crate::run::Model;
use crate::world::{allow, any, durable_end, open, read_all, record};

/// Writers that wait, one who rolls, one who looks at the recovery point.
pub(super) const MODEL: Model =
    Model { name: "group-commit", claim: "what is acknowledged is durable, the recovery point never ahead of it", run: || run(None) };
/// The same with a sync that fails.
pub(super) const FAILING: Model = Model {
    name: "group-commit-failing",
    claim: "after a failed sync nobody is acknowledged wrongly, and nobody hangs",
    run: || run(Some(any(5))),
};
/// The same on a disk that lies, which must be found out.
pub(super) const LYING: Model =
    Model { name: "group-commit-lying", claim: "(a disk that lies is found out)", run: || commit(&lying(), None) };

const WRITERS: u32 = 3;
const APPENDS: u32 = 2;

fn run(fails: Option<u32>) {
    commit(&Disk::new(), fails);
}

fn lying() -> Disk {
    let disk = Disk::new();
    disk.set_syncs(Syncs::Lie);
    disk
}

fn commit(disk: &Disk, fails: Option<u32>) {
    let log = open(disk);
    if let Some(more) = fails {
        disk.set_syncs(Syncs::FailAfter(more));
    }
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (log, acknowledged) = (&log, &acknowledged);
            scope.spawn(move || write(disk, log, writer, acknowledged));
        }
        scope.spawn(|| {
            if let Err(error) = log.roll() {
                allow(&error, &[ErrorKind::Poisoned]);
            }
        });
        scope.spawn(|| watch(disk, &log));
    });
    let acknowledged = acknowledged.into_inner().expect("nobody panicked");
    match log.append(&[record("last", "last")], Durability::Synced) {
        Ok(_) => assert_eq!(acknowledged.len(), (WRITERS * APPENDS) as usize, "nothing has failed"),
        Err(error) => {
            allow(&error, &[ErrorKind::Poisoned, ErrorKind::Io]);
            let error = log.append(&[record("more", "more")], Durability::Buffered).expect_err("the log is poisoned");
            allow(&error, &[ErrorKind::Poisoned]);
        }
    }
    let kept = read_all(&open(&disk.cut().restore()));
    for (offset, value) in acknowledged {
        assert!(kept.iter().any(|seen| seen.offset == offset && seen.value == value), "{offset} was acknowledged: {kept:?}");
    }
}

fn write(disk: &Disk, log: &Log, writer: u32, acknowledged: &Mutex<Vec<(u64, String)>>) {
    for number in 0..APPENDS {
        let value = format!("{writer}.{number}");
        match log.append(&[record(writer.to_string(), value.clone())], Durability::Synced) {
            Ok(placed) => {
                let safe = durable_end(&disk.cut());
                assert!(placed.last_offset < safe, "{} was acknowledged, {safe} is the end on the disk", placed.last_offset);
                assert!(placed.last_offset < log.recovery_point());
                acknowledged.lock().expect("nobody panicked").push((placed.base_offset, value));
            }
            Err(error) => return allow(&error, &[ErrorKind::Poisoned, ErrorKind::Io]),
        }
    }
}

fn watch(disk: &Disk, log: &Log) {
    let mut before = 0;
    for _ in 0..5 {
        let point = log.recovery_point();
        assert!(before <= point, "the recovery point went back from {before} to {point}");
        let safe = durable_end(&disk.cut());
        assert!(point <= safe, "the recovery point is {point}, the disk ends at {safe}");
        before = point;
    }
}
