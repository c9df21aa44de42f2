use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn key<'a>(group: &'a str, topic: &'a str, partition: i32) -> OffsetKey<'a> {
    OffsetKey { group, topic, partition }
}

fn commit(offset: u64, record_offset: u64) -> Commit<'static> {
    Commit { offset, leader_epoch: None, metadata: "", commit_timestamp_ms: 0, expire_timestamp_ms: None, topic_id: None, record_offset }
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
        topic_id: Some([7; 16]),
        record_offset: 3,
    };
    assert!(cache.apply_commit(&key("g", "t", i32::MAX), &full));
    assert_eq!(cache.get(&key("g", "t", i32::MAX)).unwrap().as_commit(), full);
    assert!(cache.apply_commit(&key("g", "t", i32::MAX), &commit(1, 4)));
    assert_eq!(cache.get(&key("g", "t", i32::MAX)).unwrap().as_commit(), commit(1, 4), "nothing of the earlier one is left");
    assert_eq!((cache.len(), cache.group_count()), (1, 1));
}

/// Each field at the edges of what an entry has room for, after an ordinary commit and before any.
#[test]
fn what_an_entry_has_no_room_for_is_kept_all_the_same() {
    let usual = Commit { commit_timestamp_ms: 1_700_000_000_000, record_offset: 5_000, ..commit(1, 0) };
    let mut cases = vec![usual];
    for step in [1 << 39, (1 << 39) - 1, 1 << 40, 1 << 62] {
        cases.push(Commit { commit_timestamp_ms: usual.commit_timestamp_ms + step, ..usual });
        cases.push(Commit { commit_timestamp_ms: usual.commit_timestamp_ms - step, ..usual });
        cases.push(Commit { record_offset: usual.record_offset + step.cast_unsigned(), ..usual });
    }
    for commit_timestamp_ms in [i64::MIN, -1, 0, i64::MAX] {
        cases.push(Commit { commit_timestamp_ms, ..usual });
    }
    for record_offset in [0, u64::MAX >> 1, u64::MAX] {
        cases.push(Commit { record_offset, ..usual });
    }
    for epoch in [i32::MIN, -2, 0, (1 << 23) - 3, (1 << 23) - 2, (1 << 23) - 1, 1 << 23, 1 << 24, i32::MAX] {
        cases.push(Commit { leader_epoch: Some(epoch), ..usual });
    }
    cases.push(Commit { offset: u64::MAX, ..usual });
    cases.push(Commit { expire_timestamp_ms: Some(i64::MIN), ..usual });
    cases.push(Commit { topic_id: Some([0; 16]), metadata: "m", ..usual });
    let check = |cases: &[Commit<'_>]| {
        let mut cache = OffsetCache::new();
        for (partition, case) in (0..).zip(cases) {
            assert!(cache.apply_commit(&key("g", "t", partition), case));
        }
        for (partition, case) in (0..).zip(cases) {
            assert_eq!(cache.get(&key("g", "t", partition)).unwrap().as_commit(), *case);
        }
    };
    check(&cases);
    cases.reverse();
    check(&cases);
}

/// Brokers of today write it with every commit.
#[test]
fn the_id_of_a_topic_takes_no_room_and_another_one_is_not_mistaken_for_it() {
    let mut cache = OffsetCache::new();
    let with_id = |id: u8, offset| Commit { topic_id: Some([id; 16]), ..commit(offset, offset) };
    for partition in 0..100 {
        cache.apply_commit(&key("g", "t", partition), &with_id(7, 1));
        cache.apply_commit(&key("g", "u", partition), &if partition % 2 == 0 { with_id(8, 1) } else { commit(1, 1) });
    }
    assert!(cache.blocks.entries.memory_bytes() == 0, "all of them fit");
    // A topic of the same name, made anew.
    cache.apply_commit(&key("g", "t", 0), &with_id(9, 2));
    cache.apply_commit(&key("g", "t", 1), &commit(2, 2));
    let ids = |topic, partitions: [i32; 3]| partitions.map(|p| cache.get(&key("g", topic, p)).unwrap().topic_id);
    assert_eq!(ids("t", [0, 1, 2]), [Some([9; 16]), None, Some([7; 16])]);
    assert_eq!(ids("u", [0, 1, 98]), [Some([8; 16]), None, Some([8; 16])]);
    for partition in 0..100 {
        cache.remove(&key("g", "t", partition));
    }
    cache.apply_commit(&key("g", "t", 0), &with_id(5, 3));
    assert_eq!(cache.get(&key("g", "t", 0)).unwrap().topic_id, Some([5; 16]), "of the topic that was, nothing is left");
}

#[test]
fn minus_one_is_none_as_in_the_record() {
    let mut cache = OffsetCache::new();
    cache.apply_commit(&key("g", "t", 0), &Commit { leader_epoch: Some(-1), expire_timestamp_ms: Some(-1), ..commit(1, 0) });
    assert_eq!(cache.get(&key("g", "t", 0)).unwrap().as_commit(), commit(1, 0));
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
    for missing in [key("g", "t", 1), key("g", "t", 64), key("g", "u", 0), key("h", "t", 0), key("", "", 0), key("t", "g", 0)] {
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

/// Other writers may have left any number as a partition.
#[test]
fn partitions_at_the_ends_of_their_range_are_told_apart_and_take_no_more_room() {
    let mut cache = OffsetCache::new();
    let partitions = [i32::MIN, i32::MIN + 1, i32::MIN + 63, i32::MIN + 64, -65, -64, -63, -1, 0, 63, 64, i32::MAX - 64, i32::MAX];
    for (at, &partition) in partitions.iter().enumerate() {
        cache.apply_commit(&key("g", "t", partition), &commit(at as u64, 0));
    }
    assert!(cache.memory_bytes() < 10_000, "{} bytes", cache.memory_bytes());
    for (at, &partition) in partitions.iter().enumerate() {
        assert_eq!(cache.get(&key("g", "t", partition)).unwrap().offset, at as u64);
    }
    assert_eq!(cache.list_group("g").iter().map(|o| o.partition).collect::<Vec<_>>(), partitions);
    for partition in partitions {
        assert!(cache.remove(&key("g", "t", partition)));
    }
    assert!(cache.is_empty() && cache.groups().next().is_none());
}

fn filled(groups: u32, topics: u32, partitions: i32) -> OffsetCache {
    let mut cache = OffsetCache::new();
    // Everybody commits for a partition before anybody does for the next: every block grows through all its sizes.
    for partition in 0..partitions {
        for group in 0..groups {
            for topic in 0..topics {
                let (group, topic) = (format!("group-{group:05}"), format!("topic-{topic:03}"));
                cache.apply_commit(&key(&group, &topic, partition), &commit(partition as u64, partition as u64));
            }
        }
    }
    cache
}

#[test]
fn a_commit_takes_thirty_bytes_and_eighty_at_worst() {
    for (groups, topics, partitions, most) in [(200, 10, 50, 30), (200, 20, 20, 32), (20_000, 10, 1, 80), (3_000, 10, 2, 80)] {
        let mut cache = filled(groups, topics, partitions);
        if cache.needs_compaction() {
            cache.compact();
            assert!(!cache.needs_compaction());
        }
        let bytes = cache.memory_bytes() / cache.len();
        assert!(bytes <= most, "{groups} x {topics} x {partitions}: {bytes} bytes an offset");
    }
}

#[test]
fn room_that_removals_leave_is_given_back() {
    let mut cache = filled(200, 10, 50);
    cache.compact();
    let full = cache.memory_bytes();
    for group in 0..200 {
        for partition in (0..50).filter(|partition| group % 4 > 0 || partition % 10 > 0) {
            for topic in 0..10 {
                assert!(cache.remove(&key(&format!("group-{group:05}"), &format!("topic-{topic:03}"), partition)));
            }
        }
    }
    assert_eq!((cache.len(), cache.group_count()), (2500, 50));
    assert!(cache.needs_compaction());
    cache.compact();
    assert!(!cache.needs_compaction());
    assert!(cache.memory_bytes() < full / 5, "{} of {full} bytes are left", cache.memory_bytes());
    assert_eq!(cache.iter().count(), 2500);
    assert!(cache.iter().all(|(key, commit)| key.partition % 10 == 0 && commit.offset == key.partition as u64));
}

#[test]
fn compaction_that_gains_nothing_is_not_asked_for_again() {
    // Five of 64 partitions, far apart: packed in six.
    let mut cache = OffsetCache::new();
    for group in 0..500 {
        for partition in [0, 15, 30, 45, 63] {
            cache.apply_commit(&key(&group.to_string(), "t", partition), &commit(1, 1));
        }
    }
    assert!(cache.needs_compaction());
    cache.compact();
    assert!(!cache.needs_compaction());
    cache.remove(&key("0", "t", 0));
    assert!(!cache.needs_compaction());
}

type Held = (u64, u64, String, Option<i64>);
type Model = BTreeMap<(String, String, i32), Held>;

fn held(commit: &Commit<'_>) -> Held {
    (commit.offset, commit.record_offset, commit.metadata.to_owned(), commit.expire_timestamp_ms)
}

fn listed(cache: &OffsetCache) -> Model {
    let mut all = Model::new();
    for group in cache.groups() {
        let of_group = cache.list_group(group);
        assert!(of_group.is_sorted_by_key(|o| (o.topic.clone(), o.partition)));
        for entry in of_group {
            all.insert((group.to_string(), entry.topic.to_string(), entry.partition), held(&entry.committed.as_commit()));
        }
    }
    all
}

fn walked(cache: &OffsetCache) -> Model {
    cache.iter().map(|(key, commit)| ((key.group.to_owned(), key.topic.to_owned(), key.partition), held(&commit))).collect()
}

fn partition() -> impl Strategy<Value = i32> {
    prop_oneof![6 => 0..12_i32, 3 => 0..140_i32, 1 => -130..0_i32, 1 => prop_oneof![Just(i32::MIN), Just(i32::MAX)]]
}

proptest! {
    #[test]
    fn the_cache_is_a_map(
        steps in prop::collection::vec((0..6u8, 0..4u8, partition(), 0..8u8, 0..40u64), 0..600)
    ) {
        let (mut cache, mut model) = (OffsetCache::new(), Model::new());
        for (at, (group, topic, partition, what, record_offset)) in steps.into_iter().enumerate() {
            let (group, topic) = ("g".repeat(group.into()), "t".repeat(topic.into()));
            let (key, place) = (key(&group, &topic, partition), (group.clone(), topic.clone(), partition));
            if what < 3 {
                prop_assert_eq!(cache.remove(&key), model.remove(&place).is_some());
                if what == 0 && at % 16 == 0 {
                    cache.compact();
                }
            } else {
                let metadata = if what == 3 { "" } else { &group };
                let expire_timestamp_ms = (what == 4).then_some(at as i64);
                let commit = Commit { metadata, expire_timestamp_ms, ..commit(at as u64, record_offset) };
                let taken = cache.apply_commit(&key, &commit);
                let older = model.get(&place).is_none_or(|(_, held, ..)| *held <= record_offset);
                prop_assert_eq!(taken, older);
                if older {
                    model.insert(place, held(&commit));
                }
            }
            prop_assert_eq!(cache.len(), model.len());
        }
        prop_assert_eq!(&listed(&cache), &model);
        prop_assert_eq!(&walked(&cache), &model);
        let keys: Vec<_> = model.keys().map(|(group, topic, partition)| key(group, topic, *partition)).collect();
        let missing = key("nobody", "t", 1);
        let asked: Vec<_> = keys.iter().flat_map(|key| [*key, missing]).collect();
        let found = cache.get_many(&asked);
        for (pair, values) in found.chunks(2).zip(model.values()) {
            prop_assert_eq!(pair[0].as_ref().map(|committed| held(&committed.as_commit())), Some(values.clone()));
            prop_assert!(pair[1].is_none());
        }
        for (key, values) in keys.iter().zip(model.values()) {
            prop_assert_eq!(cache.get(key).map(|c| c.offset), Some(values.0));
        }
        prop_assert!(cache.memory_bytes() >= cache.len() * 24);
    }
}
