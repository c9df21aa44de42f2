//! Field reports about sizes, bounds and indexes of cleaned logs.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::{BatchSpec, Record};
use keeplog_engine::storage::Storage;
use keeplog_engine::{Durability, Log, LogOptions};
use keeplog_index::OffsetIndex;
use proptest::prelude::*;

use super::build::T0;
use super::field::{Disk, append, batch, bytes_of, contents, open_with};
use super::real::{PATH, names, open};
use crate::clean;
use crate::options::{CleanOptions, CleanOutcome};
use crate::schedule::{Dirtiness, LogFacts, Rules};

#[test]
fn d04_a_segment_without_records_has_no_time() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    append(&log, &[Record::new("a", "1"), Record::new("b", "1")]);
    log.roll().unwrap();
    append(&log, &[Record::new("a", "2"), Record::new("b", "2")]);
    log.roll().unwrap();
    clean(&log, &CleanOptions { segment_bytes: 1, ..CleanOptions::new(T0) }, &()).unwrap();
    assert_eq!(log.segments().all()[0].size_bytes(), 0);
    assert!(bytes_of(&storage, "00000000000000000000.timeindex").is_empty());
    assert_eq!(log.segments().all()[0].largest_timestamp(), -1);
    log.roll().unwrap();
    log.close().unwrap();
    let log = open(&storage);
    assert!(log.recovery_report().is_sound() && log.recovery_report().clean, "{}", log.recovery_report());
    assert_eq!(log.find_by_timestamp(0).unwrap(), Some((2, T0)));
}

#[test]
fn d05_the_indexes_of_a_cleaned_segment_are_relative_to_its_base() {
    const BASE: u64 = 5_000_000_000;
    let storage = Disk::empty().as_storage();
    let options = LogOptions::new().segment_bytes(1 << 20).index_interval_bytes(512);
    let log = open_with(&storage, options.clone());
    let value = "v".repeat(100);
    let at = |base_offset: u64| {
        let keys = [format!("key-{}", base_offset % 600), "twice".to_owned()];
        let records: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(value.as_str()))).collect();
        batch(BatchSpec { base_offset, ..BatchSpec::default() }, &records)
    };
    for i in 0..400 {
        log.append_as_follower(&at(BASE + 2 * i), Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    clean(&log, &CleanOptions::for_log(log.options(), T0), &()).unwrap();
    log.close().unwrap();
    let log = open_with(&storage, options);
    let segment = Arc::clone(log.segments().sealed().last().unwrap());
    assert_eq!(segment.base_offset(), BASE);
    let stored = OffsetIndex::new(BASE, bytes_of(&storage, &format!("{BASE:020}.index"))).unwrap();
    assert_eq!(stored.check(u32::try_from(segment.size_bytes()).unwrap(), BASE + 800), Ok(()));
    assert!(stored.len() > 20);
    let batches: Vec<_> = log.batches_from(BASE).unwrap().map(Result::unwrap).collect();
    let mut position = 0;
    for batch in &batches {
        let from = u64::from(segment.position_for(batch.header.base_offset).unwrap());
        let size = u64::from(batch.header.size);
        assert!(from <= position && position - from <= 512 + size, "offset {} is {} bytes away", batch.header.base_offset, position - from);
        position += size;
    }
    for offset in [BASE, BASE + 400, BASE + 799] {
        assert!(log.read_from(offset).unwrap().next().unwrap().unwrap().offset() >= offset);
    }
}

#[test]
fn d19_the_start_is_not_above_the_first_survivor() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    for i in 0..500 {
        append(&log, &[Record::new(format!("key-{}", i % 7), "old")]);
    }
    append(&log, &(0..7).map(|i| Record::new(format!("key-{i}"), "new")).collect::<Vec<_>>());
    log.roll().unwrap();
    clean(&log, &CleanOptions { segment_bytes: 4096, ..CleanOptions::new(T0) }, &()).unwrap();
    let check = |log: &Log| {
        assert!(log.start_offset() <= 500);
        let offsets: Vec<_> = log.read_from(log.start_offset()).unwrap().map(|r| r.unwrap().offset()).collect();
        assert_eq!(offsets, (500..507).collect::<Vec<_>>());
    };
    check(&log);
    log.apply_retention().unwrap();
    check(&log);
    log.close().unwrap();
    check(&open(&storage));
}

#[test]
fn b14_what_lies_below_the_start_is_removed_and_not_read() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    for i in 0..8 {
        append(&log, &[Record::new("k", "x".repeat(50)), Record::new(format!("key-{i}"), "1")]);
        log.roll().unwrap();
    }
    log.advance_start(7).unwrap();
    // Even damage there is nobody's concern any more.
    let dead = log.segments().all()[1].path();
    storage.open(&dead, keeplog_engine::storage::OpenMode::Write).unwrap().write_at(&[0xee], 70).unwrap();
    let sizes: u64 = log.segments().sealed()[3..].iter().map(|s| s.size_bytes()).sum();
    let report = clean(&log, &CleanOptions { segment_bytes: 4096, ..CleanOptions::new(T0) }, &()).unwrap();
    assert_eq!((report.outcome, report.bytes_read, report.records_kept), (CleanOutcome::Cleaned, sizes, 6));
    assert_eq!(log.segments().all()[0].base_offset(), 0);
    assert_eq!(log.apply_retention().unwrap().segments, 3);
    let logs: Vec<_> = names(&storage).into_iter().filter(|name| name.ends_with(".log") || name.contains(".deleted")).collect();
    assert_eq!(logs, ["00000000000000000006.log", "00000000000000000016.log"]);
    assert_eq!(contents(&log).iter().map(|(offset, _, _)| *offset).collect::<Vec<_>>(), [7, 9, 11, 13, 14, 15]);
}

/// The files of sealed segments hold their data and nothing more.
fn check_files(storage: &Arc<dyn Storage>, log: &Log) {
    for segment in log.segments().sealed() {
        let len = |suffix: &str| storage.metadata(&segment.path().with_extension(suffix)).unwrap().len;
        assert_eq!(len("log"), segment.size_bytes());
        assert_eq!(len("index"), u64::from(segment.offset_index_bytes()));
        assert_eq!(len("timeindex"), u64::from(segment.time_index_bytes()));
    }
}

#[test]
fn b22_sealed_and_cleaned_files_end_with_their_data() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    let mut options = CleanOptions { segment_bytes: 4096, ..CleanOptions::new(T0) };
    for round in 0..2 {
        for i in 0..100 {
            append(&log, &[Record::new(format!("key-{}", i % 40), format!("{round} {}", "x".repeat(60)))]);
        }
        log.roll().unwrap();
        check_files(&storage, &log);
        options.first_dirty = clean(&log, &options, &()).unwrap().new_dirty;
        check_files(&storage, &log);
    }
    log.close().unwrap();
    let log = open_with(&storage, LogOptions::new().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    check_files(&storage, &log);
    assert_eq!(contents(&log).len(), 40);
}

/// How dirty the log is, counted anew from its files.
fn recount(storage: &Arc<dyn Storage>, log: &Log, first_dirty: u64) -> (u64, u64) {
    let files = storage.list(Path::new(PATH)).unwrap();
    let bases: Vec<u64> = files.iter().filter_map(|entry| entry.name.strip_suffix(".log")?.parse().ok()).collect();
    let size = |base: &u64| storage.metadata(&Path::new(PATH).join(format!("{base:020}.log"))).unwrap().len;
    let (_, sealed) = bases.split_last().unwrap();
    assert_eq!(log.segments().all().iter().map(|s| s.base_offset()).collect::<Vec<_>>(), bases);
    let ends = sealed[sealed.len().min(1)..].iter().chain(bases.last());
    let clean = bases.iter().filter(|base| **base < first_dirty).map(size).sum();
    let dirty = sealed.iter().zip(ends).filter(|(_, end)| **end > first_dirty).map(|(base, _)| size(base)).sum();
    (clean, dirty)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn b12_dirty_bytes_are_what_a_recount_gives_after_any_steps(steps in prop::collection::vec((0..10_u8, any::<u16>()), 1..120)) {
        let storage = Disk::empty().as_storage();
        let mut log = open(&storage);
        for (step, number) in steps {
            let (start, end) = (log.start_offset(), log.end_offset());
            let offset = start + u64::from(number) % (end - start + 1);
            match step {
                0..=4 => _ = append(&log, &[Record::new(format!("key-{}", number % 9), "x".repeat(usize::from(number % 900)))]),
                5 => log.roll().unwrap(),
                6 => {
                    let facts = LogFacts::read(&log, log.data_dir().cleaner_offset(log.topic_partition()), &Rules::from(log.options())).unwrap();
                    let first_dirty = Dirtiness::of(&facts, &Rules::from(log.options()), T0).first_dirty;
                    let merges = if number % 2 == 0 { 1 } else { 4096 };
                    let report = clean(&log, &CleanOptions { first_dirty, segment_bytes: merges, ..CleanOptions::new(T0) }, &()).unwrap();
                    log.set_cleaner_offset(report.new_dirty, log.truncations());
                }
                7 => {
                    log.advance_start(offset).unwrap();
                    log.apply_retention().unwrap();
                }
                8 => log.truncate_to(offset).unwrap(),
                _ => {
                    log.close().unwrap();
                    log = open(&storage);
                }
            }
            let rules = Rules::from(log.options());
            let facts = LogFacts::read(&log, log.data_dir().cleaner_offset(log.topic_partition()), &rules).unwrap();
            let dirtiness = Dirtiness::of(&facts, &rules, T0);
            prop_assert_eq!((dirtiness.clean_bytes, dirtiness.cleanable_bytes), recount(&storage, &log, dirtiness.first_dirty));
            prop_assert!((0.0..=1.0).contains(&dirtiness.ratio()));
        }
    }
}
