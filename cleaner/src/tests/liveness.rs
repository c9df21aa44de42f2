//! Field reports about passes that end, make progress, and leave a clean log alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use keeplog_engine::ErrorKind;
use keeplog_engine::record::{BatchSpec, Codec, TxnResult};

use super::build::{Producer, T0, delete, put, records};
use super::keys::{clean, clean_from};
use super::memory::MemoryLog;
use crate::options::{CleanOptions, CleanOutcome, Merge, Overflow, Progress, Watch};

const SPAN: u64 = 1 << 31;

#[test]
fn a07_empty_segments_are_merged_away_even_if_far_apart() {
    let mut log = MemoryLog::new();
    for i in 0..4 {
        log.roll_at(i * SPAN);
        log.append(&[put("a", "1")]);
    }
    log.segments.remove(0);
    log.roll_at(4 * SPAN);
    log.append(&[put("a", "2")]);
    log.roll();
    let mut first_dirty = clean(&mut log, T0).new_dirty;
    for pass in 2..=3 {
        log.append(&[put(&format!("pass {pass}"), "1")]);
        log.roll();
        let options = CleanOptions { first_dirty, segment_bytes: 1, ..CleanOptions::new(T0) };
        let report = log.clean(&options).unwrap();
        first_dirty = report.new_dirty;
        let empty = log.segments.iter().take_while(|segment| segment.log.is_empty()).count();
        assert!(empty <= 1, "pass {pass} leaves {empty} empty segments");
        assert_eq!(report.bytes_written, 0, "pass {pass}");
    }
}

#[test]
fn a_group_never_spans_more_offsets_than_an_index_can_hold() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1")]);
    log.roll();
    log.append(&[put("b", "1")]);
    log.roll_at(SPAN);
    log.append(&[put("c", "1")]);
    log.roll();
    for (merge, bases) in [(Merge::Sources, [0, SPAN, SPAN + 1]), (Merge::Kept, [0, 1, SPAN + 1])] {
        let mut log = log.clone();
        log.clean(&CleanOptions { merge, ..CleanOptions::new(T0) }).unwrap();
        assert_eq!(log.segments.iter().map(|segment| segment.base).collect::<Vec<_>>(), bases);
    }
}

#[test]
fn b02_a_map_too_small_for_a_segment_takes_a_bounded_number_of_passes() {
    const KEYS: u64 = 1000;
    let mut log = MemoryLog::new();
    for round in 0..2 {
        for batch in 0..KEYS / 4 {
            let keys: Vec<String> = (0..4).map(|i| format!("key-{}", batch * 4 + i)).collect();
            let value = format!("{round}");
            log.append(&keys.iter().map(|key| put(key, &value)).collect::<Vec<_>>());
        }
    }
    log.roll();
    let mut options = CleanOptions { dedupe_keys_max: Some(97), overflow: Overflow::EndPass, ..CleanOptions::new(T0) };
    let mut passes = 0;
    loop {
        let report = log.clean(&options).unwrap();
        if report.outcome == CleanOutcome::NothingDirty {
            break;
        }
        passes += 1;
        assert!(report.new_dirty >= (options.first_dirty + 97).min(2 * KEYS), "pass {passes}: {report}");
        assert!(report.map_size <= 97);
        assert_eq!(report.to_string().contains("in the next pass"), report.new_dirty < report.first_uncleanable);
        options.first_dirty = report.new_dirty;
    }
    assert_eq!(passes, 2 * KEYS / 97 + 1);
    assert_eq!(log.contents().len() as u64, KEYS);
    assert!(log.contents().iter().all(|(_, _, value)| value.as_deref() == Some("1")));
}

#[test]
fn b02_a_map_too_small_for_a_segment_needs_one_pass_that_reads_again() {
    const KEYS: u64 = 1000;
    let mut log = MemoryLog::new();
    for round in 0..2 {
        for key in 0..KEYS {
            log.append(&[put(&format!("key-{key}"), &format!("{round}"))]);
        }
    }
    log.append(&[(None, Some(b"x"))]);
    log.roll();
    let (before, roomy) = (log.clone(), CleanOptions { hash_seed: Some(1), ..CleanOptions::new(T0) });
    let tight = CleanOptions { dedupe_keys_max: Some(97), ..roomy.clone() };
    let report = log.clean(&tight).unwrap();
    assert_eq!((report.new_dirty, report.map_size, report.records_keyless), (2 * KEYS + 1, KEYS, 1));
    assert!(report.readings > 10 && report.readings < 20, "{report}");
    assert!(report.map_bytes < 97 * 64 / 6 + 64 + 2 * KEYS / 8 + 64, "{report}");
    let mut other = before;
    assert_eq!(other.clean(&roomy).unwrap().readings, 1);
    assert_eq!(log, other);
}

#[test]
fn a_log_that_repeats_its_keys_is_one_pass_however_long_it_is() {
    let mut log = MemoryLog::new();
    for i in 0..1000 {
        log.append(&[put(&format!("key-{}", i % 10), "1")]);
    }
    log.roll();
    let report = log.clean(&CleanOptions { dedupe_keys_max: Some(11), overflow: Overflow::EndPass, ..CleanOptions::new(T0) }).unwrap();
    assert_eq!((report.new_dirty, report.map_size, report.records_kept), (1000, 10, 10));
    // With room for ten keys, the eleventh record finds the map full, as Kafka's would be.
    let mut log = MemoryLog::new();
    for i in 0..1000 {
        log.append(&[put(&format!("key-{}", i % 10), "1")]);
    }
    log.roll();
    let report = log.clean(&CleanOptions { dedupe_keys_max: Some(10), overflow: Overflow::EndPass, ..CleanOptions::new(T0) }).unwrap();
    assert_eq!((report.new_dirty, report.map_size, report.records_kept), (10, 10, 1000));
}

#[test]
fn a_full_map_may_end_a_pass_in_the_middle_of_a_batch() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1"), put("b", "1")]);
    log.append(&[put("a", "2"), delete("c"), put("a", "3"), (None, Some(b"x")), put("b", "2")]);
    log.roll();
    let options = CleanOptions { dedupe_keys_max: Some(3), overflow: Overflow::EndPass, ..CleanOptions::new(T0) };
    let report = log.clean(&options).unwrap();
    // "c" is the third key; the next keyed record finds the map full. All from there on stays, keyless or not.
    assert_eq!((report.new_dirty, report.records_keyless), (4, 0));
    assert_eq!(
        log.contents(),
        records(&[(1, "b", Some("1")), (2, "a", Some("2")), (3, "c", None), (4, "a", Some("3")), (5, "-", Some("x")), (6, "b", Some("2"))])
    );
    let report = log.clean(&CleanOptions { first_dirty: 4, ..options }).unwrap();
    assert_eq!((report.new_dirty, report.records_keyless), (7, 1));
    assert_eq!(log.contents(), records(&[(3, "c", None), (4, "a", Some("3")), (6, "b", Some("2"))]));
}

#[test]
fn a_pass_that_a_full_map_ends_between_segments_goes_on_where_the_next_one_begins() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1"), put("b", "1")]);
    log.roll_at(100);
    log.append(&[put("a", "2")]);
    log.roll();
    let options = CleanOptions { dedupe_keys_max: Some(2), overflow: Overflow::EndPass, ..CleanOptions::new(T0) };
    assert_eq!(log.clean(&options).unwrap().new_dirty, 100);
}

#[test]
fn the_last_batch_of_a_pass_that_a_full_map_ends_is_like_any_other() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1")]);
    log.append(&[delete("b")]);
    log.append(&[put("c", "1")]);
    log.append(&[put("d", "1")]);
    log.roll();
    let options = CleanOptions { delete_retention_ms: 0, ..CleanOptions::new(T0) };
    log.clean(&options).unwrap();
    // The tombstone has expired, and the second key fills the map: offset 1 is the last of the pass.
    let report = log.clean(&CleanOptions { dedupe_keys_max: Some(2), overflow: Overflow::EndPass, ..options }).unwrap();
    assert_eq!(report.new_dirty, 2);
    assert_eq!(log.entries().iter().map(|(_, header, _)| header.base_offset).collect::<Vec<_>>(), [0, 2, 3]);
}

#[test]
fn b04_a_batch_larger_than_a_chunk() {
    let mut log = MemoryLog::new();
    let big = "x".repeat(3 << 20);
    log.append(&[put("a", "1")]);
    log.append(&[put("big", &big), put("a", "2")]);
    log.append(&[put("b", "1")]);
    log.append(&[put("a", "3")]);
    log.roll();
    let report = log.clean(&CleanOptions { chunk_bytes: 64 << 10, ..CleanOptions::new(T0) }).unwrap();
    assert_eq!((report.records_read, report.records_kept), (5, 3));
    assert_eq!(log.contents()[0].2.as_deref(), Some(&big[..]));
}

#[test]
fn b05_a_run_of_dead_batches_longer_than_a_chunk() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    for i in 0..500 {
        log.append_by(&mut producer, &[put(&format!("key-{i}"), "never committed")]);
    }
    log.end_txn(&producer, TxnResult::Aborted);
    log.append(&[put("a", "1")]);
    log.roll();
    let report = log.clean(&CleanOptions { chunk_bytes: 512, ..CleanOptions::new(T0) }).unwrap();
    assert_eq!((report.records_kept, report.map_size), (2, 1));
    assert_eq!(log.entries().len(), 3);
}

#[test]
fn b08_settings_that_leave_no_room_are_refused() {
    let mut log = MemoryLog::new();
    let base = CleanOptions::new(T0);
    let refused = [
        CleanOptions { dedupe_buffer_bytes: 0, ..base.clone() },
        CleanOptions { dedupe_buffer_bytes: 1, ..base.clone() },
        CleanOptions { dedupe_buffer_bytes: 63, ..base.clone() },
        CleanOptions { dedupe_keys_max: Some(0), ..base.clone() },
        CleanOptions { chunk_bytes: 0, ..base.clone() },
        CleanOptions { delete_retention_ms: -1, ..base.clone() },
        CleanOptions { now_ms: -1, ..base.clone() },
    ];
    for options in refused {
        let error = log.clean(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{options:?}");
        assert!(error.to_string().contains('='), "names the setting: {error}");
    }
    log.append(&[put("a", "1"), put("a", "2")]);
    log.roll();
    let smallest = log.clean(&CleanOptions { dedupe_buffer_bytes: 64, ..base }).unwrap();
    assert_eq!((smallest.new_dirty, smallest.map_bytes), (2, 64));
}

#[test]
fn b15_a_clean_log_is_not_written_again() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    log.append_by(&mut producer, &[put("a", "1")]);
    log.end_txn(&producer, TxnResult::Committed);
    log.roll();
    log.append(&[put("b", "1")]);
    log.roll();
    log.end_txn(&Producer::transactional(2), TxnResult::Committed);
    log.roll();
    let mut options = CleanOptions { segment_bytes: 1, ..CleanOptions::new(T0) };
    options.first_dirty = log.clean(&options).unwrap().new_dirty;
    for round in 2..=10 {
        log.append(&[put(&format!("round {round}"), "1")]);
        log.roll();
        let before = log.segments.clone();
        let report = log.clean(&options).unwrap();
        options.first_dirty = report.new_dirty;
        assert_eq!(report.bytes_written, 0, "round {round}");
        assert!(report.bytes_kept > 0);
        assert_eq!(log.segments, before, "round {round}");
    }
}

#[test]
fn a_change_in_one_segment_leaves_the_others_untouched() {
    let mut log = MemoryLog::new();
    for i in 0..5 {
        log.append(&[put(&format!("key-{i}"), "1"), put(&format!("other-{i}"), "1")]);
        log.roll();
    }
    let options = CleanOptions { segment_bytes: 1, ..CleanOptions::new(T0) };
    let first_dirty = log.clean(&options).unwrap().new_dirty;
    log.append(&[put("key-2", "2")]);
    log.roll();
    let report = log.clean(&CleanOptions { first_dirty, ..options }).unwrap();
    assert_eq!(report.bytes_written, log.segments[2].log.len() as u64);
    assert_eq!((report.segments_before, report.segments_after), (6, 6));
}

#[test]
fn b24_an_empty_log_and_one_of_dead_records_only() {
    let mut log = MemoryLog::new();
    let report = clean(&mut log, T0);
    assert_eq!(report.outcome, CleanOutcome::NothingDirty);
    assert!(report.to_string().contains("nothing to clean"), "{report}");

    log.roll_at(10);
    log.roll_at(20);
    let report = clean(&mut log, T0);
    assert_eq!((report.outcome, report.new_dirty, report.segments_after), (CleanOutcome::Cleaned, 20, 1));

    let mut log = MemoryLog::new();
    log.append(&[delete("a"), delete("b")]);
    log.roll();
    let report = clean(&mut log, T0);
    log.roll_at(5);
    let report = clean_from(&mut log, report.new_dirty, T0 + 10 * CleanOptions::new(0).delete_retention_ms);
    assert_eq!((report.outcome, report.new_dirty, report.records_kept), (CleanOutcome::Cleaned, 5, 0));
    assert_eq!(log.contents(), []);
}

#[test]
fn the_last_offset_of_the_range_stays_known() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1")]);
    log.append(&[(None, Some(b"no key"))]);
    log.roll();
    clean(&mut log, T0);
    let (_, last, _) = *log.entries().last().unwrap();
    assert_eq!((last.base_offset, last.count), (1, 0));
    // Once more: there is nothing else to be done about it.
    let before = log.clone();
    let report = clean(&mut log, T0);
    assert_eq!((report.bytes_written, &log), (0, &before));
}

/// Stops a pass after some pieces.
#[derive(Default)]
struct Stopper {
    pieces: AtomicUsize,
    stop_after: usize,
    charged: AtomicUsize,
}

impl Watch for Stopper {
    fn progress(&self, progress: Progress) {
        assert!(progress.bytes_done <= progress.bytes_total);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.pieces.load(Ordering::Relaxed) >= self.stop_after
    }

    fn charge(&self, bytes: u64) {
        self.charged.fetch_add(usize::try_from(bytes).unwrap(), Ordering::Relaxed);
    }
}

#[test]
fn a24_a_stopped_pass_leaves_the_log_as_it_was() {
    let mut log = MemoryLog::new();
    for i in 0..40 {
        log.append_spec(BatchSpec { codec: Codec::Lz4, ..BatchSpec::default() }, &[put(&format!("key-{}", i % 7), "some value")]);
        if i % 10 == 9 {
            log.roll();
        }
    }
    let before = log.clone();
    let options = CleanOptions { chunk_bytes: 100, segment_bytes: 1, ..CleanOptions::new(T0) };
    let mut stop_after = 0;
    loop {
        let watch = Stopper { stop_after, ..Stopper::default() };
        let report = log.clean_watched(&options, &watch).unwrap();
        if report.outcome == CleanOutcome::Cleaned {
            assert_eq!(watch.charged.into_inner() as u64, report.bytes_read + report.bytes_written);
            break;
        }
        assert_eq!((report.outcome, report.new_dirty), (CleanOutcome::Stopped, 0));
        assert!(report.to_string().contains("as before"), "{report}");
        assert_eq!(log, before);
        stop_after += 1;
    }
    assert!(stop_after > 40, "stopped before every piece, and before the swap: {stop_after}");
    assert_ne!(log, before);
}

#[test]
fn a_dry_run_is_charged_for_what_it_reads_alone() {
    let mut log = MemoryLog::new();
    for i in 0..40 {
        log.append(&[put(&format!("key-{}", i % 7), "some value")]);
    }
    log.roll();
    for dry_run in [true, false] {
        let watch = Stopper { stop_after: usize::MAX, ..Stopper::default() };
        let report = log.clone().clean_watched(&CleanOptions { dry_run, ..CleanOptions::new(T0) }, &watch).unwrap();
        assert!(report.bytes_written > 0);
        let written = if dry_run { 0 } else { report.bytes_written };
        assert_eq!(watch.charged.into_inner() as u64, report.bytes_read + written);
    }
}

/// Stops a pass before its first byte is read, and notes what it was told by then.
#[derive(Default)]
struct AtStart(std::sync::Mutex<Vec<Progress>>);

impl Watch for AtStart {
    fn progress(&self, progress: Progress) {
        self.0.lock().unwrap().push(progress);
    }

    fn is_stopped(&self) -> bool {
        true
    }
}

#[test]
fn how_much_there_is_to_read_is_told_before_any_of_it_is_read() {
    let mut log = MemoryLog::new();
    for i in 0..40 {
        log.append(&[put(&format!("key-{}", i % 7), "some value")]);
        if i % 10 == 9 {
            log.roll();
        }
    }
    let bytes: usize = log.segments.iter().map(|segment| segment.log.len()).sum();
    let watch = AtStart::default();
    assert_eq!(log.clean_watched(&CleanOptions::new(T0), &watch).unwrap().outcome, CleanOutcome::Stopped);
    let told = watch.0.into_inner().unwrap();
    assert_eq!(told.last(), Some(&Progress { segment: Some(30), bytes_done: 0, bytes_total: bytes as u64 }));
}
