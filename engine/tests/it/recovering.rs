//! Recovery: what a real Kafka makes of damaged directories, and where we differ on purpose.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::{BatchSpec, Record};
use keeplog_engine::storage::{OpenMode, RealStorage, Storage, write_all_at};
use keeplog_engine::{DataDir, Durability, ErrorKind, Log, LogOptions, RecoveryMode, TopicPartition};
use keeplog_fixtures::{Set, cases, copy_dir, json};

use crate::support::{all, batch, contents, crash, disk, files, open, producer, put, small};

/// Opens a copy of a case as the data directory's only log, with the recovery point that Kafka was given.
fn open_case(case: &Path, root: &Path, mode: RecoveryMode) -> keeplog_engine::Result<Log> {
    let verdict = json(case.join("kafka.json"));
    copy_dir(case.join("before"), root.join("t-0"));
    let recovery_point = verdict["recovery_point"].as_u64().unwrap();
    std::fs::write(root.join("recovery-point-offset-checkpoint"), format!("0\n1\nt 0 {recovery_point}\n")).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    // Producers must not have expired: the clock of the case.
    let storage: Arc<dyn Storage> = Arc::new(keeplog_engine::storage::FixedClock::new(storage, crate::support::T0 + 1000));
    let options = LogOptions::new().segment_bytes(8192).index_interval_bytes(512).recovery_mode(mode).recovery_full_scan(true);
    Log::open_with(storage, &root.join("t-0"), options)
}

/// Cases in which Kafka's outcome is not ours: see the README of the fixtures.
const OURS: [&str; 8] = [
    "11-active-magic-9",
    "12-active-batch-twice",
    "13-active-older-batch-again",
    "14-sealed-bit",
    "15-sealed-cut",
    "16-sealed-missing",
    "17-sealed-bit-below-recovery-point",
    "18-sealed-cut-below-recovery-point",
];

#[test]
fn damaged_directories_end_as_with_kafka() {
    let mut checked = 0;
    for case in cases(Set::Recovery) {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        if OURS.contains(&name.as_str()) || name == "31-txnindex-garbage" {
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let log = open_case(&case, root.path(), RecoveryMode::TruncateTail).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let verdict = json(case.join("kafka.json"));
        let report = log.recovery_report();
        // As Kafka does, the tail goes from the flipped bit on; that sound batches went with it is said.
        assert_eq!(report.damage.len(), usize::from(name == "06-active-middle-bit"), "{name}: {report}");
        let offsets = (log.start_offset(), log.end_offset(), log.last_stable_offset());
        let number = |field: &str| verdict[field].as_u64().unwrap();
        assert_eq!(offsets, (number("log_start_offset"), number("log_end_offset"), number("last_stable_offset")), "{name}");
        let segments: Vec<_> =
            verdict["segments"].as_array().unwrap().iter().map(|s| (s["base"].as_u64().unwrap(), s["bytes"].as_u64().unwrap())).collect();
        assert_eq!(report.segments, segments, "{name}");
        log.batches_from(0).unwrap().for_each(|b| assert!(b.is_ok(), "{name}"));
        checked += 1;
    }
    assert_eq!(checked, 25);
}

fn outcome(name: &str, mode: RecoveryMode) -> (Log, tempfile::TempDir) {
    let case = cases(Set::Recovery).into_iter().find(|c| c.ends_with(name)).unwrap();
    let root = tempfile::tempdir().unwrap();
    let log = open_case(&case, root.path(), mode).unwrap();
    (log, root)
}

#[test]
fn offsets_that_go_back_are_cut_as_a_bad_tail() {
    for name in ["12-active-batch-twice", "13-active-older-batch-again"] {
        let (log, _root) = outcome(name, RecoveryMode::TruncateTail);
        let report = log.recovery_report();
        assert_eq!(log.end_offset(), 383, "{name}");
        assert!(report.cut_bytes() > 0 && report.cuts[0].why.contains("was there before"), "{name}: {report}");
        assert_eq!(report.segments[3], (296, 5981));
    }
}

#[test]
fn damage_in_sealed_segments_is_reported_and_kept() {
    for (name, segment, bytes) in
        [("14-sealed-bit", 1, 8109), ("17-sealed-bit-below-recovery-point", 0, 8138), ("18-sealed-cut-below-recovery-point", 0, 8133)]
    {
        let (log, _root) = outcome(name, RecoveryMode::TruncateTail);
        let report = log.recovery_report();
        assert_eq!((log.end_offset(), report.cut_bytes(), report.damage.len()), (383, 0, 1), "{name}: {report}");
        assert_eq!(report.segments.len(), 4);
        assert_eq!(report.segments[segment].1, bytes, "{name}");
        assert!(log.read_from(report.segments[segment].0).unwrap().any(|r| r.is_err()), "{name}: the damage is not passed over in silence");
        let error = log.read_from(0).unwrap().find_map(Result::err).unwrap();
        assert_eq!(error.resume_offset(), Some(report.segments[segment + 1].0), "{error}");
        let after = log.read_from(error.resume_offset().unwrap()).unwrap();
        assert!(after.map(Result::unwrap).count() > 50, "{name}: later segments can be read");
        log.append(&[Record::new("k", "v")], Durability::Synced).unwrap();
    }
}

#[test]
fn the_unreadable_end_of_an_unsynced_sealed_segment_does_not_stop_readers() {
    let (log, _root) = outcome("15-sealed-cut", RecoveryMode::TruncateTail);
    let report = log.recovery_report();
    assert_eq!((log.end_offset(), report.cut_bytes(), report.damage.len()), (383, 73, 1), "{report}");
    assert_eq!(report.segments[1], (91, 8031));
    let offsets: Vec<_> = log.read_from(0).unwrap().map(|r| r.unwrap().offset()).collect();
    assert!(offsets.contains(&382) && !offsets.contains(&196), "what was cut off is missing, and nothing else");
}

#[test]
fn batches_behind_damage_are_found_before_anything_is_cut() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..6 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(600))], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    log.append(&[Record::new("last", "v")], Durability::Buffered).unwrap();
    let image = crash(log, &disk);
    // A length that reaches past the end of the file, in the middle of a sealed segment and of the last one.
    let first = "00000000000000000000.log";
    let mut bytes = contents(&image, first);
    let second = 12 + u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
    bytes[second + 8] = 0x7f;
    put(&image, first, &bytes);
    let log = open(&image, small());
    let report = log.recovery_report().clone();
    assert_eq!((report.cut_bytes(), report.damage.len(), log.end_offset()), (0, 1, 7), "{report}");
    assert_eq!(contents(&image, first), bytes, "sound batches behind it are kept");
    drop(log);
    image.remove_file(&crate::support::path("00000000000000000006.log")).unwrap();
    put(&image, first, &bytes);
    put_data(&image, "recovery-point-offset-checkpoint", b"0\n0\n");
    put_data(&image, "replication-offset-checkpoint", b"0\n0\n");
    // A copy that a crash cut short is completed, and what was cut at the same place before is left alone.
    let (older, copy) = (format!("{first}.cut-{second}"), format!("{first}.cut-{second}-1"));
    put(&image, &older, b"of another time");
    put(&image, &copy, &bytes[second..second + 100]);
    let image = Arc::new(image.image());
    let log = open(&image, small());
    let report = log.recovery_report();
    assert_eq!((log.end_offset(), report.damage.len()), (1, 1), "{report}");
    assert!(report.damage[0].what.contains("went too"), "{report}");
    assert_eq!(report.cuts[0].kept_in.as_deref(), Some(&*copy));
    assert_eq!(contents(&image, &copy), bytes[second..], "what was cut is kept");
    assert_eq!(contents(&image, &older), b"of another time");
}

fn put_data(disk: &keeplog_engine::storage::MemoryStorage, name: &str, bytes: &[u8]) {
    let file = disk.open(&Path::new("/data").join(name), keeplog_engine::storage::OpenMode::Truncate).unwrap();
    keeplog_engine::storage::write_all_at(&*file, bytes, 0).unwrap();
}

#[test]
fn salvage_cuts_where_kafka_cuts() {
    for (name, end) in [("14-sealed-bit", 151), ("15-sealed-cut", 196)] {
        let (log, root) = outcome(name, RecoveryMode::Salvage);
        let report = log.recovery_report();
        assert_eq!((log.end_offset(), report.damage.len()), (end, 1), "{name}: {report}");
        assert_eq!(report.cuts.len(), 3, "the rest of one segment, and two whole ones");
        let before = cases(Set::Recovery).into_iter().find(|c| c.ends_with(name)).unwrap().join("before");
        for cut in &report.cuts {
            let kept = std::fs::read(root.path().join("t-0").join(cut.kept_in.as_ref().unwrap())).unwrap();
            let original = std::fs::read(before.join(&cut.file)).unwrap();
            assert_eq!(kept, original[cut.position as usize..], "{name}: what was cut is kept");
        }
        assert_eq!(log.read_from(0).unwrap().map(Result::unwrap).last().unwrap().offset() + 1, end, "{name}");
    }
}

#[test]
fn strict_changes_nothing() {
    let case = cases(Set::Recovery).into_iter().find(|c| c.ends_with("05-active-last-batch-bit")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let error = open_case(&case, root.path(), RecoveryMode::Strict).unwrap_err();
    assert_eq!((error.kind(), error.position().is_some()), (ErrorKind::Corrupt, true));
    for file in std::fs::read_dir(case.join("before")).unwrap() {
        let name = file.unwrap().file_name();
        assert_eq!(
            std::fs::read(case.join("before").join(&name)).unwrap(),
            std::fs::read(root.path().join("t-0").join(&name)).unwrap(),
            "{name:?}"
        );
    }
}

#[test]
fn a_missing_segment_is_reported() {
    let (log, _root) = outcome("16-sealed-missing", RecoveryMode::TruncateTail);
    let report = log.recovery_report();
    assert_eq!((report.damage.len(), report.damage[0].offset), (1, 91), "{report}");
    assert_eq!(log.end_offset(), 383);
}

#[test]
fn an_unknown_format_at_the_end_is_kept_and_stops_appends() {
    let (log, _root) = outcome("11-active-magic-9", RecoveryMode::TruncateTail);
    let report = log.recovery_report();
    assert_eq!((report.damage.len(), report.cut_bytes(), report.segments[3].1), (1, 0, 5981), "{report}");
    assert!(report.read_only);
    assert_eq!(log.append(&[Record::new("k", "v")], Durability::Buffered).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(log.read_from(0).unwrap().map(Result::unwrap).last().unwrap().offset() + 1, log.end_offset());
}

#[test]
fn a_damaged_transaction_index_is_rebuilt() {
    let (log, root) = outcome("31-txnindex-garbage", RecoveryMode::TruncateTail);
    assert_eq!((log.end_offset(), log.last_stable_offset(), log.recovery_report().damage.len()), (383, 340, 0));
    assert_eq!(std::fs::metadata(root.path().join("t-0/00000000000000000091.txnindex")).unwrap().len(), 102);
}

/// The last segments of a partition whose broker was killed: preallocated indexes, no clean mark.
#[test]
fn a_killed_brokers_partition_opens() {
    let root = tempfile::tempdir().unwrap();
    let source = keeplog_fixtures::unpack(Set::Killed);
    let path = root.path().join("orders-0");
    copy_dir(source.join("before"), &path);
    let log = Log::open(&path, LogOptions::new()).unwrap();
    assert_eq!(log.recovery_report().damage, []);
    let records = log.read_from(log.start_offset()).unwrap().map(Result::unwrap).count();
    assert!(records > 1000, "{records}");
    log.close().unwrap();
    let again = Log::open(&path, LogOptions::new()).unwrap();
    assert!(again.recovery_report().clean);
    assert_eq!(again.end_offset(), log.end_offset());
}

#[test]
fn a_clean_close_needs_no_scan_and_a_crash_scans_from_the_recovery_point() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    log.close().unwrap();
    let log = open(&disk, small());
    assert_eq!((log.recovery_report().clean, log.recovery_report().segments_scanned), (true, 0));
    log.append(&[Record::new("k100", "v")], Durability::Synced).unwrap();
    let image = crash(log, &disk);
    let log = open(&image, small());
    assert_eq!((log.recovery_report().clean, log.recovery_report().segments_scanned), (false, 1));
    assert_eq!(all(&log).len(), 101);
}

/// Where a scan meets an epoch first is not where it began: that may lie before the recovery point, or be cleaned away.
#[test]
fn a_crash_keeps_the_leader_epochs() {
    let disk = disk();
    let log = open(&disk, small());
    for offset in 0..40 {
        let spec = BatchSpec { base_offset: offset, leader_epoch: [3, 3, 5, 8][offset as usize / 10], ..BatchSpec::default() };
        log.append_as_follower(&batch(spec, &[("k", Some("v"))]), Durability::Buffered).unwrap();
        if offset % 10 == 9 {
            log.roll().unwrap();
        }
    }
    let image = crash(log, &disk);
    let epochs = b"0\n3\n3 0\n5 20\n8 30\n";
    assert_eq!(contents(&image, "leader-epoch-checkpoint"), epochs);
    let checkpoint = image.open(Path::new("/data/recovery-point-offset-checkpoint"), OpenMode::Truncate).unwrap();
    write_all_at(&*checkpoint, b"0\n1\nt 0 15\n", 0).unwrap();
    assert_eq!(open(&image, small()).recovery_report().segments_scanned, 4);
    assert_eq!(contents(&image, "leader-epoch-checkpoint"), epochs);
    // One that the checkpoint has not heard of is added.
    put(&image, "leader-epoch-checkpoint", b"0\n2\n3 0\n5 20\n");
    let image = crash(open(&image, small().recovery_full_scan(true)), &image);
    assert_eq!(contents(&image, "leader-epoch-checkpoint"), epochs);
}

/// C04 and C06: any fragment at the end is cut from the file itself, and the next append lands right behind what is sound.
#[test]
fn every_torn_tail_is_cut() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    log.append(&[Record::new("a", "1")], Durability::Synced).unwrap();
    let whole = contents(&disk, "00000000000000000000.log");
    log.append(&[Record::new("b", "2")], Durability::Synced).unwrap();
    let image = crash(log, &disk);
    let both = contents(&image, "00000000000000000000.log");
    for cut in whole.len()..both.len() {
        let image = std::sync::Arc::new(image.image());
        put(&image, "00000000000000000000.log", &both[..cut]);
        let log = open(&image, LogOptions::new());
        assert_eq!((log.end_offset(), log.recovery_report().cut_bytes()), (1, (cut - whole.len()) as u64));
        assert_eq!(contents(&image, "00000000000000000000.log"), whole);
        log.append(&[Record::new("c", "3")], Durability::Synced).unwrap();
        let again = crash(log, &image);
        assert_eq!(all(&open(&again, LogOptions::new())), [(0, "a".into(), Some("1".into())), (1, "c".into(), Some("3".into()))]);
    }
}

/// C15 and C16: indexes of any contents, or none, beside a sound log.
#[test]
fn damaged_and_missing_indexes_are_rebuilt() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    log.close().unwrap();
    let indexes: Vec<_> = files(&disk).into_iter().filter(|n| n.ends_with("index")).collect();
    for name in indexes {
        let good = contents(&disk, &name);
        let mut damaged: Vec<Vec<u8>> =
            vec![vec![0; good.len().max(24)], [&good[..], b"noise"].concat(), vec![0xff; 48], [&good[..], &good[..]].concat()];
        if !good.is_empty() {
            damaged.push(good[..good.len() - 1].to_vec());
        }
        for bytes in damaged {
            let image = std::sync::Arc::new(disk.image());
            put(&image, &name, &bytes);
            let log = open(&image, small());
            for offset in 0..100 {
                assert_eq!(log.read_from(offset).unwrap().next().unwrap().unwrap().offset(), offset, "{name}");
            }
            assert_eq!(log.recovery_report().rebuilt.len(), 1, "{name}: {}", log.recovery_report());
        }
        let image = std::sync::Arc::new(disk.image());
        image.remove_file(&crate::support::path(&name)).unwrap();
        assert_eq!(all(&open(&image, small())).len(), 100, "without {name}");
    }
}

#[test]
fn several_logs_of_one_directory_need_its_owner() {
    let disk = disk();
    let log = open(&disk, small());
    let second = Log::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data/u-0"), small());
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Locked);
    log.close().unwrap();
    let dir = Arc::new(DataDir::open(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data")).unwrap());
    let first = Log::open_in(&dir, &TopicPartition::new("t", 0).unwrap(), small()).unwrap();
    let second = Log::open_in(&dir, &TopicPartition::new("u", 0).unwrap(), small()).unwrap();
    assert!(Log::open_in(&dir, &TopicPartition::new("u", 0).unwrap(), small()).is_err(), "one handle's log at a time");
    first.close().unwrap();
    second.close().unwrap();
    dir.close().unwrap();
}

/// A full scan leaves no damaged snapshot, wherever it stands.
#[test]
fn a_full_scan_removes_damaged_snapshots() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..200 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    log.close().unwrap();
    let oldest = files(&disk).into_iter().find(|n| n.ends_with(".snapshot")).unwrap();
    put(&disk, &oldest, b"noise");
    let log = open(&disk, small().recovery_full_scan(true));
    assert!(log.recovery_report().removed.contains(&oldest), "{}", log.recovery_report());
    assert!(!files(&disk).contains(&oldest));
}

/// A start inside a segment: no snapshot is made below it, only to be removed and reported.
#[test]
fn a_full_scan_saves_no_snapshot_below_the_start() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..9 {
        log.append(&[Record::new(format!("k{i}"), "v")], Durability::Buffered).unwrap();
        if i % 3 == 2 && i < 8 {
            log.roll().unwrap();
        }
    }
    log.advance_start(4).unwrap();
    log.apply_retention().unwrap();
    log.close().unwrap();
    // Takes away the one that the roll had left.
    open(&disk, small()).close().unwrap();
    let log = open(&disk, small().recovery_full_scan(true));
    assert_eq!((log.segments().all().len(), log.start_offset()), (2, 4));
    assert_eq!(log.recovery_report().removed, Vec::<String>::new());
    assert!(!files(&disk).contains(&"00000000000000000003.snapshot".to_owned()));
}

/// The log bears witness of its producers, also where the only snapshot of a clean close is damaged.
#[test]
fn a_damaged_snapshot_does_not_end_transactions() {
    let disk = disk();
    let log = open(&disk, small());
    log.append_batch(batch(BatchSpec { transactional: true, ..producer(7, 0, 0) }, &[("t", Some("1"))]), Durability::Buffered).unwrap();
    log.append(&[Record::new("k", "v")], Durability::Buffered).unwrap();
    log.close().unwrap();
    for full_scan in [true, false] {
        let image = std::sync::Arc::new(disk.image());
        put(&image, "00000000000000000002.snapshot", b"noise");
        let log = open(&image, small().recovery_full_scan(full_scan));
        assert_eq!((log.recovery_report().clean, log.last_stable_offset()), (true, 0), "full scan: {full_scan}");
    }
}

/// What a broker left stays as far as it is right: an empty transaction index is not taken away.
#[test]
fn an_empty_transaction_index_stays() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    let image = crash(log, &disk);
    put(&image, "00000000000000000000.txnindex", b"");
    drop(open(&image, small().recovery_full_scan(true)));
    assert_eq!(contents(&image, "00000000000000000000.txnindex"), b"");
    put(&image, "00000000000000000000.txnindex", b"noise");
    drop(open(&image, small().recovery_full_scan(true)));
    assert_eq!(contents(&image, "00000000000000000000.txnindex"), b"");
}

#[test]
fn an_index_that_goes_beyond_the_end_is_rebuilt_behind_a_clean_mark() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..20 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(60))], Durability::Buffered).unwrap();
    }
    log.close().unwrap();
    for (name, at) in [("00000000000000000000.timeindex", 9), ("00000000000000000000.index", 1)] {
        let disk = Arc::new(disk.image());
        let sound = contents(&disk, name);
        let mut damaged = sound.clone();
        let last = damaged.len() - if name.ends_with(".index") { 8 } else { 12 };
        damaged[last + at] = 1; // its offset, 65536 higher
        put(&disk, name, &damaged);
        let log = open(&disk, small());
        assert_eq!(log.recovery_report().rebuilt.len(), 1, "{name}");
        log.append(&[Record::new("more", "v").timestamp_ms(crate::support::T0 + 10)], Durability::Buffered).unwrap();
        log.close().unwrap();
        assert!(contents(&disk, name).starts_with(&sound[..sound.len() - 12]), "{name}");
        assert_eq!(all(&open(&disk, small())).len(), 21, "{name}");
    }
}

#[test]
fn producers_are_known_after_a_cut_took_all_snapshots() {
    let disk = disk();
    let log = open(&disk, small());
    let produce = |sequence: i32| {
        let batch = crate::support::batch(crate::support::producer(7, 0, sequence), &[("k", Some(&"v".repeat(500)))]);
        log.append_batch(batch, Durability::Buffered).unwrap();
    };
    (0..20).for_each(produce);
    let known = log.segments().all()[1].base_offset();
    log.close().unwrap();
    let name = "00000000000000000000.log";
    put(&disk, name, &[contents(&disk, name), vec![0; 100]].concat());
    disk.remove_file(Path::new("/data/recovery-point-offset-checkpoint")).unwrap();

    let log = open(&disk, small().recovery_mode(RecoveryMode::Salvage).recovery_full_scan(true));
    assert_eq!(log.end_offset(), known);
    let producers: Vec<_> = log.active_producers().iter().map(|p| (p.id, p.last_data_offset)).collect();
    assert_eq!(producers, [(7, Some(known - 1))]);
}

/// A clean log whose recovery point was lost: a damaged index has an early segment read, and damage found there.
#[test]
fn salvage_may_drop_the_segments_that_a_clean_close_vouched_for() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..120 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(80))], Durability::Buffered).unwrap();
    }
    let second = log.segments().all()[1].base_offset();
    assert!(log.segments().all().len() >= 3);
    log.close().unwrap();
    disk.remove_file(Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
    disk.remove_file(&crate::support::path("00000000000000000000.index")).unwrap();
    let name = "00000000000000000000.log";
    put(&disk, name, &[contents(&disk, name), vec![0; 100]].concat());

    let log = open(&disk, small().recovery_mode(RecoveryMode::Salvage));
    assert_eq!((log.end_offset(), log.segments().all().len()), (second, 1));
    log.append(&[Record::new("more", "v")], Durability::Buffered).unwrap();
    log.close().unwrap();
    assert_eq!(all(&open(&disk, small())).len() as u64, second + 1);
}

#[test]
fn a_log_that_starts_over_takes_appends_whatever_was_damaged_in_it() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..10 {
        log.append(&[Record::new(format!("k{i}"), "v")], Durability::Buffered).unwrap();
    }
    log.close().unwrap();
    let name = "00000000000000000000.log";
    let mut bytes = contents(&disk, name);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    put(&disk, name, &bytes);
    let start = disk.open(Path::new("/data/log-start-offset-checkpoint"), keeplog_engine::storage::OpenMode::Truncate).unwrap();
    keeplog_engine::storage::write_all_at(&*start, b"0\n1\nt 0 500\n", 0).unwrap();

    let log = open(&disk, small().recovery_full_scan(true));
    assert_eq!((log.start_offset(), log.end_offset(), log.recovery_report().read_only), (500, 500, false));
    assert_eq!(log.append(&[Record::new("k", "v")], Durability::Synced).unwrap().base_offset, 500);
}

/// A link or a directory in place of a segment: without it the log would be another one.
#[cfg(unix)]
#[test]
fn a_segment_that_is_no_file_is_refused() {
    for name in ["00000000000000000091.log", "00000000000000000296.log", "00000000000000000383.log", "00000000000000000091.log.swap"] {
        let case = cases(Set::Recovery).into_iter().find(|c| c.ends_with("01-untouched")).unwrap();
        let root = tempfile::tempdir().unwrap();
        drop(open_case(&case, root.path(), RecoveryMode::TruncateTail).unwrap());
        let (path, elsewhere) = (root.path().join("t-0").join(name), root.path().join("elsewhere"));
        let reopen = || {
            let storage: Arc<dyn Storage> = Arc::new(keeplog_engine::storage::RealStorage::new());
            Log::open_with(storage, &root.path().join("t-0"), LogOptions::new())
        };
        if path.exists() {
            std::fs::rename(&path, &elsewhere).unwrap();
        } else {
            std::fs::write(&elsewhere, b"").unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let error = reopen().unwrap_err();
        assert_eq!((error.kind(), error.path().and_then(Path::file_name)), (ErrorKind::Corrupt, Some(name.as_ref())), "{error:?}");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(reopen().unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(elsewhere.is_file(), "what it led to is untouched");
    }
}

/// The end of a log that was closed was put in another's place: it has as many offsets, and nothing of its transaction.
#[test]
fn a_snapshot_of_a_clean_close_does_not_count_after_a_cut() {
    let disk = disk();
    let log = open(&disk, small());
    let plain = |base_offset, last_offset| batch(BatchSpec { base_offset, last_offset, ..BatchSpec::default() }, &[("k", Some("v"))]);
    log.append_batch(plain(0, None), Durability::Buffered).unwrap();
    let transactional = BatchSpec { transactional: true, ..producer(7, 0, 0) };
    log.append_batch(batch(transactional, &[("t", Some("1"))]), Durability::Buffered).unwrap();
    assert_eq!((log.end_offset(), log.last_stable_offset()), (2, 1));
    log.close().unwrap();
    put(&disk, "00000000000000000000.log", &[plain(0, Some(1)), vec![0; 100]].concat());
    for mode in [RecoveryMode::TruncateTail, RecoveryMode::Salvage] {
        let image = Arc::new(disk.image());
        let log = open(&image, small().recovery_mode(mode).recovery_full_scan(true));
        assert_eq!((log.end_offset(), log.last_stable_offset()), (2, 2), "{}", log.recovery_report());
        assert_eq!(open(&crash(log, &image), small()).last_stable_offset(), 2);
    }
}
