mod history;
mod restoring;

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::storage::{MemoryStorage, OpenMode, RealStorage, Storage, read_exact_at, write_all_at};
use keeplog_engine::{DataDir, Durability, LogOptions, TopicPartition};
use keeplog_fixtures::{Dice, Set, copy_dir, unpack};

use super::*;
use crate::cache::CommittedOffset;
use crate::replay::Outcome;
use history::{GROUPS, History, PRODUCERS, Step};

const LOG: &str = "/data/__consumer_offsets-0";

fn disk() -> Arc<MemoryStorage> {
    let disk = MemoryStorage::new();
    disk.create_dir(Path::new("/data")).unwrap();
    Arc::new(disk)
}

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(16 << 10).index_interval_bytes(400)
}

fn open(disk: &Arc<MemoryStorage>) -> Log {
    Log::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new(LOG), options()).unwrap()
}

fn committed(replay: &Replay) -> Vec<(String, String, i32, CommittedOffset)> {
    let mut all: Vec<_> =
        replay.cache().iter().map(|(key, commit)| (key.group.to_owned(), key.topic.to_owned(), key.partition, commit.to_owned())).collect();
    all.sort_unstable_by(|a, b| (&a.0, &a.1, a.2).cmp(&(&b.0, &b.1, b.2)));
    all
}

fn waiting(replay: &Replay) -> Vec<String> {
    let mut all: Vec<_> = GROUPS.iter().flat_map(|group| replay.pending_of(group)).map(|key| format!("{key:?}")).collect();
    all.sort_unstable();
    all
}

fn groups(replay: &Replay) -> Vec<String> {
    let mut all: Vec<_> = replay.groups().names().map(|name| format!("{name}: {:?}", replay.groups().describe(name))).collect();
    all.sort_unstable();
    all
}

fn assert_same(found: &Replay, expected: &Replay, how: &str) {
    assert_eq!(committed(found), committed(expected), "{how}");
    assert_eq!((found.cache().len(), found.cache().group_count()), (expected.cache().len(), expected.cache().group_count()), "{how}");
    assert_eq!(waiting(found), waiting(expected), "{how}");
    assert_eq!(groups(found), groups(expected), "{how}");
    assert_eq!(found.groups().unreadable_keys(), expected.groups().unreadable_keys(), "{how}");
    assert_eq!((found.counts(), found.open_transactions()), (expected.counts(), expected.open_transactions()), "{how}");
}

/// What waits is seen when its transaction commits: one producer after the other.
fn assert_same_for_ever(mut found: Replay, mut expected: Replay, how: &str) {
    assert_same(&found, &expected, how);
    for producer_id in PRODUCERS {
        found.marker(producer_id, Outcome::Commit);
        expected.marker(producer_id, Outcome::Commit);
        assert_same(&found, &expected, &format!("{how}, {producer_id} has committed"));
    }
}

fn check(log: &Log, how: &str) {
    for piece_bytes in [1, 700, u32::MAX] {
        for threads in [1, 2, 3, 7] {
            let (expected, bytes) = plain::load(log).unwrap();
            let (found, found_bytes) = newest_first(log, threads, piece_bytes, &|_| {}).unwrap();
            assert_eq!(found_bytes, bytes);
            assert_same_for_ever(found, expected, &format!("{how}, pieces of {piece_bytes}, {threads} threads"));
        }
    }
}

#[test]
fn any_history_is_loaded_as_it_is_replayed() {
    for seed in 0..150 {
        let mut history = History::new(seed);
        let log = open(&disk());
        let mut entries = Vec::new();
        for _ in 0..history.dice.roll(60) {
            history.batch(&mut entries);
            log.append_as_follower(&entries, Durability::Buffered).unwrap();
            entries.clear();
            if history.dice.roll(12) == 0 {
                log.roll().unwrap();
            }
        }
        check(&log, &format!("seed {seed}"));
        let start = history.dice.roll(log.end_offset() + 1);
        log.advance_start(start).unwrap();
        check(&log, &format!("seed {seed} from {start}"));
    }
}

fn log_of(steps: &[Step]) -> Log {
    let log = open(&disk());
    let (mut history, mut entries) = (History::new(1), Vec::new());
    for step in steps {
        history.step(step, &mut entries);
    }
    log.append_as_follower(&entries, Durability::Buffered).unwrap();
    log
}

/// The cases in which the newest record of a place is not what counts.
#[test]
fn what_has_effect_later_than_it_was_written_counts_as_in_the_log() {
    use Step::{Abort, Commit, Tombstone, Value};
    const P: Option<i64> = None;
    const A: Option<i64> = Some(1);
    const B: Option<i64> = Some(2);
    for (steps, expected) in [
        (&[Value(A, 5), Value(P, -1), Commit(1)][..], None),
        (&[Value(P, 4), Value(A, 5), Value(P, -1)], None),
        (&[Value(A, 5), Commit(1), Value(P, -1)], None),
        (&[Value(A, 5), Value(P, -1), Value(P, -1), Abort(1)], None),
        (&[Value(A, 5), Value(P, 6), Value(P, -1), Commit(1)], None),
        (&[Value(A, 5), Value(B, -1), Commit(2), Commit(1)], None),
        (&[Value(A, 5), Value(B, -1), Commit(1), Commit(2)], None),
        (&[Value(P, 4), Value(B, -1), Value(P, 6), Commit(2)], Some(6)),
        (&[Value(A, 5), Value(B, 6), Value(P, -1), Commit(2), Commit(1)], None),
        (&[Value(A, 5), Value(B, -1), Commit(2), Value(A, 6), Commit(1)], Some(6)),
        (&[Value(A, 5), Value(A, -1), Commit(1)], None),
        (&[Value(A, -1), Value(A, 5), Commit(1)], Some(5)),
        (&[Value(P, 4), Value(A, 5), Tombstone(P), Value(B, 6), Commit(1)], None),
        (&[Value(A, 5), Tombstone(A), Value(A, 6), Commit(1)], Some(6)),
        (&[Value(A, 5), Tombstone(B), Abort(2), Commit(1)], None),
        (&[Value(P, 4), Value(A, 5), Value(B, 6), Commit(2), Commit(1)], Some(6)),
        (&[Value(P, 4), Value(A, 5), Abort(1), Value(A, 6)], Some(4)),
        (&[Value(A, 5), Value(P, 6), Commit(1)], Some(6)),
        (&[Value(A, 5), Tombstone(P), Value(P, 6)], Some(6)),
    ] {
        let log = log_of(steps);
        check(&log, &format!("{steps:?}"));
        let (replay, _) = newest_first(&log, 1, 1, &|_| {}).unwrap();
        assert_eq!(committed(&replay).first().map(|(.., committed)| committed.offset), expected, "{steps:?}");
    }
}

/// Whatever is wrong, it is the plain fold that says so; and what it can read is read.
#[test]
fn damage_anywhere_gives_the_error_of_the_plain_fold() {
    let (disk, mut history, mut entries) = (disk(), History::new(3), Vec::new());
    let log = open(&disk);
    for _ in 0..40 {
        history.batch(&mut entries);
    }
    log.append_as_follower(&entries, Durability::Buffered).unwrap();
    log.close().unwrap();
    let (mut dice, mut broken) = (Dice::new(7), 0);
    for _ in 0..150 {
        let image = Arc::new(disk.image());
        let file = image.open(&Path::new(LOG).join("00000000000000000000.log"), OpenMode::Write).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        read_exact_at(&*file, &mut bytes, 0).unwrap();
        let at = dice.roll(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << dice.roll(8);
        write_all_at(&*file, &bytes, 0).unwrap();
        let Ok(log) = Log::open_with(image as Arc<dyn Storage>, Path::new(LOG), options()) else { continue };
        for threads in [1, 3] {
            match (load(&log, threads), plain::load(&log)) {
                (Ok((found, _)), Ok((expected, _))) => assert_same_for_ever(found, expected, &format!("byte {at}")),
                (Err(found), Err(expected)) => {
                    broken += 1;
                    assert_eq!(found.to_string(), expected.to_string());
                    assert_eq!((found.kind(), found.position(), found.offset()), (expected.kind(), expected.position(), expected.offset()));
                }
                (found, expected) => panic!("byte {at}: {found:?} where {expected:?} is expected"),
            }
        }
    }
    assert!(broken > 200, "{broken} of 300 loads failed");
}

/// No checksum covers them. A load that ends early, or passes a batch over, gives older offsets for true ones.
#[test]
fn a_wrong_base_offset_gives_an_error_or_the_same_answer() {
    let (disk, mut history, mut entries) = (disk(), History::new(11), Vec::new());
    let log = open(&disk);
    for batch in 0..60 {
        history.batch(&mut entries);
        log.append_as_follower(&entries, Durability::Buffered).unwrap();
        entries.clear();
        if batch % 20 == 19 {
            log.roll().unwrap();
        }
        if batch == 25 {
            log.advance_start(log.end_offset() - 3).unwrap();
        }
    }
    let answer = |replay: &Replay| -> Vec<_> {
        committed(replay).into_iter().map(|(group, topic, partition, held)| (group, topic, partition, held.offset, held.metadata)).collect()
    };
    let expected = answer(&plain::load(&log).unwrap().0);
    let batches: Vec<_> = log.batches_from(log.start_offset()).unwrap().map(|batch| batch.unwrap()).collect();
    log.close().unwrap();
    let (mut refused, mut sound) = (0, 0);
    for batch in &batches {
        for bit in [0, 1, 2, 4, 7, 12, 31, 39] {
            let image = Arc::new(disk.image());
            let file = image.open(&Path::new(LOG).join(format!("{:020}.log", batch.segment)), OpenMode::Write).unwrap();
            let wrong = batch.header.base_offset ^ (1 << bit);
            write_all_at(&*file, &wrong.to_be_bytes(), batch.position).unwrap();
            let Ok(log) = Log::open_with(image as Arc<dyn Storage>, Path::new(LOG), options()) else { continue };
            if log.recovery_report().cut_bytes() > 0 {
                continue;
            }
            for found in [load(&log, 2).map(|(replay, _)| replay), plain::load(&log).map(|(replay, _)| replay)] {
                let Ok(found) = found else {
                    refused += 1;
                    continue;
                };
                sound += 1;
                assert_eq!(answer(&found), expected, "bit {bit} of the batch at {} in {}", batch.position, batch.segment);
            }
        }
    }
    assert!(refused > 200 && sound > 10, "{refused} refused, {sound} sound");
}

/// It may have been damaged behind a clean mark.
#[test]
fn an_index_that_lies_makes_a_load_slow_and_never_wrong() {
    let (disk, mut history, mut entries) = (disk(), History::new(4), Vec::new());
    let log = open(&disk);
    for _ in 0..60 {
        history.batch(&mut entries);
    }
    log.append_as_follower(&entries, Durability::Buffered).unwrap();
    log.close().unwrap();
    let index = disk.open(&Path::new(LOG).join("00000000000000000000.index"), OpenMode::Write).unwrap();
    let mut entry = [0; 8];
    read_exact_at(&*index, &mut entry, 8).unwrap();
    entry[7] ^= 1;
    write_all_at(&*index, &entry, 8).unwrap();
    let log = open(&disk);
    assert!(newest_first(&log, 2, 1, &|_| {}).is_err());
    let (expected, _) = plain::load(&log).unwrap();
    assert_same_for_ever(load(&log, 2).unwrap().0, expected, "load");
}

#[test]
fn logs_of_a_broker_are_loaded_as_they_are_replayed() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("broker");
    copy_dir(unpack(Set::Broker), &dir);
    let data_dir = Arc::new(DataDir::open_or_create(Arc::new(RealStorage::new()), &dir).unwrap());
    let mut entries = 0;
    for partition in 0..4 {
        let name = TopicPartition::new("__consumer_offsets", partition).unwrap();
        let log = Log::open_in(&data_dir, &name, LogOptions::new()).unwrap();
        check(&log, &name.to_string());
        let (replay, report) = load(&log, 2).unwrap();
        assert_eq!(report.entries, replay.cache().len() as u64);
        entries += report.entries;
    }
    assert!(entries > 100);
}

#[test]
fn an_empty_log_is_an_empty_cache() {
    let log = open(&disk());
    check(&log, "empty");
    assert_eq!(load(&log, 2).unwrap().1, LoadReport::default());
}

#[test]
fn threads_are_shared_out_by_bytes() {
    let mib = 1 << 20;
    assert_eq!(threads_of(900 * mib, 900 * mib, 2), 2);
    assert_eq!(threads_of(900 * mib, 900 * mib, 64), 4, "more would wait for their turns");
    assert_eq!(threads_of(mib, 50 * mib, 2), 1);
    assert_eq!(threads_of(30 * mib, 50 * mib, 2), 2);
    assert_eq!((threads_of(0, 0, 8), threads_of(1000, 1000, 8)), (1, 1), "no more than there are pieces");
}
