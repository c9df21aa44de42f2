//! Field reports about which records survive.

use keeplog_engine::record::{BatchSpec, Codec, TimestampType};

use super::build::{T0, delete, put, records};
use super::memory::{MemoryLog, Segment};
use crate::options::{CleanOptions, CleanReport};

/// Everything sealed is dirty.
pub(super) fn clean(log: &mut MemoryLog, now_ms: i64) -> CleanReport {
    log.clean(&CleanOptions::new(now_ms)).unwrap()
}

/// From where the last pass ended.
pub(super) fn clean_from(log: &mut MemoryLog, first_dirty: u64, now_ms: i64) -> CleanReport {
    log.clean(&CleanOptions { first_dirty, ..CleanOptions::new(now_ms) }).unwrap()
}

#[test]
fn the_newest_record_of_each_key_stays() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1"), put("b", "1")]);
    log.append(&[put("a", "2")]);
    log.roll();
    log.append(&[put("b", "2")]);
    log.append(&[put("c", "1")]);
    log.roll();
    log.append(&[put("c", "2")]);
    let report = clean(&mut log, T0);
    assert_eq!(log.contents(), records(&[(2, "a", Some("2")), (3, "b", Some("2")), (4, "c", Some("1")), (5, "c", Some("2"))]));
    assert_eq!((report.new_dirty, report.map_size, report.records_read, report.records_kept), (5, 3, 5, 3));
    assert_eq!((report.segments_before, report.segments_after), (2, 1));
}

#[test]
fn a_record_of_the_clean_section_goes_when_a_dirty_one_replaces_it() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1")]);
    log.append(&[put("b", "1")]);
    log.roll();
    log.append(&[put("a", "2")]);
    log.roll();
    let report = clean_from(&mut log, 2, T0);
    assert_eq!(log.contents(), records(&[(1, "b", Some("1")), (2, "a", Some("2"))]));
    assert_eq!((report.map_size, report.new_dirty), (1, 3));
}

#[test]
fn a02_tombstones_go_in_the_first_pass_after_their_retention_on_a_slow_log_too() {
    const RETENTION_MS: i64 = 1_000_000;
    let mut log = MemoryLog::new();
    log.append(&[put("k", "1")]);
    log.append(&[delete("k")]);
    log.roll();
    let mut options = CleanOptions { delete_retention_ms: RETENTION_MS, ..CleanOptions::new(T0) };
    options.first_dirty = log.clean(&options).unwrap().new_dirty;
    let stamped = log.entries()[0].1;
    assert_eq!(stamped.delete_horizon_ms(), Some(T0 + RETENTION_MS));
    assert_eq!(log.records().len(), 1);
    assert_eq!(log.contents()[0], (1, "k".to_owned(), None));

    for round in 1..=10 {
        options.now_ms += RETENTION_MS / 2;
        log.append(&[put(&format!("other-{round}"), "1")]);
        log.roll();
        options.first_dirty = log.clean(&options).unwrap().new_dirty;
        let is_there = log.contents().iter().any(|(_, key, _)| key == "k");
        assert_eq!(is_there, options.now_ms < T0 + RETENTION_MS, "round {round}");
        if is_there {
            assert_eq!(log.entries()[0].1, stamped, "the horizon does not move");
        }
    }
}

#[test]
fn a_tombstone_stays_in_the_pass_that_stamps_it_even_without_retention() {
    let mut log = MemoryLog::new();
    log.append(&[delete("k")]);
    log.append(&[put("j", "1")]);
    log.roll();
    let options = CleanOptions { delete_retention_ms: 0, ..CleanOptions::new(T0) };
    let report = log.clean(&options).unwrap();
    assert_eq!((report.records_kept, report.tombstones_kept), (2, 1));
    log.append(&[put("i", "1")]);
    log.roll();
    let report = log.clean(&CleanOptions { first_dirty: report.new_dirty, ..options }).unwrap();
    assert_eq!((report.records_kept, report.tombstones_kept), (2, 0));
}

#[test]
fn a17_the_same_key_twice_in_one_batch() {
    let mut log = MemoryLog::new();
    log.append(&[put("k", "1"), put("j", "1"), put("k", "2"), delete("j"), put("k", "3")]);
    log.roll();
    clean(&mut log, T0);
    assert_eq!(log.contents(), records(&[(3, "j", None), (4, "k", Some("3"))]));
    let (_, header, _) = log.entries()[0];
    assert_eq!((header.base_offset, header.last_offset, header.count), (0, 4, 2));
}

#[test]
fn a18_a_tombstone_leaves_its_neighbours_alone() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1"), delete("b"), put("c", "1")]);
    log.append(&[put("c", "2")]);
    log.roll();
    let report = clean(&mut log, T0);
    assert_eq!(log.contents(), records(&[(0, "a", Some("1")), (1, "b", None), (3, "c", Some("2"))]));
    log.append(&[put("d", "1")]);
    log.roll();
    clean_from(&mut log, report.new_dirty, T0 + CleanOptions::new(0).delete_retention_ms);
    assert_eq!(log.contents(), records(&[(0, "a", Some("1")), (3, "c", Some("2")), (4, "d", Some("1"))]));
}

#[test]
fn a19_records_without_a_key_go_alike_in_every_batch_and_are_counted() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1"), (None, Some(b"x")), (None, None)]);
    log.append(&[put("b", "1"), (None, Some(b"y"))]);
    log.append(&[put("b", "2")]);
    log.roll();
    let report = clean(&mut log, T0);
    assert_eq!(log.contents(), records(&[(0, "a", Some("1")), (5, "b", Some("2"))]));
    assert_eq!((report.records_keyless, report.map_size), (3, 2));
    assert!(report.to_string().contains("3 records without a key"), "{report}");
}

#[test]
fn a20_a_null_value_deletes_and_an_empty_one_does_not() {
    let mut log = MemoryLog::new();
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let (k, j) = (format!("k-{}", codec.name()), format!("j-{}", codec.name()));
        log.append_spec(BatchSpec { codec, ..BatchSpec::default() }, &[delete(&k), put(&j, ""), (Some(b""), Some(b""))]);
    }
    log.roll();
    let report = clean(&mut log, T0);
    assert_eq!((report.records_kept, report.tombstones_kept, report.map_size), (11, 5, 11));
    log.append(&[put("next", "1")]);
    log.roll();
    clean_from(&mut log, report.new_dirty, T0 + CleanOptions::new(0).delete_retention_ms);
    let left = log.contents();
    assert!(left.iter().all(|(_, _, value)| value.is_some()), "{left:?}");
    assert_eq!(left.iter().filter(|(_, key, value)| key.starts_with("j-") && value.as_deref() == Some("")).count(), 5);
    assert_eq!(left.iter().filter(|(_, key, _)| key.is_empty()).count(), 1);
}

#[test]
fn a20_tombstones_of_the_old_formats_go_by_the_age_of_their_segment() {
    const RETENTION_MS: i64 = 1000;
    let old = |base: u64, records: &[(&str, Option<&str>)], modified_ms| {
        let log = records.iter().enumerate().flat_map(|(i, (key, value))| message(base + i as u64, key, *value)).collect();
        Segment { modified_ms, ..Segment::new(base, log) }
    };
    for (clean_ms, tombstone_stays) in [(10_999, true), (11_000, false)] {
        let mut log = MemoryLog::new();
        log.segments = vec![
            old(0, &[("k", Some("1")), ("k", None), ("j", Some(""))], 10_000),
            old(3, &[("i", Some("1"))], clean_ms),
            old(4, &[("h", Some("1"))], 20_000),
            Segment::new(5, Vec::new()),
        ];
        let options = CleanOptions { first_dirty: 4, delete_retention_ms: RETENTION_MS, ..CleanOptions::new(T0) };
        log.clean(&options).unwrap();
        let keys: Vec<_> = log.contents().into_iter().map(|(_, key, _)| key).collect();
        // "k" at offset 0 stays: it is of the clean section, and only dirty records replace.
        assert_eq!(keys, if tombstone_stays { vec!["k", "k", "j", "i", "h"] } else { vec!["k", "j", "i", "h"] });
        assert!(log.entries().iter().all(|(_, header, _)| header.magic == 2));
    }
}

/// A message of format v1.
fn message(offset: u64, key: &str, value: Option<&str>) -> Vec<u8> {
    let mut body = vec![1, 0];
    body.extend_from_slice(&T0.to_be_bytes());
    body.extend_from_slice(&(key.len() as i32).to_be_bytes());
    body.extend_from_slice(key.as_bytes());
    body.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    body.extend_from_slice(value.unwrap_or_default().as_bytes());
    let mut out = offset.to_be_bytes().to_vec();
    out.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

#[test]
fn a21_a_rewritten_batch_keeps_its_envelope() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for timestamp_type in [TimestampType::Create, TimestampType::LogAppend] {
            let mut log = MemoryLog::new();
            let spec = BatchSpec {
                codec,
                timestamp_type,
                leader_epoch: 7,
                producer_id: 12,
                producer_epoch: 3,
                base_sequence: 40,
                max_timestamp: (timestamp_type == TimestampType::LogAppend).then_some(T0 + 99),
                ..BatchSpec::default()
            };
            log.append_spec(spec, &[put("a", "1"), put("b", "1"), put("c", "1")]);
            log.append(&[put("a", "2"), put("c", "2")]);
            let untouched = log.append_spec(BatchSpec { codec, ..BatchSpec::default() }, &[put("d", "1"), put("e", "1")]);
            log.roll();
            let before = log.clone();
            clean(&mut log, T0);
            let (old, new) = (before.entries()[0].1, log.entries()[0].1);
            assert_eq!((new.base_offset, new.last_offset, new.count), (0, 2, 1));
            let envelope = |h: keeplog_engine::record::BatchHeader| {
                let producer = (h.producer_id, h.producer_epoch, h.base_sequence);
                (h.magic, h.codec(), h.timestamp_type(), h.leader_epoch, producer, h.attributes)
            };
            assert_eq!(envelope(new), envelope(old));
            let time = if timestamp_type == TimestampType::LogAppend { T0 + 99 } else { T0 + 1 };
            assert_eq!(new.max_timestamp, time);
            let bytes = |log: &MemoryLog| log.entries().iter().find(|e| e.1.base_offset == untouched).unwrap().2.to_vec();
            assert_eq!(bytes(&log), bytes(&before));
        }
    }
}

#[test]
fn a22_a_batch_may_grow_when_it_is_written_again() {
    // Compressed well at a high level, then written again at the default level with one record less.
    let mut log = MemoryLog::new();
    let noise: Vec<u8> = (0..50_000_u64).flat_map(|i| format!("{} ", i * i % 9973).into_bytes()).collect();
    for codec in [Codec::Lz4, Codec::Snappy, Codec::Zstd] {
        let spec = BatchSpec { codec, level: (codec == Codec::Zstd).then_some(19), ..BatchSpec::default() };
        let key = format!("big-{}", codec.name());
        log.append_spec(spec, &[put("gone", "1"), (Some(key.as_bytes()), Some(&noise))]);
    }
    log.append(&[put("gone", "2")]);
    log.roll();
    let size = |log: &MemoryLog| log.entries()[2].1.size;
    let before = size(&log);
    let report = clean(&mut log, T0);
    assert_eq!(report.records_kept, 4);
    assert!(size(&log) > before, "{} bytes after {before}", size(&log));
    assert_eq!(log.records().iter().filter(|(_, _, value)| value.as_deref() == Some(&noise[..])).count(), 3);
}

#[test]
fn a27_a_delete_marker_stays_before_newer_data_in_every_grouping() {
    for segment_bytes in [1, 100, 160, 10_000] {
        let mut log = MemoryLog::new();
        for record in [put("k", "1"), delete("k"), put("k", "2")] {
            log.append(&[record, put("x", "y")]);
            log.roll();
        }
        let options = CleanOptions { segment_bytes, ..CleanOptions::new(T0) };
        log.clean(&options).unwrap();
        assert_eq!(log.contents(), records(&[(4, "k", Some("2")), (5, "x", Some("y"))]), "{segment_bytes}");
    }
}

/// Batches that are written again are as hard to compress as is asked for, and say the same.
#[test]
fn the_level_of_what_is_written_again_is_a_setting() {
    for (codec, low, high) in [(Codec::Zstd, -5, 19), (Codec::Gzip, 1, 9)] {
        let mut log = MemoryLog::new();
        let texts: Vec<String> = (0..300_u64).map(|i| format!("{:x}", (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) % 65_521)).collect();
        let records: Vec<_> = texts.iter().map(|text| put(text, text)).collect();
        log.append_spec(BatchSpec { codec, ..BatchSpec::default() }, &records);
        log.append(&[put(&texts[0], "newer")]);
        log.roll();
        let cleaned = |level: Option<i32>| {
            let mut log = log.clone();
            let options = CleanOptions::new(T0);
            log.clean(&if codec == Codec::Gzip { options.gzip_level(level) } else { options.zstd_level(level) }).unwrap();
            log
        };
        let (low, high, usual) = (cleaned(Some(low)), cleaned(Some(high)), cleaned(None));
        assert!(low.segments[0].log.len() > high.segments[0].log.len(), "{codec:?}");
        assert!(low.contents() == high.contents() && low.contents() == usual.contents() && usual.contents().len() == 300);
    }
    for bad in [CleanOptions::new(T0).gzip_level(Some(10)), CleanOptions::new(T0).zstd_level(Some(23))] {
        assert!(MemoryLog::new().clean(&bad).unwrap_err().to_string().contains("none of its levels"));
    }
}
