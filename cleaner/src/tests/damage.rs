//! Damaged logs and indexes that lie.

use keeplog_engine::ErrorKind;
use keeplog_engine::record::{BatchSpec, Codec};
use proptest::prelude::*;

use super::build::{T0, delete, put};
use super::memory::MemoryLog;
use crate::options::{CleanOptions, Overflow};

/// Two segments of batches of all codecs, in many chunks.
fn log() -> MemoryLog {
    let mut log = MemoryLog::new();
    for i in 0..30 {
        let codec = [Codec::None, Codec::Lz4, Codec::None, Codec::Zstd, Codec::Snappy, Codec::Gzip][i % 6];
        let (key, other) = (format!("key-{}", i % 7), format!("other-{i}"));
        log.append_spec(BatchSpec { codec, ..BatchSpec::default() }, &[put(&key, "some value"), delete(&other), put(&key, "another")]);
        if i == 15 {
            log.roll();
        }
    }
    log.roll();
    // Nobody asks damaged batches for their producers.
    log.producers = Some(Vec::new());
    log
}

fn options() -> CleanOptions {
    CleanOptions { chunk_bytes: 300, hash_seed: Some(1), ..CleanOptions::new(T0) }
}

fn positions(log: &MemoryLog, segment: usize) -> Vec<u32> {
    let sizes = log.entries().into_iter().filter(|(at, _, _)| *at == segment).map(|(_, header, _)| header.size);
    sizes.scan(0, |position, size| Some(std::mem::replace(position, *position + size))).collect()
}

#[test]
fn a_damaged_batch_stops_the_pass_and_is_named() {
    let log = log();
    for (segment, header, _) in log.entries() {
        let at = positions(&log, segment)[log.entries().iter().filter(|e| e.0 == segment && e.1.base_offset < header.base_offset).count()];
        let mut damaged = log.clone();
        // In the records, which the checksum covers.
        damaged.segments[segment].log[at as usize + 70] ^= 0x20;
        let before = damaged.clone();
        let error = damaged.clean(&options()).unwrap_err();
        assert_eq!((error.kind(), error.position()), (ErrorKind::Corrupt, Some(u64::from(at))), "{error}");
        assert_eq!(error.path().unwrap().to_str(), Some(&format!("/memory/{:020}.log", log.segments[segment].base)[..]));
        assert_eq!(damaged, before);
    }
}

#[test]
fn a_torn_end_and_left_over_bytes_stop_the_pass() {
    for (cut, add) in [(1, 0), (30, 0), (0, 1), (0, 17), (0, 100)] {
        let mut log = log();
        let bytes = &mut log.segments[0].log;
        bytes.truncate(bytes.len() - cut);
        bytes.extend(std::iter::repeat_n(0, add));
        let before = log.clone();
        let error = log.clean(&options()).unwrap_err();
        assert!(error.is_corruption(), "{error:?}");
        assert_eq!(log, before);
    }
}

#[test]
fn offsets_that_do_not_rise_stop_the_pass() {
    let mut log = log();
    // A batch twice; and one that reaches into the next segment. Checksums do not cover base offsets.
    let first = log.entries()[0].2.to_vec();
    for chunk_bytes in [1, 300, 1 << 20] {
        let mut twice = log.clone();
        twice.segments[0].log.splice(0..0, first.clone());
        let error = twice.clean(&CleanOptions { chunk_bytes, ..options() }).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("offset"), "{error}");
    }

    let last = positions(&log, 0)[15] as usize;
    log.segments[0].log[last..last + 8].copy_from_slice(&46_u64.to_be_bytes());
    let error = log.clean(&options()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("next segment"), "{error}");
}

#[test]
fn an_index_that_lies_makes_no_difference() {
    let honest = {
        let mut log = log();
        log.clean(&options()).unwrap();
        log
    };
    let true_positions = positions(&log(), 0);
    let size = log().segments[0].log.len() as u32;
    let lies: Vec<Vec<u32>> = vec![
        true_positions.clone(),
        true_positions[1..].iter().copied().step_by(3).collect(),
        vec![0],
        true_positions.iter().map(|position| position + 1).collect(),
        true_positions.iter().map(|position| position + 61).collect(),
        vec![300, 200, 100],
        vec![true_positions[4], true_positions[4]],
        vec![size - 1],
        vec![size],
        vec![size + 1000],
        vec![u32::MAX],
        (1..size).collect(),
    ];
    for lie in lies {
        for chunk_bytes in [1, 100, 300, 1000] {
            let mut log = log();
            log.segments[0].index_positions = lie.clone();
            log.clean(&CleanOptions { chunk_bytes, ..options() }).unwrap();
            let strip = |log: &MemoryLog| log.segments.iter().map(|segment| segment.log.clone()).collect::<Vec<_>>();
            assert_eq!(strip(&log), strip(&honest), "{lie:?}");
        }
    }
}

#[test]
fn a_batch_inside_a_value_is_no_batch_whatever_the_index_says() {
    // A whole sound batch as a value, and an index that points at it.
    let mut inner = MemoryLog::new();
    inner.append_spec(BatchSpec { base_offset: 5, ..BatchSpec::default() }, &[put("victim", "forged")]);
    let forged = inner.segments[0].log.clone();

    let mut log = MemoryLog::new();
    log.append(&[put("victim", "true")]);
    log.append(&[put("x", "y")]);
    log.append(&[(Some(b"carrier"), Some(&forged))]);
    log.append(&[put("z", "y")]);
    log.roll_at(10);
    let bytes = &log.segments[0].log;
    let at = bytes.windows(forged.len()).position(|window| window == forged).unwrap() as u32;
    log.segments[0].index_positions = vec![at];
    let before = log.clone();
    let report = log.clean(&CleanOptions { chunk_bytes: at, ..options() }).unwrap();
    assert_eq!((report.records_kept, report.map_size), (4, 4));
    assert_eq!(log, before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any bytes changed anywhere: a verdict or an error, no panic, and after an error the log as it was.
    #[test]
    fn any_damage_is_an_error_or_no_matter(
        flips in prop::collection::vec((0..2_usize, any::<prop::sample::Index>(), 1..=255_u8), 1..4),
        chunk_bytes in 1..2000_u32,
        keys in 1..60_u64,
        overflow in prop::sample::select(vec![Overflow::EndPass, Overflow::ReadAgain]),
    ) {
        let mut log = log();
        for (segment, at, mask) in flips {
            let bytes = &mut log.segments[segment].log;
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        let before = log.clone();
        let options = CleanOptions { chunk_bytes, dedupe_keys_max: Some(keys), overflow, batch_bytes_max: 1 << 20, ..options() };
        if log.clean(&options).is_err() {
            prop_assert_eq!(log.segments, before.segments);
        }
    }
}

/// A message of format v0 or v1.
fn message(offset: i64, magic: u8, codec: u8, key: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
    let mut body = vec![magic, codec];
    if magic == 1 {
        body.extend(T0.to_be_bytes());
    }
    body.extend(key.map_or(-1, |key| key.len() as i32).to_be_bytes());
    body.extend(key.unwrap_or_default());
    body.extend((value.len() as i32).to_be_bytes());
    body.extend(value);
    let size = body.len() as i32 + 4;
    [&offset.to_be_bytes()[..], &size.to_be_bytes(), &crc32fast::hash(&body).to_be_bytes(), &body].concat()
}

/// A wrapper with the offset `offset` of messages with these offsets in it, in gzip without any compression.
fn wrapper(offset: i64, magic: u8, inner: &[i64]) -> Vec<u8> {
    let set: Vec<u8> = inner.iter().flat_map(|at| message(*at, magic, 0, Some(format!("key-{at}").as_bytes()), b"v")).collect();
    let len = set.len() as u16;
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    gzip.extend([len.to_le_bytes(), (!len).to_le_bytes()].concat());
    gzip.extend(&set);
    gzip.extend([crc32fast::hash(&set), u32::from(len)].map(u32::to_le_bytes).concat());
    message(offset, magic, 1, None, &gzip)
}

/// Entries of one segment, and one record more in the next.
fn of_entries(entries: &[Vec<u8>]) -> MemoryLog {
    let mut log = MemoryLog::new();
    log.segments[0].log = entries.concat();
    log.producers = Some(Vec::new());
    log.roll_at(1 << 40);
    log
}

#[test]
fn old_wrappers_whose_offsets_were_there_before_are_named() {
    // Of format v1 the offset of a wrapper is that of its last message: 6..=9, and 9 - 5 = 4..=9 again behind 0..=5.
    let sound = [wrapper(5, 1, &[0, 1, 2, 3, 4, 5]), wrapper(9, 1, &[0, 1, 2, 3])];
    let mut log = of_entries(&sound);
    assert_eq!(log.clean(&CleanOptions::new(T0)).unwrap().records_read, 10);
    let overlapping = [wrapper(5, 1, &[0, 1, 2, 3, 4, 5]), wrapper(9, 1, &[0, 1, 2, 3, 4, 5])];
    // In one chunk, and in one each.
    for chunk_bytes in [1 << 20, 1] {
        let mut log = of_entries(&overlapping);
        let error = log.clean(&CleanOptions { chunk_bytes, ..CleanOptions::new(T0) }).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
        if chunk_bytes > 1 {
            assert_eq!(error.position(), Some(overlapping[0].len() as u64), "{text}");
            assert!(text.contains("offsets from 4 on, but those below 6 were there before"), "{text}");
        } else {
            assert!(text.contains("offset 5 is not below 4"), "{text}");
        }
    }
}

#[test]
fn an_old_wrapper_that_spans_more_than_a_batch_may_is_told_with_what_to_do() {
    const FAR: i64 = 3 << 30;
    // Of format v0 the offsets of messages are their own. One of its keys comes again later, so that it can't stay as it is.
    let mut log = of_entries(&[wrapper(FAR, 0, &[0, 1, FAR])]);
    let last = log.segments.len() - 1;
    log.segments[last].log = message(1 << 40, 0, 0, Some(b"key-1"), b"newer");
    log.roll();
    let before = log.clone();
    let error = log.clean(&CleanOptions::new(T0)).map(|report| report.to_string()).unwrap_err();
    let text = error.to_string();
    assert_eq!((error.kind(), error.position()), (ErrorKind::TooLarge, Some(0)), "{text}");
    assert!(text.contains(&FAR.to_string()) && text.contains("copied into a new one"), "{text}");
    assert_eq!(log, before);
}
