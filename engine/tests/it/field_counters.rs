//! What was slow elsewhere, shown by what is counted and not by a clock: part (g) of docs/FIELD_REPORTS.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use keeplog_engine::record::{BatchSpec, Record};
use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::{CleanupPolicy, Durability};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{LOG, append, append_synced, batch, disk, open, open_on, put, small};

/// A closed log of `segments` closed segments and an active one.
fn closed_log(segments: u64) -> Arc<MemoryStorage> {
    let disk = disk();
    let log = open(&disk, small());
    for _ in 0..segments {
        append(&log, "v").unwrap();
        log.roll().unwrap();
    }
    append(&log, "v").unwrap();
    log.close().unwrap();
    disk
}

/// Calls by the kind of file that they are made on.
fn calls_by_kind(shim: &Shim, which: impl Fn(Call) -> bool + Send + 'static) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let counted = Arc::clone(&counts);
    shim.set_rule(move |call, path| {
        if which(call) {
            let kind = path.extension().map_or_else(|| path.to_string_lossy().into_owned(), |e| e.to_string_lossy().into_owned());
            *counted.lock().unwrap().entry(kind).or_default() += 1;
        }
        Verdict::Go
    });
    counts
}

#[test]
fn g02_a_start_reads_no_log_data_but_what_may_be_torn() {
    let calls = |segments, clean: bool, damage: bool| {
        let disk = closed_log(segments);
        if !clean {
            disk.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
        }
        if damage {
            put(&disk, "00000000000000000000.index", b"noise");
        }
        let shim = Shim::over(&disk);
        let (reads, all) = (calls_by_kind(&shim, |call| matches!(call, Call::Read(_))), Arc::new(Mutex::new(0)));
        let log = open_on(&shim, small()).unwrap();
        assert_eq!(log.recovery_report().rebuilt.len(), usize::from(damage));
        let of_logs = reads.lock().unwrap().get("log").copied().unwrap_or(0);
        drop(log);
        let shim = Shim::over(&disk);
        let counted = Arc::clone(&all);
        shim.set_rule(move |_, _| {
            *counted.lock().unwrap() += 1;
            Verdict::Go
        });
        drop(open_on(&shim, small()).unwrap());
        let all = *all.lock().unwrap();
        (of_logs, all)
    };
    let ((few_reads, few), (many_reads, many)) = (calls(10, true, false), calls(110, true, false));
    assert!(few_reads == many_reads && many_reads <= 4, "{few_reads} {many_reads}");
    assert!(many - few <= 100 * 12, "{} calls a segment", (many - few) / 100);
    let ((few_reads, _), (many_reads, _)) = (calls(10, false, false), calls(110, false, false));
    assert!(few_reads == many_reads && many_reads <= 12, "{few_reads} {many_reads}");
    let ((few_reads, _), (many_reads, _)) = (calls(10, false, true), calls(110, false, true));
    assert!(few_reads == many_reads && many_reads <= 16, "{few_reads} {many_reads}: the damaged one is read, no other");
}

#[test]
fn g03_a_close_opens_no_index_that_nobody_used() {
    let mut counted = Vec::new();
    for segments in [1, 100] {
        let shim = Shim::over(&closed_log(segments));
        let log = open_on(&shim, small()).unwrap();
        let calls = shim.count(|call, _| matches!(call, Call::Open | Call::Create | Call::Read(_)));
        log.close().unwrap();
        counted.push(*calls.lock().unwrap());
    }
    assert_eq!(counted[0], counted[1], "what a close opens is of the active segment");
}

/// Appends that roll, trims beside them: nothing is synced on the way of an append that did not ask for it.
#[test]
fn g04_a_roll_waits_for_no_sync() {
    let shim = Shim::over(&disk());
    let log = open_on(&shim, small()).unwrap();
    append(&log, "first").unwrap();
    let syncs = shim.count(|call, _| matches!(call, Call::Sync | Call::SyncDir));
    for i in 0..30 {
        append(&log, &format!("{i:03000}")).unwrap();
    }
    assert!(log.segments().all().len() > 20);
    assert_eq!(*syncs.lock().unwrap(), 0);
    // And yet one that asks is safe, with all that was rolled before it.
    append_synced(&log, "safe").unwrap();
    let image = shim.after_power_cut();
    drop(log);
    assert_eq!(open(&image, small()).end_offset(), 32);
}

/// Who never asks for a sync: no append pays for more than a few segments, however many have waited; and all is safe that lies
/// below the recovery point.
#[test]
fn g04_no_append_syncs_more_than_a_few_segments() {
    // Four files each, two segments, the directory, a checkpoint with its directory.
    const SYNCS_MAX: usize = 2 * 4 + 1 + 2;
    let shim = Shim::over(&disk());
    let log = open_on(&shim, small()).unwrap();
    let mut most = 0;
    for i in 0..300 {
        let syncs = shim.count(|call, _| matches!(call, Call::Sync | Call::SyncDir));
        append(&log, &format!("{i:03000}")).unwrap();
        most = most.max(*syncs.lock().unwrap());
    }
    assert!(log.segments().all().len() > 290 && (1..=SYNCS_MAX).contains(&most), "{most} syncs in one append");
    assert!(log.recovery_point() >= log.end_offset() - 40, "{} of {}", log.recovery_point(), log.end_offset());
    // One that closes many segments itself pays for as many.
    let entries: Vec<u8> = (300..500_u64)
        .flat_map(|offset| batch(BatchSpec { base_offset: offset, ..BatchSpec::default() }, &[("k", Some(&*"v".repeat(3000)))]))
        .collect();
    log.append_as_follower(&entries, Durability::Buffered).unwrap();
    assert!(shim.open_files() <= 40, "{} files are open", shim.open_files());
    let (point, killed, cut) = (log.recovery_point(), shim.live(), shim.after_power_cut());
    assert!(point >= 460);
    drop(log);
    assert_eq!(open(&killed, small()).end_offset(), 500);
    let log = open(&cut, small());
    assert!(log.end_offset() >= point && log.recovery_report().is_sound(), "{}", log.recovery_report());
}

/// A log of a broker that was killed, of which nothing is known to be safe: it opens without a file for each segment, and its
/// segments are synced a few at a time.
#[test]
fn g04_segments_that_an_open_finds_wait_without_a_file_each() {
    let disk = closed_log(300);
    for name in [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"] {
        disk.remove_file(&Path::new("/data").join(name)).unwrap();
    }
    let shim = Shim::over(&disk);
    let log = open_on(&shim, small()).unwrap();
    assert!(shim.open_files() <= 6, "{} files are open", shim.open_files());
    let mut most = 0;
    for _ in 0..140 {
        let syncs = shim.count(|call, path| call == Call::Sync && path.extension().is_some_and(|e| e == "log"));
        append(&log, "v").unwrap();
        most = most.max(*syncs.lock().unwrap());
    }
    let set = log.segments();
    assert_eq!((most, log.recovery_point()), (2, set.sealed()[set.sealed().len() - 32].base_offset()));
    log.sync().unwrap();
    assert_eq!(log.recovery_point(), log.end_offset());
}

#[test]
fn g05_a_trim_lists_no_log_directory() {
    let shim = Shim::over(&closed_log(100));
    let log = open_on(&shim, small().cleanup_policy(CleanupPolicy::Delete)).unwrap();
    let lists = shim.count(|call, path| call == Call::List && path.starts_with(LOG));
    for start in 1..100 {
        log.advance_start(start).unwrap();
        log.apply_retention().unwrap();
    }
    log.close().unwrap();
    assert_eq!(*lists.lock().unwrap(), 0);
}

/// Who never asks for a sync holds no more files open than some.
#[test]
fn g08_open_files_do_not_grow_with_the_segments() {
    for synced in [false, true] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        let mut most = 0;
        for _ in 0..300 {
            if synced {
                append_synced(&log, "v").unwrap()
            } else {
                append(&log, "v").unwrap()
            };
            log.roll().unwrap();
            most = most.max(shim.open_files());
        }
        assert!(most <= if synced { 6 } else { 40 }, "{most} files are open");
        let all = log.read_from(0).unwrap().count();
        assert_eq!(all, 300);
        assert!(shim.open_files() <= 40, "reading a segment leaves none open: {}", shim.open_files());
    }
}

/// Killed, a log reads what came after the last segment that a sync covered, and not its whole history.
#[test]
fn g09_a_start_after_a_kill_is_bounded_by_what_came_last() {
    for segments in [5, 50] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        while log.segments().all().len() < segments {
            append_synced(&log, &"v".repeat(500)).unwrap();
        }
        let killed = shim.live();
        drop(log);
        let log = open(&killed, small());
        let report = log.recovery_report();
        assert!(report.segments_scanned <= 2 && report.bytes_scanned <= 2 * 4096, "{report}");
        assert!(report.bytes_settled <= 2 * 4096, "{report}");
    }
}

#[test]
fn g10_an_append_reads_nothing() {
    let shim = Shim::over(&closed_log(3));
    let log = open_on(&shim, small().segment_bytes(1 << 20).index_interval_bytes(1).segment_index_bytes(1 << 20)).unwrap();
    let calls = calls_by_kind(&shim, |_| true);
    for _ in 0..1000 {
        append(&log, "v").unwrap();
    }
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.iter().map(|(kind, count)| (kind.as_str(), *count)).collect::<Vec<_>>(), [("log", 1000)], "one write each");
}

/// Read in steps, each with a lookup of its own: twice the log costs twice the reads.
#[test]
fn g11_reading_in_steps_is_linear() {
    let mut counted = Vec::new();
    for batches in [2000, 4000] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small().segment_bytes(1 << 16)).unwrap();
        for _ in 0..batches {
            append(&log, &"v".repeat(100)).unwrap();
        }
        log.roll().unwrap();
        let bytes = Arc::new(Mutex::new(0));
        let counting = Arc::clone(&bytes);
        shim.set_rule(move |call, _| {
            if let Call::Read(len) = call {
                *counting.lock().unwrap() += len;
            }
            Verdict::Go
        });
        let (mut next, mut steps) = (0, 0);
        while next < log.end_offset() {
            for record in log.read_from(next).unwrap().take(100) {
                next = record.unwrap().offset() + 1;
            }
            steps += 1;
        }
        assert_eq!(steps, batches / 100);
        counted.push(*bytes.lock().unwrap());
    }
    assert!(counted[1] <= counted[0] * 21 / 10, "{counted:?}");
}

/// The checkpoint of a log by itself is written with its segments, not with its appends.
#[test]
fn g09_saving_the_recovery_point_costs_a_write_for_each_segment() {
    let shim = Shim::over(&disk());
    let log = open_on(&shim, small()).unwrap();
    let written = shim.count(|call, path| matches!(call, Call::Write(_)) && path.to_string_lossy().contains("recovery-point"));
    for _ in 0..200 {
        log.append(&[Record::new("k", "v".repeat(100))], Durability::Synced).unwrap();
    }
    let segments = log.segments().all().len();
    assert!(*written.lock().unwrap() < segments, "{} writes for {segments} segments", written.lock().unwrap());
}
