//! Retention and truncation.

use std::path::Path;

use keeplog_engine::record::{BatchSpec, Record};
use keeplog_engine::storage::Storage;
use keeplog_engine::{CleanupPolicy, Durability, Log, LogOptions};

use crate::support::{T0, all, batch, crash, disk, files, open, producer, small};

fn fill(log: &Log, records: u64) {
    for i in 0..records {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100)).timestamp_ms(T0 + i as i64 * 1000)], Durability::Buffered).unwrap();
    }
}

#[test]
fn age_and_size_remove_whole_old_segments() {
    let disk = disk();
    let log = open(&disk, small().cleanup_policy(CleanupPolicy::Delete).retention_ms(Some(50_000)).retention_bytes(Some(6000)));
    fill(&log, 100);
    disk.set_now_ms(T0 + 100_000);
    let before: u64 = log.segments().all().iter().map(|s| s.size_bytes()).sum();
    let report = log.apply_retention().unwrap();
    let after: u64 = log.segments().all().iter().map(|s| s.size_bytes()).sum();
    assert_eq!(before - after, report.bytes);
    assert!((6000..10_200).contains(&after), "{after}");
    assert_eq!(log.start_offset(), log.segments().all()[0].base_offset());
    disk.set_now_ms(T0 + 1_000_000);
    log.apply_retention().unwrap();
    assert_eq!((log.start_offset(), log.end_offset(), log.segments().all().len()), (100, 100, 1));
    assert!(files(&disk).iter().all(|f| !f.contains(".deleted")), "{:?}", files(&disk));
}

#[test]
fn compacted_logs_are_not_deleted_by_age() {
    let disk = disk();
    let log = open(&disk, small().retention_ms(Some(1)));
    fill(&log, 100);
    disk.set_now_ms(T0 + 1_000_000_000);
    assert_eq!(log.apply_retention().unwrap().segments, 0);
}

/// B23: one record dated far ahead does not keep its segment for ever.
#[test]
fn a_record_from_the_future_does_not_block_retention() {
    let disk = disk();
    let log = open(&disk, small().cleanup_policy(CleanupPolicy::Delete).retention_ms(Some(3_600_000)));
    log.append(&[Record::new("k", "v").timestamp_ms(4_102_444_800_000)], Durability::Buffered).unwrap();
    log.roll().unwrap();
    fill(&log, 3);
    disk.set_now_ms(T0 + 3_700_000);
    assert!(log.apply_retention().unwrap().segments >= 1);
}

/// A transaction that began below the start holds back nothing that can still be read.
#[test]
fn the_last_stable_offset_is_not_below_the_start() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 5);
    log.append_batch(batch(BatchSpec { transactional: true, ..producer(7, 0, 0) }, &[("t", Some("1"))]), Durability::Buffered).unwrap();
    fill(&log, 100);
    assert_eq!(log.last_stable_offset(), 5);
    log.advance_start(70).unwrap();
    assert_eq!(log.last_stable_offset(), 70);
    assert_eq!(log.read_committed_from(70).unwrap().count(), 0);
    let image = crash(log, &disk);
    assert_eq!(open(&image, small()).last_stable_offset(), 70);
}

/// C24: the start offset never goes back, also over a crash.
#[test]
fn an_advanced_start_survives_a_crash() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 100);
    log.sync().unwrap();
    log.advance_start(70).unwrap();
    let image = crash(log, &disk);
    let log = open(&image, small());
    assert_eq!(log.start_offset(), 70);
    assert_eq!(all(&log).len(), 30);
}

#[test]
fn truncation_cuts_whole_batches_and_the_end_is_where_it_was_asked() {
    for target in [0, 1, 2, 3, 50, 51, 99, 100, 150, 199, 200] {
        let disk = disk();
        let log = open(&disk, small());
        for i in 0..100 {
            log.append(&[Record::new(format!("k{i}"), "v".repeat(50)), Record::new("x", "y")], Durability::Buffered).unwrap();
        }
        log.truncate_to(target).unwrap();
        assert_eq!(log.end_offset(), target);
        assert_eq!(all(&log).len() as u64, target / 2 * 2, "at {target}");
        let placed = log.append(&[Record::new("next", "v")], Durability::Synced).unwrap();
        assert_eq!(placed.base_offset, target);
        let image = crash(log, &disk);
        let log = open(&image, small());
        assert_eq!((log.end_offset(), all(&log).len() as u64), (target + 1, target / 2 * 2 + 1));
    }
}

#[test]
fn truncation_forgets_what_producers_did_above_it() {
    let disk = disk();
    let log = open(&disk, small());
    for sequence in 0..60 {
        log.append_batch(batch(producer(5, 0, sequence), &[("k", Some(&"v".repeat(100)))]), Durability::Buffered).unwrap();
    }
    log.truncate_to(30).unwrap();
    assert_eq!(log.active_producers()[0].last_sequence, 29);
    let placed = log.append_batch(batch(producer(5, 0, 30), &[("k", Some("v"))]), Durability::Buffered).unwrap();
    assert_eq!((placed.base_offset, placed.duplicate), (30, false));
}

/// C18: a truncation to the base of the active segment, and an append after reopening.
#[test]
fn an_emptied_active_segment_takes_appends_again() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 10);
    log.roll().unwrap();
    log.append(&[Record::new("gone", "v")], Durability::Buffered).unwrap();
    log.truncate_to(10).unwrap();
    log.close().unwrap();
    let log = open(&disk, LogOptions::new());
    assert_eq!(log.end_offset(), 10);
    log.append(&[Record::new("k", "v")], Durability::Synced).unwrap();
    assert_eq!(log.segments().all().len(), 2);
}

/// Between the removal of the last old segment and the first sync of the new one, the directory may be empty.
#[test]
fn a_truncation_below_the_first_segment_does_not_take_the_start_with_it() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 100);
    let first = log.segments().all()[2].base_offset();
    log.advance_start(first).unwrap();
    log.apply_retention().unwrap();
    log.close().unwrap();
    // As a broker leaves it: the first segment says where the log starts.
    disk.remove_file(Path::new("/data/log-start-offset-checkpoint")).unwrap();
    let log = open(&disk, small());
    assert_eq!(log.start_offset(), first);
    log.truncate_to(first - 3).unwrap();
    let image = crash(log, &disk);
    for name in files(&image).into_iter().filter(|name| name.ends_with(".log")) {
        // As a crash in the middle would leave it.
        image.remove_file(&crate::support::path(&name)).unwrap();
    }
    let log = open(&image, small());
    assert!(log.start_offset() >= first - 3, "offsets are not given twice: {}", log.start_offset());
}

/// Of what retention was removing when the power failed, anything may be left.
#[test]
fn what_an_interrupted_retention_leaves_is_no_damage() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log, 100);
    log.sync().unwrap();
    let bases: Vec<_> = log.segments().all().iter().map(|s| s.base_offset()).collect();
    log.advance_start(bases[2]).unwrap();
    let image = crash(log, &disk);
    image.remove_file(&crate::support::path(&format!("{:020}.log", bases[1]))).unwrap();
    let log = open(&image, small());
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(log.start_offset(), bases[2]);
}
