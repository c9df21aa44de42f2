use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn key<'a>(group: &'a str, topic: &'a str, partition: i32) -> OffsetKey<'a> {
    OffsetKey { group, topic, partition }
}

fn commit(offset: u64, record_offset: u64) -> Commit<'static> {
    Commit { offset, leader_epoch: None, metadata: "", commit_timestamp_ms: 0, expire_timestamp_ms: None, record_offset }
}

#[test]
fn a_commit_comes_back_whole() {
    let mut cache = OffsetCache::new();
    let full = Commit {
        offset: u64::MAX >> 1,
        leader_epoch: Some(-7),
        metadata: "größe",
        commit_timestamp_ms: i64::MIN,
        expire_timestamp_ms: Some(0),
        record_offset: 3,
    };
    assert!(cache.apply_commit(&key("g", "t", i32::MAX), &full));
    assert_eq!(cache.get(&key("g", "t", i32::MAX)).unwrap().as_commit(), full);
    assert!(cache.apply_commit(&key("g", "t", i32::MAX), &commit(1, 4)));
    assert_eq!(cache.get(&key("g", "t", i32::MAX)).unwrap().as_commit(), commit(1, 4), "nothing of the earlier one is left");
    assert_eq!((cache.len(), cache.group_count()), (1, 1));
}

#[test]
fn the_later_record_stays() {
    let mut cache = OffsetCache::new();
    assert!(cache.apply_commit(&key("g", "t", 0), &commit(5, 10)));
    assert!(!cache.apply_commit(&key("g", "t", 0), &commit(9, 9)));
    assert_eq!(cache.get(&key("g", "t", 0)).unwrap().offset, 5);
    assert!(cache.apply_commit(&key("g", "t", 0), &commit(3, 11)), "an offset may go back");
    assert_eq!(cache.get(&key("g", "t", 0)).unwrap().offset, 3);
}

#[test]
fn what_is_not_there_is_not_found() {
    let mut cache = OffsetCache::new();
    cache.apply_commit(&key("g", "t", 0), &commit(5, 10));
    for missing in [key("g", "t", 1), key("g", "u", 0), key("h", "t", 0), key("", "", 0), key("t", "g", 0)] {
        assert_eq!(cache.get(&missing), None);
        assert!(!cache.remove(&missing));
    }
    assert!(cache.list_group("h").is_empty());
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_group_is_gone_with_its_last_offset_and_its_name_is_not_mistaken_for_the_empty_one() {
    let mut cache = OffsetCache::new();
    cache.apply_commit(&key("g", "t", 0), &commit(5, 10));
    cache.apply_commit(&key("g", "u", 0), &commit(6, 11));
    assert!(cache.remove(&key("g", "t", 0)));
    assert_eq!(cache.group_count(), 1);
    assert!(cache.remove(&key("g", "u", 0)));
    assert_eq!((cache.len(), cache.group_count(), cache.groups().count()), (0, 0, 0));
    assert_eq!(cache.get(&key("", "", 0)), None);
    cache.apply_commit(&key("", "", 0), &commit(7, 12));
    assert_eq!(cache.list_group("").len(), 1);
    assert_eq!(cache.get(&key("g", "t", 0)), None);
}

type Model = BTreeMap<(String, String, i32), (u64, u64, String)>;

fn listed(cache: &OffsetCache) -> Model {
    let mut all = Model::new();
    for group in cache.groups() {
        let of_group = cache.list_group(group);
        assert!(of_group.is_sorted_by_key(|o| (o.topic.clone(), o.partition)));
        for entry in of_group {
            let committed = entry.committed;
            let value = (committed.offset, committed.record_offset, committed.metadata.to_string());
            all.insert((group.to_string(), entry.topic.to_string(), entry.partition), value);
        }
    }
    all
}

proptest! {
    #[test]
    fn the_cache_is_a_map(
        steps in prop::collection::vec((0..6u8, 0..4u8, 0..5i32, 0..3u8, 0..40u64), 0..400)
    ) {
        let (mut cache, mut model) = (OffsetCache::new(), Model::new());
        for (at, (group, topic, partition, what, record_offset)) in steps.into_iter().enumerate() {
            let (group, topic) = ("g".repeat(group.into()), "t".repeat(topic.into()));
            let (key, place) = (key(&group, &topic, partition), (group.clone(), topic.clone(), partition));
            if what == 0 {
                prop_assert_eq!(cache.remove(&key), model.remove(&place).is_some());
            } else {
                let metadata = if what == 1 { "" } else { &group };
                let taken = cache.apply_commit(&key, &Commit { metadata, ..commit(at as u64, record_offset) });
                let older = model.get(&place).is_none_or(|(_, held, _)| *held <= record_offset);
                prop_assert_eq!(taken, older);
                if older {
                    model.insert(place, (at as u64, record_offset, metadata.to_owned()));
                }
            }
            prop_assert_eq!(cache.len(), model.len());
        }
        prop_assert_eq!(&listed(&cache), &model);
        for ((group, topic, partition), (offset, ..)) in &model {
            prop_assert_eq!(cache.get(&key(group, topic, *partition)).map(|c| c.offset), Some(*offset));
        }
    }
}
