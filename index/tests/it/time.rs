use keeplog_index::{IndexError, RELATIVE_OFFSET_MAX, TimeEntry, TimeIndex};
use proptest::prelude::*;

fn filled(base: u64, entries: &[(i64, u64)]) -> TimeIndex<Vec<u8>> {
    let mut index = TimeIndex::empty(base);
    for &(timestamp, offset) in entries {
        assert!(index.maybe_append(timestamp, offset).unwrap());
    }
    index
}

#[test]
fn golden_entry() {
    let index = filled(50, &[(1_700_000_000_000, 55)]);
    assert_eq!(index.as_bytes(), [0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0, 0, 0, 0, 5]);
    let read = TimeIndex::new(50, index.as_bytes()).unwrap();
    assert_eq!(read.last(), Some(TimeEntry { timestamp: 1_700_000_000_000, offset: 55 }));
}

#[test]
fn only_later_timestamps_are_stored() {
    let mut index = filled(100, &[(10, 105)]);
    assert_eq!(index.maybe_append(10, 105), Ok(false), "the same entry twice is harmless");
    assert_eq!(index.maybe_append(9, 120), Ok(false));
    assert_eq!(index.maybe_append(-1, 0), Ok(false), "an empty segment has nothing to offer");
    assert_eq!(index.maybe_append(11, 104), Err(IndexError::OffsetNotRising { entry: 1, offset: 104, previous: 105 }));
    assert!(index.maybe_append(11, 101 + RELATIVE_OFFSET_MAX).is_err());
    assert_eq!(index.maybe_append(11, 105), Ok(true), "offsets may stay");
    assert_eq!(index.len(), 2);
    assert_eq!(TimeIndex::empty(5).maybe_append(0, 5), Ok(true), "the epoch itself is a timestamp");
}

#[test]
fn lookup_before_the_first_entry_gives_the_base() {
    let index = filled(100, &[(10, 105), (20, 110)]);
    assert_eq!(index.lookup(9), TimeEntry { timestamp: -1, offset: 100 });
    assert_eq!(index.lookup(10).offset, 105);
    assert_eq!(index.lookup(19).offset, 105);
    assert_eq!(index.lookup(i64::MAX).offset, 110);
    assert_eq!(index.lookup(i64::MIN), TimeEntry { timestamp: -1, offset: 100 });
}

#[test]
fn one_slot_is_kept_for_the_closing_entry() {
    let mut index = TimeIndex::empty(0);
    assert!(index.is_full(0) && index.is_full(11) && index.is_full(12) && index.is_full(23));
    assert!(!index.is_full(24));
    index.maybe_append(1, 1).unwrap();
    assert!(index.is_full(24) && !index.is_full(36));
}

#[test]
fn check_names_the_entry_and_the_reason() {
    let entry = |timestamp: i64, relative: i32| [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()].concat();
    let check = |entries: &[Vec<u8>]| TimeIndex::new(10, entries.concat()).unwrap().check(20);
    assert_eq!(check(&[entry(0, 0), entry(1, 0), entry(5, 9)]), Ok(()));
    assert_eq!(check(&[entry(7, 1), entry(0, 0)]), Err(IndexError::TimestampNotRising { entry: 1, timestamp: 0, previous: 7 }));
    assert_eq!(check(&[entry(-2, 1)]), Err(IndexError::TimestampNotRising { entry: 0, timestamp: -2, previous: -1 }));
    assert_eq!(check(&[entry(7, 3), entry(8, 2)]), Err(IndexError::OffsetNotRising { entry: 1, offset: 12, previous: 13 }));
    assert_eq!(check(&[entry(7, 10)]), Err(IndexError::OffsetOutside { entry: 0, offset: 20, base: 10, next: 20 }));
    assert!(matches!(check(&[entry(7, -1)]), Err(IndexError::OffsetOutside { .. })));
    assert_eq!(TimeIndex::new(0, [0u8; 13]).err(), Some(IndexError::Ragged { bytes: 13, entry_bytes: 12 }));
}

fn ascending() -> impl Strategy<Value = (u64, Vec<(i64, u64)>)> {
    (0u64..1 << 40, prop::collection::vec((1i64..100, 0u64..100), 0..2000)).prop_map(|(base, steps)| {
        let mut at = (-1, base);
        let entries = steps
            .into_iter()
            .map(|(timestamp, offset)| {
                at = (at.0 + timestamp, at.1 + offset);
                at
            })
            .collect();
        (base, entries)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lookup_equals_brute_force((base, entries) in ascending(), targets in prop::collection::vec(-5i64..120_000, 1..50)) {
        let index = filled(base, &entries);
        prop_assert_eq!(index.check(u64::MAX), Ok(()));
        for target in targets {
            let expected = entries.iter().rev().find(|e| e.0 <= target).copied().unwrap_or((-1, base));
            prop_assert_eq!(index.lookup(target), TimeEntry { timestamp: expected.0, offset: expected.1 });
        }
    }

    #[test]
    fn truncation_equals_a_filter((base, entries) in ascending(), target in 0u64..120_000) {
        let mut index = filled(base, &entries);
        index.truncate_to(base + target);
        let kept: Vec<_> = entries.into_iter().filter(|e| e.1 < base + target).collect();
        prop_assert_eq!(index.iter().map(|e| (e.timestamp, e.offset)).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn random_bytes_never_panic(base: u64, bytes in prop::collection::vec(any::<u8>(), 0..20_000), target: u64, timestamp: i64) {
        let Ok(mut index) = TimeIndex::new(base, bytes) else { return Ok(()) };
        let _ = (index.lookup(timestamp), index.check(target), index.last());
        let _ = index.maybe_append(timestamp, target);
        index.truncate_to(target);
    }
}
