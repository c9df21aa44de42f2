use keeplog_index::IndexInterval;
use proptest::prelude::*;

#[test]
fn the_first_chunk_has_no_entry_and_the_border_is_strict() {
    let mut interval = IndexInterval::new(100);
    assert!(!interval.admit(100), "first chunk");
    assert!(!interval.admit(1), "exactly the interval");
    assert!(interval.admit(5), "one byte more");
    assert!(!interval.admit(96), "the counter restarted at the indexed chunk");
    assert!(interval.is_due());
    interval.reset();
    assert!(!interval.admit(1_000_000), "as after an open");
}

proptest! {
    #[test]
    fn live_and_rebuild_rules_agree(sizes in prop::collection::vec(prop_oneof![1u64..200, 4000u64..5000, Just(1 << 20)], 0..200), bytes in 0u32..10_000) {
        let mut interval = IndexInterval::new(bytes);
        let (mut position, mut last) = (0u64, 0u64);
        for size in sizes {
            let due = position - last > u64::from(bytes);
            prop_assert_eq!(interval.admit(size), due);
            if due {
                last = position;
            }
            position += size;
        }
    }
}
