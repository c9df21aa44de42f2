use keeplog_index::{AbortedTxn, IndexError, TxnIndex};
use proptest::prelude::*;

fn txn(first_offset: u64, last_offset: u64, last_stable_offset: u64) -> AbortedTxn {
    AbortedTxn { producer_id: 4000, first_offset, last_offset, last_stable_offset }
}

fn filled(txns: &[AbortedTxn]) -> TxnIndex<Vec<u8>> {
    let mut index = TxnIndex::empty();
    for &txn in txns {
        index.append(txn).unwrap();
    }
    index
}

#[test]
fn golden_entry() {
    let index = filled(&[txn(10, 20, 21)]);
    let mut golden = vec![0, 0];
    for field in [4000u64, 10, 20, 21] {
        golden.extend_from_slice(&field.to_be_bytes());
    }
    assert_eq!(index.as_bytes(), golden);
    assert_eq!(index.entry(0), Some(Ok(txn(10, 20, 21))));
    assert_eq!(index.entry(1), None);
}

#[test]
fn a_fragment_is_not_read_and_is_overwritten() {
    let mut bytes = filled(&[txn(0, 5, 6)]).into_bytes();
    bytes.extend_from_slice(&[0; 33]);
    let mut index = TxnIndex::new(bytes);
    assert_eq!((index.len(), index.fragment_bytes()), (1, 33));
    assert_eq!(index.check(0, 10), Err(IndexError::Fragment { entries: 1, bytes: 33 }));
    index.append(txn(6, 8, 9)).unwrap();
    assert_eq!(index.iter().collect::<Vec<_>>(), [Ok(txn(0, 5, 6)), Ok(txn(6, 8, 9))]);
    assert_eq!(index.check(0, 10), Ok(()));
}

#[test]
fn collection_stops_at_the_last_stable_offset() {
    let index = filled(&[txn(0, 10, 5), txn(5, 20, 15), txn(15, 30, 31), txn(40, 50, 51)]);
    let collect = |from, to| {
        let mut out = Vec::new();
        let complete = index.collect(from, to, &mut out).unwrap();
        (out.iter().map(|t| t.last_offset).collect::<Vec<_>>(), complete)
    };
    assert_eq!(collect(0, 100), (vec![10, 20, 30, 50], false));
    assert_eq!(collect(11, 31), (vec![20, 30], true));
    assert_eq!(collect(0, 5), (vec![10], true));
    assert_eq!(collect(31, 40), (vec![], true));
}

#[test]
fn truncation_drops_markers_at_and_above() {
    for (target, kept) in [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (99, 2)] {
        let mut index = filled(&[txn(0, 10, 11), txn(5, 20, 21)]);
        index.truncate_to(target);
        assert_eq!(index.len(), kept, "to {target}");
    }
}

#[test]
fn unknown_versions_and_impossible_offsets_are_named() {
    let raw = |version: i16, fields: [i64; 4]| {
        let mut bytes = version.to_be_bytes().to_vec();
        fields.iter().for_each(|f| bytes.extend_from_slice(&f.to_be_bytes()));
        TxnIndex::new(bytes)
    };
    assert_eq!(raw(0x0100, [1, 2, 3, 4]).check(0, 9), Err(IndexError::Version { entry: 0, version: 1 }));
    assert_eq!(raw(0x0001, [1, 2, 3, 4]).check(0, 9), Ok(()), "the second byte is not looked at");
    assert_eq!(raw(0, [1, -2, 3, 4]).check(0, 9), Err(IndexError::OffsetNegative { entry: 0, offset: -2 }));
    assert!(matches!(raw(0, [1, 4, 3, 4]).check(0, 9), Err(IndexError::Transaction { .. })));
    assert!(matches!(raw(0, [1, 2, 3, 5]).check(0, 9), Err(IndexError::Transaction { .. })));
    assert!(matches!(raw(0, [1, 2, 3, 4]).check(4, 9), Err(IndexError::OffsetOutside { .. })));
    assert!(matches!(raw(0, [1, 2, 3, 4]).check(0, 3), Err(IndexError::OffsetOutside { .. })));
    assert!(raw(0x0100, [1, 2, 3, 4]).collect(0, 9, &mut Vec::new()).is_err());
    let mut index = filled(&[txn(0, 10, 11)]);
    assert!(index.append(txn(0, 10, 11)).is_err(), "a retry does not add the same entry twice");
    assert_eq!(index.len(), 1);
}

proptest! {
    #[test]
    fn collect_equals_brute_force(steps in prop::collection::vec((1u64..20, 1u64..40, 0u64..40), 0..60), from in 0u64..600, width in 0u64..300) {
        let mut last = 0;
        let txns: Vec<_> = steps
            .into_iter()
            .map(|(step, back, stable_back)| {
                last += step + 1;
                txn(last.saturating_sub(back), last, (last + 1).saturating_sub(stable_back))
            })
            .collect();
        let index = filled(&txns);
        prop_assert_eq!(index.check(0, last + 1), Ok(()));
        let (mut out, to) = (Vec::new(), from + width);
        let complete = index.collect(from, to, &mut out).unwrap();
        let end = txns.iter().position(|t| t.last_stable_offset >= to);
        let seen = &txns[..end.map_or(txns.len(), |i| i + 1)];
        let expected: Vec<_> = seen.iter().filter(|t| t.last_offset >= from && t.first_offset < to).copied().collect();
        prop_assert_eq!((out, complete), (expected, end.is_some()));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), zeroed: bool, a: u64, b: u64) {
        let mut bytes = bytes;
        if zeroed {
            bytes.iter_mut().step_by(34).for_each(|v| *v = 0);
        }
        let mut index = TxnIndex::new(bytes);
        let _ = (index.check(a, b), index.collect(a, b, &mut Vec::new()), index.iter().count());
        let _ = index.append(AbortedTxn { producer_id: 1, first_offset: a, last_offset: b, last_stable_offset: a });
        index.truncate_to(b);
    }
}
