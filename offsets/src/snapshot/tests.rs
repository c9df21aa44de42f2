use std::path::Path;

use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::{Log, LogOptions};
use proptest::prelude::*;

use super::write::Writer;
use super::*;
use crate::cache::{Commit, OffsetCache};
use crate::record::OffsetKey;
use crate::replay::Replay;

const FILE: &str = "/data/t-0/offsets.keeplog-snapshot";

fn log() -> Log {
    let disk = MemoryStorage::new();
    disk.create_dir(Path::new("/data")).unwrap();
    Log::open_with(std::sync::Arc::new(disk), Path::new("/data/t-0"), LogOptions::new()).unwrap()
}

fn replay_of(cache: OffsetCache) -> Replay {
    let mut replay = Replay::new();
    replay.resume(cache, ReplayCounts { records: 1, tombstones: 2, unknown_types: 3, newer_values: 4, old_keys: 5 });
    replay
}

fn save(log: &Log, replay: &Replay) -> u64 {
    let mut encoder = Encoder::begin(replay, 0);
    let mut writer = Writer::create(log.storage(), FILE.into()).unwrap();
    while !encoder.take(replay).unwrap() {
        encoder.write(&mut writer).unwrap();
    }
    encoder.write(&mut writer).unwrap();
    encoder.finish(writer, log.fingerprint(0).unwrap()).unwrap()
}

fn read(log: &Log) -> Result<Replay, Unusable> {
    open(log)?.read(2, &|_| {}).map(|restored| restored.replay)
}

fn all(cache: &OffsetCache) -> Vec<(String, String, i32, crate::CommittedOffset)> {
    let mut all: Vec<_> = cache.iter().map(|(k, c)| (k.group.to_owned(), k.topic.to_owned(), k.partition, c.to_owned())).collect();
    all.sort_by(|a, b| (&a.0, &a.1, a.2).cmp(&(&b.0, &b.1, b.2)));
    all
}

fn commit(offset: u64) -> Commit<'static> {
    Commit {
        offset,
        leader_epoch: None,
        metadata: "",
        commit_timestamp_ms: 0,
        expire_timestamp_ms: None,
        topic_id: None,
        record_offset: offset,
    }
}

#[test]
fn an_entry_takes_no_more_than_26_bytes_and_comes_back_with_room_for_no_other() {
    let mut cache = OffsetCache::new();
    for group in 0..300 {
        for topic in 0..4 {
            for partition in 0..50 {
                let (group, topic) = (format!("group-{group:05}"), format!("topic-{topic}"));
                cache.apply_commit(&OffsetKey { group: &group, topic: &topic, partition }, &commit(partition as u64));
            }
        }
    }
    let log = log();
    let replay = replay_of(cache);
    let bytes = save(&log, &replay);
    assert!(bytes / 60_000 < 26, "{bytes} bytes");
    let found = read(&log).unwrap();
    assert_eq!((found.counts(), all(found.cache())), (replay.counts(), all(replay.cache())));
    assert!(!found.cache().needs_compaction());
    assert!(found.cache().memory_bytes() <= 30 * 60_000, "{} bytes", found.cache().memory_bytes());
}

#[test]
fn an_empty_one_is_one() {
    let log = log();
    assert!(matches!(open(&log), Err(Unusable::Missing)));
    save(&log, &Replay::new());
    assert!(read(&log).unwrap().cache().is_empty());
}

#[test]
fn a_topic_that_is_made_anew_while_it_is_saved_keeps_both_ids() {
    let (mut replay, log) = (Replay::new(), log());
    let mut cache = OffsetCache::new();
    let key = |partition| OffsetKey { group: "g", topic: "t", partition };
    let with_id = |id: u8| Commit { topic_id: Some([id; 16]), ..commit(1) };
    for partition in 0..3000 {
        cache.apply_commit(&key(partition), &with_id(1));
    }
    replay.resume(cache, ReplayCounts::default());
    let mut encoder = Encoder::begin(&replay, 0);
    let mut writer = Writer::create(log.storage(), FILE.into()).unwrap();
    assert!(!encoder.take(&replay).unwrap());
    encoder.write(&mut writer).unwrap();
    // All of it goes, and another topic of the name comes.
    let mut cache = OffsetCache::new();
    for partition in 0..3000 {
        cache.apply_commit(&key(partition), &with_id(2));
    }
    replay.resume(cache, ReplayCounts::default());
    while !encoder.take(&replay).unwrap() {
        encoder.write(&mut writer).unwrap();
    }
    encoder.write(&mut writer).unwrap();
    encoder.finish(writer, log.fingerprint(0).unwrap()).unwrap();
    let found = read(&log).unwrap();
    assert_eq!(found.cache().len(), 3000);
    let ids: std::collections::BTreeSet<_> = found.cache().iter().map(|(_, commit)| commit.topic_id.unwrap()[0]).collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), [1, 2]);
}

type Place = (u8, u8, i32);

fn any_commit() -> impl Strategy<Value = (Place, Commit<'static>)> {
    let partition = prop_oneof![5 => 0..200_i32, 1 => -130..0_i32, 1 => prop_oneof![Just(i32::MIN), Just(i32::MAX)]];
    let time = prop_oneof![5 => 0..1_000_000_i64, 1 => any::<i64>()];
    let epoch = prop_oneof![Just(None), (0..9_i32).prop_map(Some), any::<i32>().prop_map(|e| Some(e).filter(|e| *e != -1))];
    let metadata = prop_oneof![3 => Just(""), 1 => Just("m"), 1 => Just("größe")];
    let id = prop_oneof![2 => Just(None), 2 => Just(Some([1; 16])), 1 => Just(Some([2; 16]))];
    let expires = prop_oneof![5 => Just(None), 1 => (0..i64::MAX).prop_map(Some)];
    ((0..5_u8, 0..3_u8, partition), (any::<u64>(), time, epoch, metadata, id, expires)).prop_map(|(place, rest)| {
        let (offset, commit_timestamp_ms, leader_epoch, metadata, topic_id, expire_timestamp_ms) = rest;
        (place, Commit { offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id, record_offset: 7 })
    })
}

proptest! {
    #[test]
    fn whatever_is_committed_comes_back(commits in prop::collection::vec(any_commit(), 0..300), gone in 0..50_usize) {
        let mut cache = OffsetCache::new();
        let name = |number: u8| "n".repeat(number.into());
        for ((group, topic, partition), commit) in &commits {
            cache.apply_commit(&OffsetKey { group: &name(*group), topic: &name(*topic), partition: *partition }, commit);
        }
        for ((group, topic, partition), _) in commits.iter().take(gone) {
            cache.remove(&OffsetKey { group: &name(*group), topic: &name(*topic), partition: *partition });
        }
        let (log, replay) = (log(), replay_of(cache));
        save(&log, &replay);
        let found = read(&log).unwrap();
        prop_assert_eq!(all(found.cache()), all(replay.cache()));
        prop_assert_eq!(found.cache().group_count(), replay.cache().group_count());
    }

    /// Whoever can make checksums can make nothing panic, nor ask for more memory than a few times the file.
    #[test]
    fn bytes_under_right_checksums_are_read_or_refused(
        kind in 0..9_u8, bytes in prop::collection::vec(any::<u8>(), 0..400), blocks in any::<u8>(), entries in any::<u8>(), small in any::<bool>(),
    ) {
        let log = log();
        let bytes: Vec<u8> = if small { bytes.iter().map(|b| b % 3).collect() } else { bytes };
        let _ = read_sections(&log, &[(kind, &bytes), (4, &bytes)], blocks.into(), entries.into());
        prop_assert!(read_bytes(&log, &bytes).is_none());
    }
}
