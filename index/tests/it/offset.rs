use keeplog_index::{IndexError, OffsetEntry, OffsetIndex, RELATIVE_OFFSET_MAX};
use proptest::prelude::*;

fn filled(base: u64, entries: &[(u64, u32)]) -> OffsetIndex<Vec<u8>> {
    let mut index = OffsetIndex::empty(base);
    for &(offset, position) in entries {
        index.append(offset, position).unwrap();
    }
    index
}

#[test]
fn golden_entry() {
    let index = filled(50, &[(55, 4113)]);
    assert_eq!(index.as_bytes(), [0, 0, 0, 5, 0, 0, 0x10, 0x11]);
    let read = OffsetIndex::new(50, index.as_bytes()).unwrap();
    assert_eq!(read.last(), Some(OffsetEntry { offset: 55, position: 4113 }));
}

#[test]
fn entries_are_relative_to_a_large_base() {
    let base = 5_000_000_000;
    let index = filled(base, &[(base, 1), (base + 7, 2), (base + RELATIVE_OFFSET_MAX, 3)]);
    assert_eq!(index.lookup(base + 6).offset, base);
    assert_eq!(index.lookup(u64::MAX), OffsetEntry { offset: base + RELATIVE_OFFSET_MAX, position: 3 });
    assert_eq!(index.lookup(base - 1), OffsetEntry { offset: base, position: 0 });
}

#[test]
fn truncation_at_the_edges() {
    for (target, kept) in [(0, 0), (1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3), (100, 3)] {
        let mut index = filled(0, &[(0, 1), (10, 2), (20, 3)]);
        index.truncate_to(target);
        assert_eq!(index.len(), kept, "to {target}");
        index.append(target.max(21), 4).unwrap();
    }
}

#[test]
fn appends_that_would_break_the_order_are_refused() {
    let mut index = filled(100, &[(110, 10)]);
    let before = index.as_bytes().to_vec();
    assert_eq!(index.append(110, 11), Err(IndexError::OffsetNotRising { entry: 1, offset: 110, previous: 110 }));
    assert_eq!(index.append(111, 10), Err(IndexError::PositionNotRising { entry: 1, position: 10, previous: 10 }));
    assert!(matches!(index.append(99, 11), Err(IndexError::OffsetOutside { entry: 1, offset: 99, .. })));
    assert!(matches!(index.append(101 + RELATIVE_OFFSET_MAX, 11), Err(IndexError::OffsetOutside { .. })));
    assert!(matches!(index.append(111, 1 << 31), Err(IndexError::PositionOutside { .. })));
    assert_eq!(index.as_bytes(), before);
    assert!(OffsetIndex::empty(0).append(5, 0).is_err(), "the first chunk needs no entry");
}

#[test]
fn capacity_is_rounded_down_to_whole_entries() {
    let mut index = OffsetIndex::empty(0);
    assert!(index.is_full(7));
    assert!(!index.is_full(8));
    index.append(1, 1).unwrap();
    assert!(index.is_full(15));
    assert!(!index.is_full(16));
}

#[test]
fn check_names_the_entry_and_the_reason() {
    let entry = |relative: i32, position: i32| [relative.to_be_bytes(), position.to_be_bytes()].concat();
    let check = |entries: &[Vec<u8>]| OffsetIndex::new(10, entries.concat()).unwrap().check(1000, 20);
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[entry(0, 1), entry(9, 999)]), Ok(()));
    assert_eq!(check(&[entry(1, 5), entry(0, 0), entry(0, 0)]), Err(IndexError::Unused { entry: 1 }));
    assert_eq!(check(&[entry(0, 0)]), Err(IndexError::Unused { entry: 0 }));
    assert_eq!(check(&[entry(3, 5), entry(3, 6)]), Err(IndexError::OffsetNotRising { entry: 1, offset: 13, previous: 13 }));
    assert_eq!(check(&[entry(3, 5), entry(4, 5)]), Err(IndexError::PositionNotRising { entry: 1, position: 5, previous: 5 }));
    assert_eq!(check(&[entry(10, 5)]), Err(IndexError::OffsetOutside { entry: 0, offset: 20, base: 10, next: 20 }));
    assert_eq!(check(&[entry(9, 1000)]), Err(IndexError::PositionOutside { entry: 0, position: 1000, log_bytes: 1000 }));
    assert!(matches!(check(&[entry(-1, 5)]), Err(IndexError::OffsetOutside { entry: 0, .. })));
    assert_eq!(OffsetIndex::new(0, [0u8; 9]).err(), Some(IndexError::Ragged { bytes: 9, entry_bytes: 8 }));
}

/// Sizes around the border between the part searched first and the rest, and around a page.
#[test]
fn lookups_are_right_on_both_sides_of_the_warm_part() {
    for len in [0u64, 1, 2, 511, 512, 513, 1023, 1024, 1025, 1026, 2048, 5000] {
        let mut index = OffsetIndex::empty(7);
        for i in 0..len {
            index.append(7 + 2 * i, (i + 1) as u32 * 10).unwrap();
        }
        for target in 0..2 * len + 20 {
            let expected = match target.checked_sub(7) {
                Some(above) if len > 0 => (above / 2).min(len - 1),
                _ => {
                    assert_eq!(index.lookup(target), OffsetEntry { offset: 7, position: 0 });
                    continue;
                }
            };
            assert_eq!(index.lookup(target), OffsetEntry { offset: 7 + 2 * expected, position: (expected + 1) as u32 * 10 });
        }
    }
}

fn ascending() -> impl Strategy<Value = (u64, Vec<(u64, u32)>)> {
    (0u64..1 << 40, prop::collection::vec((1u64..500, 1u32..500), 0..2000)).prop_map(|(base, steps)| {
        let mut at = (base, 0u32);
        let entries = steps
            .into_iter()
            .map(|(offset, position)| {
                at = (at.0 + offset, at.1 + position);
                at
            })
            .collect();
        (base, entries)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lookup_equals_brute_force((base, entries) in ascending(), targets in prop::collection::vec(0u64..600_000, 1..50)) {
        let index = filled(base, &entries);
        prop_assert_eq!(index.check(i32::MAX as u32, u64::MAX), Ok(()));
        for target in targets.into_iter().map(|t| base.saturating_sub(100) + t) {
            let expected = entries.iter().rev().find(|e| e.0 <= target).copied().unwrap_or((base, 0));
            prop_assert_eq!(index.lookup(target), OffsetEntry { offset: expected.0, position: expected.1 });
            let position = (target % 600_000) as u32;
            let expected = entries.iter().find(|e| e.1 >= position).map(|e| OffsetEntry { offset: e.0, position: e.1 });
            prop_assert_eq!(index.lookup_position(position), expected);
        }
    }

    #[test]
    fn truncation_equals_a_filter((base, entries) in ascending(), target in 0u64..600_000) {
        let target = base + target;
        let mut index = filled(base, &entries);
        index.truncate_to(target);
        let kept: Vec<_> = entries.into_iter().filter(|e| e.0 < target).collect();
        let read: Vec<_> = index.iter().map(|e| (e.offset, e.position)).collect();
        prop_assert_eq!(read, kept);
        index.append(index.last().map_or(target, |e| e.offset.max(target) + 1), i32::MAX as u32).unwrap();
    }

    #[test]
    fn random_bytes_never_panic(base: u64, bytes in prop::collection::vec(any::<u8>(), 0..20_000), target: u64, position: u32) {
        let Ok(mut index) = OffsetIndex::new(base, bytes) else { return Ok(()) };
        let _ = (index.lookup(target), index.lookup_position(position), index.check(position, target), index.last());
        let accepted = index.check(u32::MAX, u64::MAX).is_ok();
        let rising = index.iter().zip(index.iter().skip(1)).all(|(a, b)| a.offset < b.offset && a.position < b.position);
        prop_assert!(!accepted || rising);
        let _ = index.append(target, position);
        index.truncate_to(target);
    }
}
