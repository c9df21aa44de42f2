//! Field reports about maps too small for a log, and ranges without a segment, at their sizes.

use std::sync::atomic::{AtomicU64, Ordering};

use keeplog_engine::record::Record;

use super::build::{KeyValue, T0};
use super::field::{Disk, append};
use super::memory::MemoryLog;
use super::real::{names, open};
use crate::clean;
use crate::options::{CleanOptions, CleanOutcome, Overflow, Watch};

/// Bytes that a pass has read and written.
#[derive(Default)]
struct Charged(AtomicU64);

impl Watch for Charged {
    fn charge(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// All keys differ, so that a pass leaves the log as it is and can be run by itself: the first ones, some in the middle, and the
/// last ones up to the end. Each gets a map further, and reads the log twice at most.
#[test]
fn b02_a_million_keys_in_one_segment_and_a_map_of_a_thousand() {
    const KEYS: u64 = 1_000_000;
    const SLOTS: u64 = 1000;
    let mut log = MemoryLog::new();
    for batch in 0..KEYS / 1000 {
        let keys: Vec<[u8; 8]> = (0..1000).map(|i| (batch * 1000 + i).to_be_bytes()).collect();
        log.append(&keys.iter().map(|key| (Some(&key[..]), Some(&b"v"[..]))).collect::<Vec<KeyValue<'_>>>());
    }
    log.roll();
    let bytes = log.segments[0].log.len() as u64;
    let options = CleanOptions { dedupe_keys_max: Some(SLOTS), overflow: Overflow::EndPass, ..CleanOptions::new(T0) };
    for pass in [0, 1, 2, 500, 501, 998, 999] {
        let (first_dirty, charged) = (pass * SLOTS, Charged::default());
        let report = log.clean_watched(&CleanOptions { first_dirty, ..options.clone() }, &charged).unwrap();
        assert_eq!((report.new_dirty, report.map_size, report.records_kept), (first_dirty + SLOTS, SLOTS, KEYS), "pass {pass}");
        assert_eq!(report.bytes_written, 0, "pass {pass}");
        assert!(charged.0.into_inner() <= 3 * bytes, "pass {pass}: what finds the map full, where it ends, and the pass itself");
    }
    let charged = Charged::default();
    let report = log.clean_watched(&CleanOptions { first_dirty: KEYS, ..options }, &charged).unwrap();
    assert_eq!((report.outcome, charged.0.into_inner()), (CleanOutcome::NothingDirty, 0), "quiet");
}

/// Ranges of offsets from a mark `a` to a bound `b`: none is a segment but what lies between two bases.
#[test]
fn b10_a_range_has_the_segments_that_lie_in_it_and_an_empty_one_none() {
    let storage = Disk::empty().as_storage();
    let log = open(&storage);
    for i in 0..105 {
        append(&log, &[Record::new(format!("key-{}", i % 10), "x".repeat(200))]);
    }
    let set = log.segments();
    let (a, end) = (set.active().base_offset() + 2, log.end_offset());
    assert!(set.sealed().len() >= 4 && a + 2 < end);
    let pass = |first_dirty, bound, dry_run| {
        let options = CleanOptions { first_dirty, first_uncleanable: Some(bound), dry_run, ..CleanOptions::new(T0) };
        clean(&log, &options, &()).unwrap()
    };
    let before = names(&storage);
    // [a, a), [a, b) in the active segment, and b below a: a lag may hold the bound below the mark, so that this is no error.
    for (from, to) in [(a, a), (a, a + 2), (a, a - 1), (a, 0), (end, end), (set.all()[1].base_offset(), set.all()[1].base_offset())] {
        let report = pass(from, to, false);
        assert_eq!((report.outcome, report.segments_before, report.bytes_read), (CleanOutcome::NothingDirty, 0, 0), "{from}..{to}");
    }
    assert_eq!(names(&storage), before);
    let bases = [set.all()[1].base_offset(), set.all()[2].base_offset()];
    for (from, to, of) in [(bases[0], bases[1], 1), (bases[0] + 1, bases[1], 1), (bases[0] + 1, bases[1] + 1, 1), (0, bases[1], 2)] {
        let dirty: u64 = set.all()[2 - of..2].iter().map(|segment| segment.size_bytes()).sum();
        assert_eq!(pass(from, to, true).dirty_bytes, dirty, "{from}..{to}");
    }
    assert_eq!(pass(bases[0] + 1, bases[0] + 2, true).outcome, CleanOutcome::NothingDirty, "within one segment, which waits as a whole");
}
