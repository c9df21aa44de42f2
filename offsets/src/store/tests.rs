mod commits;
mod expiring;
mod gate;
mod leading;
mod snapshots;

use std::collections::BTreeSet;
use std::path::Path;

use keeplog_engine::record::{BatchSpec, BatchWriter, Record, TxnResult};
use keeplog_engine::storage::{MemoryStorage, RealStorage, Storage};
use keeplog_engine::{DataDir, Durability, ErrorKind, LogOptions, TopicPartition, TransactionEnd};
use keeplog_fixtures::{Set, copy_dir, unpack};

use super::*;
use crate::pending::Pending;
use crate::record::{OffsetKey, OffsetValue};
use crate::replay::Outcome;
use gate::{GatedStorage, Syncs};

const NOW: i64 = 1_760_000_000_000;
const DATA: &str = "/data";

fn disk() -> MemoryStorage {
    let disk = MemoryStorage::new();
    disk.set_now_ms(NOW);
    disk.create_dir(Path::new(DATA)).unwrap();
    disk
}

fn logs(storage: Arc<dyn Storage>, dir: &Path, partitions: u32, options: &LogOptions) -> Vec<Log> {
    let data_dir = Arc::new(DataDir::open_or_create(storage, dir).unwrap());
    let open = |p| Log::open_in(&data_dir, &TopicPartition::new("__consumer_offsets", p).unwrap(), options.clone()).unwrap();
    (0..partitions).map(open).collect()
}

fn open_logs(disk: &MemoryStorage, partitions: u32) -> Vec<Log> {
    logs(Arc::new(disk.clone()), Path::new(DATA), partitions, &LogOptions::new())
}

fn open(disk: &MemoryStorage) -> OffsetStore {
    OffsetStore::open(open_logs(disk, 3), CommitOptions::new()).unwrap()
}

fn at(offset: u64) -> OffsetAndMetadata {
    OffsetAndMetadata::new(offset)
}

fn fetched(store: &OffsetStore, group: &str, topic: &str, partition: i32) -> Option<u64> {
    store.fetch(group, &[(topic, partition)]).unwrap()[0].as_ref().map(|c| c.offset)
}

/// What a process finds that starts after this one was killed.
fn after_crash(disk: &MemoryStorage) -> OffsetStore {
    open(&disk.image())
}

#[test]
fn what_is_committed_is_fetched_also_after_a_restart() {
    let disk = disk();
    let store = open(&disk);
    assert_eq!(store.fetch("g", &[("t", 0)]).unwrap(), [None]);
    let full = at(5).metadata("größe").leader_epoch(3);
    store.commit("g", &[("t", 0, full.clone()), ("t", 1, at(7)), ("u", 0, at(0))]).unwrap();
    assert_eq!(store.fetch("g", &[("u", 0), ("t", 0), ("t", 9), ("t", 0)]).unwrap(), [Some(at(0)), Some(full.clone()), None, Some(full)]);
    store.commit("g", &[("t", 1, at(3))]).unwrap();
    assert_eq!(fetched(&store, "g", "t", 1), Some(3), "an offset may go back");
    assert_eq!(fetched(&store, "h", "t", 1), None);

    let again = after_crash(&disk);
    assert_eq!(again.list().unwrap(), store.list().unwrap());
    assert_eq!(again.fetch_all("g").unwrap()[0].committed.commit_timestamp_ms, NOW);
    assert_eq!((again.load_report().records, again.load_report().entries, again.load_report().groups), (4, 3, 1));
}

#[test]
fn one_commit_is_one_batch_with_the_keys_and_values_of_kafka() {
    let logs = open_logs(&disk(), 1);
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 3, at(42).leader_epoch(5).metadata("m")), ("t", 4, at(43))]).unwrap();
    let batches: Vec<_> = log.batches_from(0).unwrap().map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[0].header.count, batches[0].header.max_timestamp), (1, 2, NOW));
    let first = log.read_from(0).unwrap().next().unwrap().unwrap();
    assert_eq!(first.key().unwrap()[..], *b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03");
    let mut value = b"\x00\x03\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x00\x05\x00\x01m".to_vec();
    value.extend_from_slice(&NOW.to_be_bytes());
    assert_eq!(first.value().unwrap()[..], value[..]);
    store.commit::<&str>("g", &[]).unwrap();
    assert_eq!(log.end_offset(), 2, "nothing to commit, nothing written");
}

#[test]
fn metadata_is_measured_in_utf_16_units() {
    let store = open(&disk());
    for (metadata, fits) in [("x".repeat(4096), true), ("x".repeat(4097), false), ("😀".repeat(2048), true), ("😀".repeat(2049), false)]
    {
        assert_eq!(store.commit("g", &[("t", 0, at(1).metadata(metadata))]).is_ok(), fits);
    }
}

#[test]
fn a_commit_with_one_bad_entry_changes_nothing() {
    let disk = disk();
    let store = open(&disk);
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    let good = ("t", 0, at(2));
    for (bad, names) in [
        (("a/b", 0, at(1)), "a/b"),
        (("t", -1, at(1)), "partition -1"),
        (("t", 1, at(1 << 63)), "2^63"),
        (("t", 1, at(1).leader_epoch(-1)), "leader epoch"),
        (("t", 1, at(1).commit_timestamp_ms(-1)), "timestamp"),
    ] {
        let error = store.commit("g", &[good.clone(), bad]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(names), "{error}");
    }
    assert_eq!(store.commit(&"x".repeat(32_768), &[good]).unwrap_err().kind(), ErrorKind::InvalidInput);
    let many: Vec<_> = (0..1000).map(|p| ("t", p, at(9).metadata("x".repeat(4096)))).collect();
    assert_eq!(store.commit("g", &many).unwrap_err().kind(), ErrorKind::InvalidInput, "larger than a batch may be");
    assert_eq!(store.list().unwrap().len(), 1);
    assert_eq!(fetched(&store, "g", "t", 0), Some(1));
    assert_eq!(after_crash(&disk).list().unwrap(), store.list().unwrap());
}

#[test]
fn groups_lie_apart_and_are_listed_in_order() {
    let store = open(&disk());
    for group in ["b", "", "a", "消费者"] {
        store.commit(group, &[("t", 1, at(1)), ("t", 0, at(2)), ("s", 9, at(3))]).unwrap();
    }
    let groups = store.groups().unwrap();
    assert_eq!(groups.iter().map(|g| &**g).collect::<Vec<_>>(), ["", "a", "b", "消费者"]);
    let listed: Vec<_> = store.list().unwrap().iter().map(|o| format!("{} {} {}", o.group, o.topic, o.partition)).collect();
    assert_eq!(listed[..4], [" s 9", " t 0", " t 1", "a s 9"]);
    assert_eq!(listed.len(), 12);
}

#[test]
fn a_commit_is_shown_only_when_it_is_durable() {
    let storage = Arc::new(GatedStorage::new(disk()));
    let logs = logs(Arc::clone(&storage) as Arc<dyn Storage>, Path::new(DATA), 1, &LogOptions::new());
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    storage.set(Syncs::Wait);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit("g", &[("t", 0, at(2))]));
        storage.wait_for_sync();
        assert_eq!((log.end_offset(), fetched(&store, "g", "t", 0)), (2, Some(1)), "appended, not yet shown");
        storage.set(Syncs::Pass);
        commit.join().unwrap().unwrap();
    });
    assert_eq!(fetched(&store, "g", "t", 0), Some(2));
}

#[test]
fn a_deletion_covers_the_commit_that_waits_for_its_sync() {
    let storage = Arc::new(GatedStorage::new(disk()));
    let logs = logs(Arc::clone(&storage) as Arc<dyn Storage>, Path::new(DATA), 1, &LogOptions::new());
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("h", &[("t", 0, at(1))]).unwrap(); // the first append of a log syncs files of its own
    for group in [false, true] {
        storage.set(Syncs::Wait);
        let end_offset = log.end_offset();
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| store.commit("g", &[("t", 0, at(2))]));
            storage.wait_for_sync();
            let delete = scope.spawn(|| if group { store.delete_group("g") } else { store.delete_offsets("g", &[("t", 0)]) });
            while log.end_offset() < end_offset + 2 {
                std::thread::yield_now();
            }
            storage.set(Syncs::Pass);
            commit.join().unwrap().unwrap();
            assert_eq!(delete.join().unwrap().unwrap(), 1);
        });
        assert_eq!(fetched(&store, "g", "t", 0), None);
    }
}

#[test]
fn after_a_failed_sync_nothing_is_shown_and_nothing_more_is_taken() {
    let storage = Arc::new(GatedStorage::new(disk()));
    let logs = logs(Arc::clone(&storage) as Arc<dyn Storage>, Path::new(DATA), 1, &LogOptions::new());
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    storage.set(Syncs::Fail);
    assert_eq!(store.commit("g", &[("t", 0, at(2))]).unwrap_err().kind(), ErrorKind::Io);
    storage.set(Syncs::Pass);
    assert_eq!(store.commit("g", &[("t", 0, at(3))]).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(store.delete_group("g").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(store.reload().unwrap_err().kind(), ErrorKind::Poisoned, "the log holds what may not be durable");
    assert_eq!(fetched(&store, "g", "t", 0), Some(1), "reads go on");
}

#[test]
fn a_buffered_store_waits_for_no_sync() {
    let storage = Arc::new(GatedStorage::new(disk()));
    let logs = logs(Arc::clone(&storage) as Arc<dyn Storage>, Path::new(DATA), 1, &LogOptions::new());
    let store = OffsetStore::open(logs, CommitOptions::new().offsets_commit_required_acks(RequiredAcks::Written)).unwrap();
    store.commit("g", &[("t", 0, at(1))]).unwrap(); // the first append of a log syncs files of its own
    storage.set(Syncs::Fail);
    store.commit("g", &[("t", 0, at(2))]).unwrap();
    assert_eq!(fetched(&store, "g", "t", 0), Some(2));
    storage.set(Syncs::Pass);
}

#[test]
fn commits_from_many_threads_end_as_the_log_has_them() {
    let disk = disk();
    let store = open(&disk);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = store.clone();
            scope.spawn(move || {
                for i in 0..200 {
                    let group = if i % 2 == 0 { "g" } else { "h" };
                    store.commit(group, &[("t", 0, at(thread * 1000 + i)), ("t", 1, at(i))]).unwrap();
                    if i % 50 == 49 {
                        store.delete_offsets(group, &[("t", 0)]).unwrap();
                    }
                }
            });
        }
    });
    let shown = store.list().unwrap();
    assert_eq!(shown, after_crash(&disk).list().unwrap());
    store.reload().unwrap();
    assert_eq!(shown, store.list().unwrap());
}

#[test]
fn deletion_writes_tombstones_only_for_what_is_there() {
    let disk = disk();
    let store = open(&disk);
    store.commit("g", &[("t", 0, at(1)), ("t", 1, at(2)), ("u", 0, at(3))]).unwrap();
    assert_eq!(store.delete_offsets("g", &[("t", 0), ("t", 0), ("t", 7), ("v", 0)]).unwrap(), 1);
    assert_eq!(store.delete_offsets("g", &[("t", 0)]).unwrap(), 0);
    assert_eq!(store.delete_offsets("h", &[("t", 0)]).unwrap(), 0);
    assert_eq!(store.fetch_all("g").unwrap().len(), 2);
    assert_eq!((store.delete_group("g").unwrap(), store.delete_group("g").unwrap()), (2, 0));
    assert!(store.groups().unwrap().is_empty());
    let again = after_crash(&disk);
    assert!(again.list().unwrap().is_empty());
    assert_eq!((again.load_report().records, again.load_report().tombstones), (6, 3));
    store.commit("g", &[("t", 0, at(9))]).unwrap();
    assert_eq!(fetched(&after_crash(&disk), "g", "t", 0), Some(9));
}

#[test]
fn a_group_too_large_for_one_batch_is_deleted_in_several() {
    let options = LogOptions::new().max_message_bytes(1000).segment_bytes(4096);
    let logs = logs(Arc::new(disk()), Path::new(DATA), 1, &options);
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    for partition in 0..300 {
        store.commit("g", &[("t", partition, at(1))]).unwrap();
    }
    assert_eq!(store.delete_group("g").unwrap(), 300);
    assert!(log.batches_from(300).unwrap().count() > 1);
    assert_eq!(log.end_offset(), 600);
    store.reload().unwrap();
    assert!(store.list().unwrap().is_empty());
}

/// A commit in a transaction, as a broker appends it for a producer.
fn commit_in_transaction(log: &Log, sequence: i32, group: &str, offset: i64) {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    assert!(OffsetKey { group, topic: "t", partition: 0 }.encode(&mut key));
    let metadata =
        OffsetValue { offset, leader_epoch: None, metadata: "", commit_timestamp_ms: NOW, expire_timestamp_ms: None, topic_id: None };
    assert!(metadata.encode(&mut value));
    let mut writer = BatchWriter::new();
    let (mut batch, spec) = (Vec::new(), BatchSpec::default());
    writer.begin(BatchSpec { producer_id: 7, producer_epoch: 0, base_sequence: sequence, transactional: true, ..spec });
    writer.push(0, NOW, Some(&key), Some(&value), &[]).unwrap();
    writer.finish(&mut batch).unwrap();
    log.append_batch(batch, Durability::Synced).unwrap();
}

#[test]
fn transactional_commits_show_after_their_marker() {
    let logs = open_logs(&disk(), 1);
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    let end = |result| {
        let end = TransactionEnd { producer_id: 7, producer_epoch: 0, result, coordinator_epoch: 0 };
        log.end_transaction(&end, Durability::Synced).unwrap();
    };
    commit_in_transaction(&log, 0, "g", 5);
    assert_eq!((store.reload().unwrap().open_transactions, fetched(&store, "g", "t", 0)), (1, None));
    end(TxnResult::Committed);
    assert_eq!((store.reload().unwrap().open_transactions, fetched(&store, "g", "t", 0)), (0, Some(5)));
    commit_in_transaction(&log, 1, "g", 6);
    end(TxnResult::Aborted);
    store.reload().unwrap();
    assert_eq!(fetched(&store, "g", "t", 0), Some(5));
    commit_in_transaction(&log, 2, "h", 6);
    store.reload().unwrap();
    assert_eq!(store.delete_group("h").unwrap(), 1, "what waits goes too");
    end(TxnResult::Committed);
    store.reload().unwrap();
    assert_eq!(fetched(&store, "h", "t", 0), None);
}

#[test]
fn a_failed_load_serves_nothing() {
    let disk = disk();
    let logs = open_logs(&disk, 1);
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    log.append(&[Record::new(&b"\x00\x01\x00\x09g"[..], &b""[..])], Durability::Synced).unwrap();
    let error = store.reload().unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(1)));
    assert!(error.path().unwrap().ends_with("__consumer_offsets-0/00000000000000000000.log"), "{error}");
    assert!(error.to_string().contains("the key of the record at offset 1"), "{error}");
    for error in [
        store.fetch("g", &[("t", 0)]).unwrap_err(),
        store.fetch_all("g").unwrap_err(),
        store.groups().unwrap_err(),
        store.list().unwrap_err(),
        store.commit("g", &[("t", 0, at(2))]).unwrap_err(),
        store.delete_group("g").unwrap_err(),
        store.delete_offsets("g", &[("t", 0)]).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    assert_eq!(log.end_offset(), 2);
    drop((store, log));
    let error = OffsetStore::open(open_logs(&disk, 1), CommitOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn the_logs_are_the_partitions_of_one_topic_in_order() {
    let disk = disk();
    let mut logs = open_logs(&disk, 3);
    assert_eq!(OffsetStore::open(Vec::new(), CommitOptions::new()).unwrap_err().kind(), ErrorKind::InvalidInput);
    logs.swap(1, 2);
    let error = OffsetStore::open(logs.clone(), CommitOptions::new()).unwrap_err();
    assert!(error.to_string().contains("__consumer_offsets-1 is due"), "{error}");
    logs.swap(1, 2);
    let store = OffsetStore::open(logs[..2].to_vec(), CommitOptions::new()).unwrap();
    for group in ["a", "b", "c", "d"] {
        store.commit(group, &[("t", 0, at(1))]).unwrap();
    }
    assert_eq!(store.load_report().misplaced_groups, 0);
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    assert_eq!(store.load_report().misplaced_groups, 3, "of two partitions they lie in 1 0 1 0, of three in 1 2 0 1");
}

#[test]
fn the_store_answers_what_the_broker_answered() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("broker");
    copy_dir(unpack(Set::Broker), &dir);
    let logs = logs(Arc::new(RealStorage::new()), &dir, 4, &LogOptions::new());
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    let listed: BTreeSet<_> = store.list().unwrap().iter().map(ToString::to_string).collect();
    let text = std::fs::read_to_string(dir.join("committed-offsets.tsv")).unwrap();
    assert_eq!(listed, text.lines().skip(1).map(str::to_owned).collect());
    let report = store.load_report();
    assert_eq!((report.records, report.entries, report.misplaced_groups), (1312, listed.len() as u64, 0));
    for line in &listed {
        let fields: Vec<_> = line.split('\t').collect();
        assert_eq!(fetched(&store, fields[0], fields[1], fields[2].parse().unwrap()), fields[3].parse().ok());
    }
}

#[test]
fn what_is_displayed_stays_in_its_line_and_column() {
    let committed = crate::Commit {
        offset: 1,
        leader_epoch: Some(4),
        metadata: "a\tb\n\u{1b}[1m\\",
        commit_timestamp_ms: 0,
        expire_timestamp_ms: None,
        topic_id: None,
        record_offset: 0,
    };
    let listed = ListedOffset { group: "a\\b".into(), topic: "t".into(), partition: 0, committed: committed.to_owned() };
    assert_eq!(listed.to_string(), "a\\b\tt\t0\t1\t4\ta\\tb\\n\\u{1b}[1m\\\\");
}
