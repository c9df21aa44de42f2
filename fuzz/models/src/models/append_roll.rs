//! Appends against roll: offset, segment and position change together, and a sealed segment is written no more.

use std::collections::BTreeSet;

use keeplog_engine::{Durability, Log};
use shuttle::thread;

use crate::disk::Disk;
use crate::run::Model;
use crate::world::{check_segment, open, read_all, read_from, record};

/// Three writers, one who rolls, one who looks.
pub(super) const MODEL: Model = Model { name: "append-roll", claim: "offsets are dense, indexes point at batches, sealed is sealed", run };

const WRITERS: u64 = 3;
const APPENDS: u64 = 3;

fn run() {
    let disk = Disk::new();
    let log = open(&disk);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let log = &log;
            scope.spawn(move || write(log, writer));
        }
        scope.spawn(|| (0..2).for_each(|_| log.roll().expect("it rolls")));
        scope.spawn(|| (0..3).for_each(|_| observe(&log)));
    });
    observe(&log);
    let live = read_all(&log);
    assert!(live.iter().map(|seen| seen.offset).eq(0..WRITERS * APPENDS), "dense: {live:?}");
    assert_eq!(live.iter().map(|seen| &seen.value).collect::<BTreeSet<_>>().len(), live.len(), "each record once");
    log.close().expect("it closes");
    let again = open(&disk);
    assert!(again.recovery_report().clean);
    assert_eq!(read_all(&again), live);
}

fn write(log: &Log, writer: u64) {
    let mut last = None;
    for number in 0..APPENDS {
        let value = format!("{writer}.{number}");
        let placed = log.append(&[record(format!("{writer}"), value.clone())], Durability::Buffered).expect("it is appended");
        assert!(last < Some(placed.base_offset), "in the order of the calls");
        last = Some(placed.base_offset);
        let found = read_from(log, placed.base_offset).expect("what was appended can be read");
        assert_eq!((found[0].offset, &found[0].value), (placed.base_offset, &value));
    }
}

fn observe(log: &Log) {
    let end = log.end_offset();
    log.read_from(end).expect("the end is in range");
    if let Some(last) = end.checked_sub(1) {
        assert_eq!(read_from(log, last).expect("below the end").first().map(|seen| seen.offset), Some(last));
    }
    let set = log.segments();
    set.sealed().iter().for_each(|segment| check_segment(segment, true));
    check_segment(set.active(), false);
}
