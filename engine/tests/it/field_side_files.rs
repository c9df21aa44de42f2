//! Indexes, checkpoints, snapshots and strangers beside a log: the rest of part (c) of docs/FIELD_REPORTS.md.

use std::io::ErrorKind::Other;
use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::{BatchSpec, Record};
use keeplog_engine::storage::{MemoryStorage, RealStorage, Storage};
use keeplog_engine::{CleanupPolicy, DataDir, Durability, ErrorKind, Log, LogOptions, TransactionEnd};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{
    T0, all, append, append_synced, batch, contents, crash, disk, files, open, open_on, path, producer, put, put_data, small, values,
};

const POINT: &str = "recovery-point-offset-checkpoint";
const FIRST: &str = "00000000000000000000.log";

fn fill(log: &Log, records: u64) {
    for i in 0..records {
        let record = Record::new(format!("k{i}"), "v".repeat(100)).timestamp_ms(T0 + i as i64 * 10);
        log.append(&[record], Durability::Buffered).unwrap();
    }
}

/// A log of several segments, with an aborted transaction in the second, closed.
fn closed_log() -> Arc<MemoryStorage> {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 40);
    log.append_batch(batch(BatchSpec { transactional: true, ..producer(7, 0, 0) }, &[("t", Some("1"))]), Durability::Buffered).unwrap();
    let end =
        TransactionEnd { producer_id: 7, producer_epoch: 0, result: keeplog_engine::record::TxnResult::Aborted, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Buffered).unwrap();
    fill(&log, 40);
    log.close().unwrap();
    disk
}

/// All lookups of a log, by offset and by time, and what readers of committed data see.
fn lookups(log: &Log) -> (Vec<u64>, Vec<Option<u64>>, Vec<u64>) {
    let by_offset = (0..log.end_offset()).map(|o| log.read_from(o).unwrap().next().map_or(u64::MAX, |r| r.unwrap().offset())).collect();
    let by_time = (-1..90).map(|t| log.find_by_timestamp(T0 + t * 10).unwrap().map(|found| found.0)).collect();
    let committed = log.read_committed_from(0).unwrap().map(|r| r.unwrap().offset()).collect();
    (by_offset, by_time, committed)
}

#[test]
fn c15_indexes_of_any_contents_are_rebuilt_and_lookups_equal_a_search() {
    let disk = closed_log();
    let expected = lookups(&open(&Arc::new(disk.image()), small()));
    let indexes: Vec<_> = files(&disk).into_iter().filter(|name| name.ends_with("index")).collect();
    assert!(indexes.iter().any(|name| name.ends_with(".txnindex")), "{indexes:?}");
    for name in indexes {
        let good = contents(&disk, &name);
        let entry = if name.ends_with(".timeindex") {
            12
        } else if name.ends_with(".txnindex") {
            34
        } else {
            8
        };
        let far = {
            let mut bytes = good.clone();
            if let Some(b) = bytes.len().checked_sub(entry).map(|at| &mut bytes[at..]) {
                b.fill(0x7f);
            };
            bytes
        };
        let swapped = {
            let mut bytes = good.clone();
            if bytes.len() >= 2 * entry {
                bytes.rotate_left(entry);
            };
            bytes
        };
        let damaged = [
            vec![0; good.len().max(2 * entry)],
            [&good[..], b"random bytes"].concat(),
            good[..good.len().saturating_sub(3)].to_vec(),
            swapped,
            far,
            [&good[..], &vec![1; 1 << 20]].concat(),
        ];
        for (kind, bytes) in damaged.into_iter().enumerate().filter(|(_, bytes)| *bytes != good) {
            let image = Arc::new(disk.image());
            put(&image, &name, &bytes);
            let log = open(&image, small());
            assert_eq!(lookups(&log), expected, "{name}, damage {kind}: {}", log.recovery_report());
            assert!(log.recovery_report().rebuilt.len() <= 1, "{name}, damage {kind}: one line a file: {}", log.recovery_report());
        }
    }
}

#[test]
fn c16_any_side_files_may_be_missing() {
    let disk = closed_log();
    let expected = lookups(&open(&Arc::new(disk.image()), small()));
    let logs: Vec<_> = files(&disk).into_iter().filter(|name| name.ends_with(".log")).collect();
    for which in [0, 1, logs.len() - 1] {
        let base = logs[which].trim_end_matches(".log");
        let side: Vec<_> = files(&disk).into_iter().filter(|name| name.starts_with(base) && !name.ends_with(".log")).collect();
        for subset in 1..1 << side.len() {
            let image = Arc::new(disk.image());
            let gone = side.iter().enumerate().filter(|(i, _)| subset & (1 << i) != 0);
            gone.for_each(|(_, name)| image.remove_file(&path(name)).unwrap());
            // Nothing tells that there was a transaction index, to us or to a broker: it takes a full scan to see.
            let is_gone = |kind: &str| side.iter().position(|name| name.ends_with(kind)).is_some_and(|i| subset & (1 << i) != 0);
            let full_scan = is_gone(".txnindex") && !is_gone(".index") && !is_gone(".timeindex");
            let log = open(&image, small().recovery_full_scan(full_scan));
            assert_eq!(lookups(&log), expected, "segment {base}, {subset:b} of {side:?}");
            assert!(log.recovery_report().is_sound());
        }
    }
    // A crash between the creation of a log file and that of its indexes.
    let image = Arc::new(disk.image());
    let log = open(&image, small());
    log.roll().unwrap();
    let image = crash(log, &image);
    let empty = files(&image).into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    assert_eq!(contents(&image, &empty), b"");
    let log = open(&image, small());
    assert!(log.recovery_report().is_sound() && log.recovery_report().rebuilt.is_empty(), "{}", log.recovery_report());
}

/// Wherever the recovery point is said to be, what a scan would find is found.
#[test]
fn c17_a_recovery_point_outside_the_log_or_unreadable_hides_nothing() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 100);
    let image = crash(log.clone(), &disk);
    assert_eq!(log.recovery_point(), 0, "nothing was synced");
    log.sync().unwrap();
    assert_eq!(log.recovery_point(), 100);
    let last = files(&image).into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    let torn = [contents(&image, &last), b"torn".to_vec()].concat();
    put(&image, &last, &torn);
    let checkpoints: [(&str, Option<u64>); 8] = [
        ("0\n1\nt 0 100\n", None),
        ("0\n1\nt 0 0\n", None),
        ("0\n1\nt 0 5000\n", Some(5000)),
        ("", None),
        ("0\n3\nt 0 100\n", None),
        ("7\n1\nt 0 100\n", None),
        ("0\n1\nt 0 -5\n", None),
        ("noise", None),
    ];
    for (text, beyond) in checkpoints {
        let image = Arc::new(image.image());
        put_data(&image, POINT, text.as_bytes());
        let log = open(&image, small());
        let report = log.recovery_report().clone();
        assert_eq!((log.end_offset(), report.cut_bytes()), (100, 4), "{text:?}: {report}");
        assert_eq!(report.lost, beyond.map(|point| 100..point), "{text:?}: {report}");
        assert!(log.recovery_point() <= 100);
        let sound = ["0\n1\nt 0 100\n", "0\n1\nt 0 0\n", "0\n1\nt 0 5000\n", ""].contains(&text);
        assert_eq!(log.data_dir().warnings().is_empty(), sound, "{text:?}");
        if !sound {
            assert_eq!(report.bytes_scanned, report.segments.iter().map(|s| s.1).sum::<u64>() + 4, "everything is read");
        }
        // A point above the end does not outlive the first append.
        append_synced(&log, "more").unwrap();
        let image = crash(log, &image);
        let again = open(&image, small());
        assert_eq!((again.end_offset(), again.recovery_report().lost.clone()), (101, None), "{text:?}");
    }
    // Below the start.
    let log = open(&image, small());
    log.advance_start(80).unwrap();
    let image = crash(log, &image);
    put_data(&image, POINT, b"0\n1\nt 0 3\n");
    let log = open(&image, small());
    assert_eq!((log.start_offset(), log.end_offset(), log.recovery_report().is_sound()), (80, 100, true));
    assert!(log.recovery_point() <= log.end_offset());
}

/// The machine stops at each call of a checkpoint write, and loses what was not synced.
#[test]
fn c19_a_checkpoint_is_the_old_or_the_new_one_after_a_power_cut() {
    let disk = disk();
    let log = open(&disk, small());
    let name = log.topic_partition().clone();
    let mut seen = [false; 2];
    for at in 0.. {
        let image = disk.image();
        put_data(&image, POINT, b"0\n1\nt 0 7\n");
        let shim = Shim::over(&image);
        let dir = DataDir::open(Arc::clone(&shim) as Arc<dyn Storage>, Path::new("/data")).unwrap();
        dir.set_recovery_point(&name, 12345);
        shim.stop_at(at);
        let done = dir.write_checkpoints().is_ok();
        shim.heal();
        let again = DataDir::open(shim.after_power_cut(), Path::new("/data")).unwrap();
        assert_eq!(again.warnings(), [], "stopped at {at}");
        let point = again.recovery_point(&name);
        assert!(point == 12345 || (point == 7 && !done), "stopped at {at}: {point}");
        seen[usize::from(point == 12345)] = true;
        if done {
            break;
        }
    }
    assert_eq!(seen, [true, true]);
    // No file, an empty one and one without entries say the same.
    for text in [None, Some(""), Some("0\n0\n")] {
        let image = disk.image();
        image.remove_file(&Path::new("/data").join(POINT)).ok();
        text.iter().for_each(|text| put_data(&image, POINT, text.as_bytes()));
        let dir = DataDir::open(Arc::new(image), Path::new("/data")).unwrap();
        assert_eq!((dir.recovery_point(&name), dir.warnings().len()), (0, 0), "{text:?}");
    }
}

/// Raising the start and removing what lies below, stopped at every call: once told, it never comes back.
#[test]
fn c24_what_was_removed_stays_removed() {
    let disk = disk();
    let log = open(&disk, small().cleanup_policy(CleanupPolicy::Delete).retention_ms(None));
    fill(&log, 100);
    log.close().unwrap();
    let options = small().cleanup_policy(CleanupPolicy::Delete).retention_ms(None);
    for at in 0.. {
        let shim = Shim::over(&disk.image());
        let log = open_on(&shim, options.clone()).unwrap();
        shim.stop_at(at);
        let told = log.advance_start(70).is_ok();
        let removed = told && log.apply_retention().is_ok();
        for image in [shim.live(), shim.after_power_cut()] {
            let log = open(&image, options.clone());
            let start = log.start_offset();
            assert!(start == 70 || (start == 0 && !told), "stopped at {at}: {start}");
            assert_eq!(all(&log).len() as u64, 100 - start, "all or nothing");
            assert_eq!(append(&log, "new").unwrap(), 100, "new records never fall below it");
            assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
        }
        shim.heal();
        if removed {
            return;
        }
    }
}

/// Strangers of every kind beside the files of a log: left where they are, but for an index without its log.
#[test]
fn c27_foreign_files_are_left_alone() {
    use std::os::unix::ffi::OsStrExt;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("t-0");
    let log = Log::open(&dir, small()).unwrap();
    fill(&log, 5);
    log.close().unwrap();
    let strangers =
        ["._0000.log", "notes.txt", "0000000000000000000.log", "0000000000000000000000000.log", "99999999999999999999.log", ".DS_Store"];
    for name in strangers {
        std::fs::write(dir.join(name), b"of somebody else").unwrap();
        std::fs::write(root.path().join(name), b"of somebody else").unwrap();
    }
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe.log");
    std::fs::write(dir.join(odd), b"").unwrap();
    std::fs::create_dir(dir.join("lost+found")).unwrap();
    std::fs::create_dir(root.path().join("lost+found")).unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::fs::write(&elsewhere, b"untouched").unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.join("link")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, root.path().join("u-0")).unwrap();
    std::fs::write(dir.join("00000000000000000777.index"), b"orphan").unwrap();
    for clean in [true, false] {
        let log = Log::open(&dir, small()).unwrap();
        assert_eq!((log.recovery_report().clean, log.end_offset(), log.recovery_report().is_sound()), (clean, 5, true));
        assert_eq!(log.recovery_report().removed.contains(&"00000000000000000777.index".to_owned()), clean);
        assert_eq!(log.data_dir().foreign().len(), strangers.len() + 3, "{:?}", log.data_dir().foreign());
        assert_eq!(log.data_dir().partitions().len(), 1);
        log.close().unwrap();
        std::fs::remove_file(root.path().join(".kafka_cleanshutdown")).unwrap();
    }
    for name in strangers {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), b"of somebody else");
    }
    assert!(dir.join(odd).exists() && dir.join("lost+found").is_dir() && !dir.join("00000000000000000777.index").exists());
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"untouched");
}

/// Reads that return little, and every third call interrupted: recovery and reading come to the same.
#[test]
fn c28_a_short_read_is_not_the_end() {
    let disk = closed_log();
    let expected = lookups(&open(&Arc::new(disk.image()), small()));
    disk.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    put_data(&disk, POINT, b"0\n0\n");
    for most in [1, 3, 60, 61, 62, 1000] {
        let shim = Shim::over(&disk.image());
        let mut calls = 0;
        shim.set_rule(move |call, _| {
            calls += usize::from(matches!(call, Call::Read(_) | Call::Write(_)));
            match call {
                Call::Read(_) | Call::Write(_) if calls % 3 == 0 => Verdict::Fail(std::io::ErrorKind::Interrupted),
                Call::Read(_) | Call::Write(_) => Verdict::Short(most),
                _ => Verdict::Go,
            }
        });
        let log = open_on(&shim, small()).unwrap();
        assert!(log.recovery_report().is_sound() && log.recovery_report().cuts.is_empty(), "{}", log.recovery_report());
        assert_eq!(lookups(&log), expected, "{most} bytes a call");
    }
}

/// Files cut below a header, and an index that leads beyond the end: an answer after a number of reads that is bounded.
#[test]
fn c29_a_file_without_a_header_ends_a_read() {
    for len in [0, 5] {
        for clean in [true, false] {
            let disk = closed_log();
            if !clean {
                disk.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
            }
            let logs: Vec<_> = files(&disk).into_iter().filter(|name| name.ends_with(".log")).collect();
            for name in [&logs[0], logs.last().unwrap()] {
                let image = Arc::new(disk.image());
                put(&image, name, &vec![0; len]);
                let shim = Shim::over(&image);
                let reads = shim.count(|call, _| matches!(call, Call::Read(_)));
                let log = open_on(&shim, small()).unwrap();
                let read = log.read_from(0).unwrap().take(1000).filter(Result::is_ok).count();
                assert!(read < 82, "{name} was cut to {len} bytes");
                assert!(*reads.lock().unwrap() < 1000, "{}", reads.lock().unwrap());
                assert!(!log.recovery_report().is_sound(), "{}", log.recovery_report());
            }
        }
    }
}

/// The batch is in the log when its index can't be written: its offsets are not given again.
#[test]
fn c30_offsets_are_given_once_whatever_failed_behind_the_write() {
    for kind in [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint.tmp"] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        log.append_batch(batch(BatchSpec { transactional: true, ..producer(7, 0, 0) }, &[("t", Some("1"))]), Durability::Synced).unwrap();
        let end =
            TransactionEnd { producer_id: 7, producer_epoch: 0, result: keeplog_engine::record::TxnResult::Aborted, coordinator_epoch: 0 };
        log.end_transaction(&end, Durability::Synced).unwrap();
        shim.set_rule(move |call, path| match call {
            Call::Write(_) if path.to_string_lossy().ends_with(kind) => Verdict::Fail(Other),
            _ => Verdict::Go,
        });
        let mut taken = 2;
        let error = loop {
            let spec = BatchSpec { base_offset: taken, leader_epoch: 1 + (taken / 4) as i32, ..BatchSpec::default() };
            match log.append_as_follower(&batch(spec, &[("k", Some(&"v".repeat(500)))]), Durability::Buffered) {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Io, "{kind}");
        shim.heal();
        assert_eq!(append(&log, "again").unwrap_err().kind(), ErrorKind::Poisoned, "{kind}");
        drop(log);
        let log = open_on(&shim, small()).unwrap();
        let end = log.end_offset();
        assert!(end >= taken, "{kind}: {end} after {taken}");
        assert_eq!(append_synced(&log, "again").unwrap(), end);
        let image = shim.after_power_cut();
        drop(log);
        let log = open(&image, small());
        let offsets: Vec<_> = log.batches_from(0).unwrap().map(|b| b.unwrap().header.base_offset).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b) && offsets.len() as u64 == end + 1, "{kind}: {offsets:?}");
        assert!(log.recovery_report().is_sound(), "{kind}: {}", log.recovery_report());
    }
}

/// A snapshot of the producers from another time: older, newer than the log, of another end.
#[test]
fn c25_a_snapshot_of_another_time_is_not_believed() {
    let disk = disk();
    let log = open(&disk, small());
    let produce = |log: &Log, sequence| {
        log.append_batch(batch(producer(7, 0, sequence), &[("k", Some(&"v".repeat(60)))]), Durability::Synced).unwrap();
    };
    (0..10).for_each(|sequence| produce(&log, sequence));
    log.close().unwrap();
    let snapshot = files(&disk).into_iter().rfind(|name| name.ends_with(".snapshot")).unwrap();
    let old = contents(&disk, &snapshot);
    let log = open(&disk, small());
    (10..60).for_each(|sequence| produce(&log, sequence));
    let image = crash(log, &disk);
    let sequence = |log: &Log| log.active_producers()[0].last_sequence;
    // The old one restored.
    put(&image, &snapshot, &old);
    let log = open(&image, small());
    assert_eq!((sequence(&log), log.end_offset()), (59, 60));
    log.close().unwrap();
    let newest = files(&image).into_iter().rfind(|name| name.ends_with(".snapshot")).unwrap();
    let new = contents(&image, &newest);
    // New snapshots beside files of before, also under the name of an offset that the log has.
    let before = Arc::new(image.image());
    let last = files(&before).into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    put(&before, &last, b"");
    before.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    put_data(&before, POINT, b"0\n0\n");
    let log = open(&before, small());
    let end = log.end_offset();
    assert!(end < 60 && sequence(&log) as u64 == end - 1, "{}", log.recovery_report());
    let image = crash(log, &before);
    put(&image, &format!("{end:020}.snapshot"), &new);
    put_data(&image, POINT, b"0\n0\n");
    let log = open(&image, small());
    assert_eq!(sequence(&log) as u64, end - 1, "it parses, and speaks of what is not there");
}

/// Snapshots cut, zeroed, removed, or of an epoch that is older than one before: the log tells, and it opens.
#[test]
fn c31_a_bad_producer_snapshot_is_dropped_and_rebuilt_from_the_log() {
    let disk = disk();
    let log = open(&disk, small());
    for sequence in 0..60 {
        log.append_batch(batch(producer(7, 3, sequence), &[("k", Some(&"v".repeat(100)))]), Durability::Buffered).unwrap();
    }
    // An older epoch behind a newer one, as a leader of long ago let it through: as a follower takes it.
    let spec = BatchSpec { base_offset: 60, ..producer(7, 2, 0) };
    log.append_as_follower(&batch(spec, &[("k", Some("old"))]), Durability::Buffered).unwrap();
    let expected = log.active_producers();
    log.close().unwrap();
    let snapshots: Vec<_> = files(&disk).into_iter().filter(|name| name.ends_with(".snapshot")).collect();
    assert!(snapshots.len() > 1);
    for clean in [true, false] {
        for what in 0..4 {
            let image = Arc::new(disk.image());
            if !clean {
                image.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
            }
            for name in &snapshots {
                let bytes = contents(&image, name);
                match what {
                    0 => image.remove_file(&path(name)).unwrap(),
                    1 => put(&image, name, b""),
                    2 => put(&image, name, &vec![0; bytes.len()]),
                    _ => put(&image, name, &bytes[..bytes.len() - 1]),
                }
            }
            let log = open(&image, small());
            assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
            // A clean log without any snapshot has no producers, to a broker too.
            if what != 0 || !clean {
                assert_eq!(log.active_producers(), expected, "damage {what}, clean {clean}");
            }
            drop(log);
            assert!(open(&image, small()).recovery_report().is_sound());
        }
    }
}

/// Bytes of an earlier life behind the live end: they repeat offsets, and are cut. And a system without some calls is enough.
#[test]
fn c32_batches_of_an_earlier_life_behind_the_end_are_not_read() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    (0..5).for_each(|i| _ = append(&log, &format!("old {i}")).unwrap());
    let old = contents(&disk, FIRST);
    log.truncate_to(0).unwrap();
    (0..3).for_each(|i| _ = append(&log, &format!("new {i}")).unwrap());
    let image = crash(log, &disk);
    let live = contents(&image, FIRST);
    assert_eq!(live.len(), old.len() / 5 * 3);
    for stale in 0..3 {
        let image = Arc::new(image.image());
        put(&image, FIRST, &[&live[..], &old[stale * live.len() / 3..live.len()]].concat());
        let log = open(&image, LogOptions::new());
        assert_eq!(values(&log), ["new 0", "new 1", "new 2"]);
        assert_eq!(contents(&image, FIRST), live);
    }
    // What a file once held behind its end does not show when it grows again.
    assert_eq!(append(&open(&image, LogOptions::new()), "next").unwrap(), 3);

    #[cfg(target_os = "linux")]
    {
        let dir = std::fs::File::open("/proc").unwrap();
        assert_eq!(dir.sync_all().unwrap_err().raw_os_error(), Some(22), "a file system that can't sync directories");
        RealStorage::new().sync_dir(Path::new("/proc")).unwrap();
    }
}
