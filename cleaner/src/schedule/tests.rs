use super::*;

pub(super) const NOW_MS: i64 = 1_000_000;

fn rules() -> Rules {
    Rules { min_cleanable_dirty_ratio: 0.5, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX }
}

/// Segments of (base offset, bytes); all timestamps are `NOW_MS`.
pub(super) fn log(segments: &[(u64, u64)], checkpoint: Option<u64>, end_offset: u64) -> LogFacts {
    let facts = |&(base_offset, size_bytes): &(u64, u64)| SegmentFacts {
        base_offset,
        size_bytes,
        largest_timestamp_ms: NOW_MS,
        first_timestamp_ms: Some(NOW_MS),
        modified_ms: Some(NOW_MS),
    };
    let segments = segments.iter().map(facts).collect();
    LogFacts { start_offset: 0, end_offset, last_stable_offset: end_offset, checkpoint, segments }
}

fn dirtiness(log: &LogFacts) -> Dirtiness {
    Dirtiness::of(log, &rules(), NOW_MS)
}

#[test]
fn dirty_is_what_lies_between_checkpoint_and_active_segment() {
    let d = dirtiness(&log(&[(0, 100), (10, 50), (20, 70), (30, 999)], Some(10), 35));
    assert_eq!((d.first_dirty, d.first_uncleanable, d.clean_bytes, d.cleanable_bytes), (10, 30, 100, 120));
    assert_eq!(d.checkpoint_fault, None);
    let d = dirtiness(&log(&[(0, 100), (10, 50), (20, 999)], None, 35));
    assert_eq!((d.first_dirty, d.first_uncleanable, d.clean_bytes, d.cleanable_bytes), (0, 20, 0, 150));
}

#[test]
fn a_segment_that_the_checkpoint_splits_counts_on_both_sides() {
    let d = dirtiness(&log(&[(0, 100), (10, 50), (20, 70), (30, 999)], Some(15), 35));
    assert_eq!((d.clean_bytes, d.cleanable_bytes), (150, 120));
}

#[test]
fn an_open_transaction_bounds_the_dirty_section_at_its_segment() {
    let mut facts = log(&[(0, 100), (10, 50), (20, 70), (30, 999)], None, 35);
    for (last_stable_offset, first_uncleanable, cleanable_bytes) in [(35, 30, 220), (29, 20, 150), (20, 20, 150), (19, 10, 100), (3, 0, 0)]
    {
        facts.last_stable_offset = last_stable_offset;
        let d = dirtiness(&facts);
        assert_eq!((d.first_uncleanable, d.cleanable_bytes), (first_uncleanable, cleanable_bytes), "{last_stable_offset}");
    }
}

#[test]
fn young_segments_wait() {
    let mut facts = log(&[(0, 100), (10, 50), (20, 70), (30, 999)], None, 35);
    facts.segments[0].largest_timestamp_ms = NOW_MS - 500;
    facts.segments[1].largest_timestamp_ms = NOW_MS - 101;
    facts.segments[2].largest_timestamp_ms = NOW_MS - 99;
    let with_lag = |lag| Dirtiness::of(&facts, &Rules { min_compaction_lag_ms: lag, ..rules() }, NOW_MS).first_uncleanable;
    assert_eq!(with_lag(0), 30);
    assert_eq!(with_lag(99), 30);
    assert_eq!(with_lag(100), 20);
    assert_eq!(with_lag(102), 10);
    assert_eq!(with_lag(501), 0);
    // Segments below the first dirty offset are not asked.
    facts.checkpoint = Some(10);
    facts.segments[0].largest_timestamp_ms = NOW_MS;
    let d = Dirtiness::of(&facts, &Rules { min_compaction_lag_ms: 100, ..rules() }, NOW_MS);
    assert_eq!(d.first_uncleanable, 20);
}

#[test]
fn a_log_is_overdue_by_the_first_batch_of_its_oldest_dirty_segment() {
    let mut facts = log(&[(0, 100), (10, 1), (20, 999)], Some(10), 35);
    facts.segments[0].first_timestamp_ms = Some(1);
    facts.segments[1].first_timestamp_ms = Some(NOW_MS - 1000);
    let due = |lag| {
        let rules = Rules { max_compaction_lag_ms: lag, ..rules() };
        let d = Dirtiness::of(&facts, &rules, NOW_MS);
        (d.overdue_ms, d.is_eligible(&rules))
    };
    assert_eq!(due(i64::MAX), (0, false));
    assert_eq!(due(1000), (0, false));
    assert_eq!(due(999), (1, true));
    assert_eq!(due(0), (1000, true));
    // Batches without a time say nothing.
    facts.segments[1].first_timestamp_ms = Some(-1);
    assert_eq!(Dirtiness::of(&facts, &Rules { max_compaction_lag_ms: 1, ..rules() }, NOW_MS).overdue_ms, 0);
}

#[test]
fn the_dirtiest_eligible_log_is_chosen() {
    let candidate = |dirtiness, rules| Candidate { dirtiness, rules, passes_waited: 0 };
    let with = |clean, dirty| candidate(dirtiness(&log(&[(0, clean), (10, dirty), (20, 0)], Some(10), 20)), rules());
    assert_eq!(choose(&[]), None);
    assert_eq!(choose(&[with(50, 50)]), None, "the ratio must be above the limit");
    assert_eq!(choose(&[with(49, 51), with(10, 90), with(20, 80), with(10, 90)]), Some(1));
    // A ratio of 1 is never exceeded; one of 0 still needs a dirty byte.
    let never = Rules { min_cleanable_dirty_ratio: 1.0, ..rules() };
    assert_eq!(choose(&[candidate(with(0, 100).dirtiness, never)]), None);
    let always = Rules { min_cleanable_dirty_ratio: 0.0, ..rules() };
    assert_eq!(choose(&[candidate(with(100, 0).dirtiness, always)]), None);
    assert_eq!(choose(&[candidate(with(100, 1).dirtiness, always)]), Some(0));
}

#[test]
fn b21_a_log_that_is_always_the_dirtiest_does_not_keep_the_others_from_their_pass() {
    let busy = dirtiness(&log(&[(0, 1), (10, 99), (20, 0)], Some(10), 20));
    let quiet = dirtiness(&log(&[(0, 49), (10, 51), (20, 0)], Some(10), 20));
    // Whoever is not chosen waits.
    let mut logs = [busy, quiet, quiet].map(|dirtiness| Candidate { dirtiness, rules: rules(), passes_waited: 0 });
    let mut chosen = Vec::new();
    for _ in 0..12 {
        let at = choose(&logs).unwrap();
        chosen.push(at);
        logs.iter_mut().for_each(|log| log.passes_waited += 1);
        logs[at].passes_waited = 0;
    }
    assert_eq!(chosen, [0, 0, 0, 1, 2, 0, 0, 1, 2, 0, 0, 1]);
}

#[test]
fn b09_a_mark_outside_the_log_is_reset_and_reported() {
    let mut facts = log(&[(0, 100), (1000, 50), (2000, 9)], Some(500), 2100);
    facts.start_offset = 800;
    let d = dirtiness(&facts);
    assert_eq!((d.first_dirty, d.checkpoint_fault), (800, Some(CheckpointFault::BelowStart)));

    let d = dirtiness(&log(&[(0, 100)], Some(500), 200));
    assert_eq!((d.first_dirty, d.checkpoint_fault, d.cleanable_bytes), (0, Some(CheckpointFault::AboveEnd), 0));

    // The start may be raised into the active segment: nothing is left to clean, and nothing underflows.
    let mut facts = log(&[(0, 100), (1000, 50), (2000, 9)], Some(500), 2100);
    facts.start_offset = 2050;
    let d = dirtiness(&facts);
    assert_eq!((d.first_dirty, d.cleanable_bytes), (2050, 0));
    assert_eq!(choose(&[Candidate { dirtiness: d, rules: rules(), passes_waited: 0 }]), None);

    let d = dirtiness(&log(&[], Some(500), 0));
    assert_eq!((d.first_dirty, d.cleanable_bytes, d.ratio()), (0, 0, 0.0));
}

#[test]
fn b10_a_mark_inside_the_active_segment_leaves_nothing_to_clean() {
    for checkpoint in [20, 25, 30] {
        let d = dirtiness(&log(&[(0, 100), (10, 50), (20, 70)], Some(checkpoint), 30));
        assert_eq!((d.first_uncleanable, d.cleanable_bytes), (20, 0), "checkpoint {checkpoint}");
        assert!(!d.is_eligible(&Rules { min_cleanable_dirty_ratio: 0.0, ..rules() }));
    }
}

#[test]
fn b11_the_ratio_is_of_cleanable_bytes_and_never_overflows() {
    const GIB: u64 = 1 << 30;
    let mut facts = log(&[(0, GIB), (10, GIB), (20, GIB), (30, GIB), (40, 0)], Some(10), 40);
    facts.segments[0].largest_timestamp_ms = 0;
    facts.segments[1].largest_timestamp_ms = 0;
    facts.segments[2].largest_timestamp_ms = NOW_MS - 5;
    let d = Dirtiness::of(&facts, &Rules { min_compaction_lag_ms: 10, ..rules() }, NOW_MS);
    assert_eq!((d.clean_bytes, d.cleanable_bytes), (GIB, GIB));
    assert!((d.ratio() - 0.5).abs() < 1e-12);
    let huge = log(&[(0, u64::MAX / 4), (10, u64::MAX / 4), (20, 0)], Some(10), 20);
    assert!((dirtiness(&huge).ratio() - 0.5).abs() < 1e-12);
    assert_eq!(dirtiness(&log(&[(0, 0)], None, 0)).ratio().to_bits(), 0.0_f64.to_bits());
}

#[test]
fn b23_a_record_from_the_future_delays_nothing() {
    let mut facts = log(&[(0, 100), (10, 50), (20, 70)], None, 35);
    facts.segments[0].largest_timestamp_ms = 4_102_444_800_000;
    facts.segments[0].modified_ms = Some(NOW_MS - 5000);
    facts.segments[0].first_timestamp_ms = Some(4_102_444_800_000);
    facts.segments[1].largest_timestamp_ms = NOW_MS - 4000;
    facts.segments[1].first_timestamp_ms = None;
    let rules = Rules { min_compaction_lag_ms: 3000, max_compaction_lag_ms: 4000, ..rules() };
    let d = Dirtiness::of(&facts, &rules, NOW_MS);
    assert_eq!((d.first_uncleanable, d.overdue_ms), (20, 1000));
}

#[test]
fn what_a_failure_means() {
    let after = |kind| AfterFailure::of(&Error::new(kind, OP, ""));
    assert_eq!(after(ErrorKind::Locked), AfterFailure::TryLater);
    assert_eq!(after(ErrorKind::StorageFull), AfterFailure::TryLater);
    assert_eq!(after(ErrorKind::Closed), AfterFailure::LeaveAlone);
    assert_eq!(after(ErrorKind::Corrupt), AfterFailure::Uncleanable);
    assert_eq!(after(ErrorKind::Unsupported), AfterFailure::Uncleanable);
}
