//! When commits are acknowledged, and in which order.

use std::sync::Mutex;

use super::*;

/// A store of one partition over a storage whose syncs can be held up.
fn gated(options: CommitOptions) -> (Arc<GatedStorage>, Log, OffsetStore) {
    let storage = Arc::new(GatedStorage::new(disk()));
    let logs = logs(Arc::clone(&storage) as Arc<dyn Storage>, Path::new(DATA), 1, &LogOptions::new());
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, options).unwrap();
    store.commit("first", &[("t", 0, at(1))]).unwrap(); // the first append of a log syncs files of its own
    store.flush().unwrap();
    (storage, log, store)
}

fn acks(acks: RequiredAcks) -> CommitOptions {
    CommitOptions::new().offsets_commit_required_acks(acks)
}

#[test]
fn metadata_that_is_too_long_refuses_its_own_entry_only() {
    let disk = disk();
    let store = open(&disk);
    let long = at(2).metadata("x".repeat(4097));
    let offsets = [("t", 0, at(1)), ("t", 1, long.clone()), ("t", 2, at(3).metadata("x".repeat(4096)))];
    let too_large = Refusal::MetadataTooLarge { units: 4097, limit: 4096 };
    assert_eq!(store.commit_each("g", &offsets).unwrap(), [Ok(()), Err(too_large), Ok(())]);
    assert_eq!((fetched(&store, "g", "t", 0), fetched(&store, "g", "t", 1), fetched(&store, "g", "t", 2)), (Some(1), None, Some(3)));

    let error = store.commit("h", &offsets).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("partition 1") && error.to_string().contains("all others are committed"), "{error}");
    let error = store.commit_async("i", &offsets).wait().unwrap_err();
    assert!(error.to_string().contains("all others are committed"), "{error}");
    let end_offset = store.shard("j").log().end_offset();
    assert!(store.commit("j", &[("t", 1, long.clone())]).is_err() && store.commit_async("j", &[("t", 1, long)]).wait().is_err());
    assert_eq!(store.shard("j").log().end_offset(), end_offset, "nothing to commit, nothing written");
    let again = after_crash(&disk);
    assert_eq!(again.list().unwrap(), store.list().unwrap());
    assert_eq!(again.list().unwrap().len(), 6);
}

#[test]
fn the_timestamp_of_a_commit_can_be_given_and_a_topic_id_is_kept() {
    let disk = disk();
    let store = open(&disk);
    store.commit("g", &[("t", 0, at(1).commit_timestamp_ms(77).topic_id([9; 16]))]).unwrap();
    for store in [&store, &after_crash(&disk)] {
        let held = &store.fetch_all("g").unwrap()[0].committed;
        assert_eq!((held.commit_timestamp_ms, held.topic_id), (77, Some([9; 16])));
        assert_eq!(store.fetch("g", &[("t", 0)]).unwrap(), [Some(at(1).topic_id([9; 16]))]);
    }
}

#[test]
fn a_commit_in_the_background_is_answered_and_shown_once_it_is_durable() {
    let (storage, log, store) = gated(CommitOptions::new());
    storage.set(Syncs::Wait);
    let mut pending: Vec<_> = (2..5).map(|offset| store.commit_async("g", &[("t", 0, at(offset))])).collect();
    assert_eq!(log.end_offset(), 4, "all have their place already");
    assert!(!pending[0].is_answered() && fetched(&store, "g", "t", 0).is_none());
    std::thread::scope(|scope| {
        let background = scope.spawn(|| store.flush_what_waits(std::time::Duration::from_secs(60)));
        storage.wait_for_sync();
        assert!(!pending[2].is_answered() && fetched(&store, "g", "t", 0).is_none(), "the sync is under way");
        storage.set(Syncs::Pass);
        background.join().unwrap();
    });
    assert!(pending.iter().all(Pending::is_answered));
    assert_eq!(fetched(&store, "g", "t", 0), Some(4));
    pending.pop().unwrap().wait().unwrap();
}

#[test]
fn a_blocking_wait_needs_no_other_thread() {
    let store = open(&disk());
    let pending = store.commit_async("g", &[("t", 0, at(5))]);
    assert_eq!(fetched(&store, "g", "t", 0), None);
    pending.wait().unwrap();
    assert_eq!(fetched(&store, "g", "t", 0), Some(5));
    drop(store.commit_async("g", &[("t", 0, at(6))]));
    store.flush().unwrap();
    assert_eq!(fetched(&store, "g", "t", 0), Some(6), "what nobody waits for is committed all the same");
}

#[test]
fn e24_a_blocking_commit_comes_behind_the_ones_before_it_and_answers_keep_their_order() {
    let disk = disk();
    let store = open(&disk);
    let told = Arc::new(Mutex::new(Vec::new()));
    for offset in [10, 20] {
        let (told, seen) = (Arc::clone(&told), store.clone());
        store.commit_async("g", &[("t", 0, at(offset))]).on_answer(move |answer| {
            answer.unwrap();
            told.lock().unwrap().push((offset, fetched(&seen, "g", "t", 0)));
        });
    }
    store.commit("g", &[("t", 0, at(30))]).unwrap();
    assert_eq!(*told.lock().unwrap(), [(10, Some(30)), (20, Some(30))]);
    assert_eq!((fetched(&store, "g", "t", 0), fetched(&after_crash(&disk), "g", "t", 0)), (Some(30), Some(30)));
}

#[test]
fn a_callback_may_commit_and_a_panic_in_one_holds_up_nobody() {
    let store = open(&disk());
    let again = store.clone();
    store.commit_async("g", &[("t", 0, at(1))]).on_answer(move |_| again.commit("g", &[("t", 0, at(2))]).unwrap());
    store.flush().unwrap();
    assert_eq!(fetched(&store, "g", "t", 0), Some(2));

    store.commit_async("g", &[("t", 0, at(3))]).on_answer(|_| panic!("a bug of the application"));
    let behind = store.commit_async("g", &[("t", 0, at(4))]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.flush())).is_err());
    store.commit("g", &[("t", 1, at(5))]).unwrap();
    assert!(behind.is_answered());
    assert_eq!(fetched(&store, "g", "t", 0), Some(4));
}

#[test]
fn after_a_failed_sync_those_who_wait_are_told_and_nothing_is_shown() {
    let (storage, _, store) = gated(CommitOptions::new());
    storage.set(Syncs::Fail);
    let pending: Vec<_> = (2..4).map(|offset| store.commit_async("g", &[("t", 0, at(offset))])).collect();
    assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Io);
    storage.set(Syncs::Pass);
    for pending in pending {
        let error = pending.wait().unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("may show after the next load"), "{error}");
    }
    assert_eq!(store.commit_async("g", &[("t", 0, at(9))]).wait().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(fetched(&store, "g", "t", 0), None);
}

#[test]
fn after_a_failed_sync_what_an_earlier_one_has_covered_is_shown_and_acknowledged() {
    let (storage, log, store) = gated(CommitOptions::new());
    let covered = store.commit_async("g", &[("t", 0, at(2))]);
    log.sync().unwrap(); // by a pass of the cleaner, or by somebody who has not come to show it yet
    let behind = store.commit_async("g", &[("t", 0, at(3))]);
    storage.set(Syncs::Fail);
    assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Io);
    storage.set(Syncs::Pass);
    covered.wait().unwrap();
    assert_eq!((behind.wait().unwrap_err().kind(), fetched(&store, "g", "t", 0)), (ErrorKind::Io, Some(2)));
}

#[test]
fn a_commit_that_takes_too_long_is_answered_with_not_known() {
    let (storage, log, store) = gated(CommitOptions::new().offsets_commit_timeout(std::time::Duration::from_millis(50)));
    storage.set(Syncs::Wait);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| store.commit("g", &[("t", 0, at(2))]));
        storage.wait_for_sync();
        let late = scope.spawn(|| store.commit("g", &[("t", 0, at(3))]));
        while log.end_offset() < 3 {
            std::thread::yield_now();
        }
        storage.disk().advance_ms(50);
        let error = late.join().unwrap().unwrap_err();
        assert!(error.kind() == ErrorKind::TimedOut && error.is_retriable(), "{error}");
        assert!(error.to_string().contains("not known"), "{error}");
        storage.set(Syncs::Pass);
        leader.join().unwrap().unwrap();
    });
    assert_eq!(fetched(&store, "g", "t", 0), Some(2), "shown up to what was asked for");
    store.flush_what_waits(std::time::Duration::ZERO);
    assert_eq!(fetched(&store, "g", "t", 0), Some(3), "it is committed after all, and nobody has to ask");
}

#[test]
fn written_commits_are_shown_at_once_and_synced_by_the_background() {
    let (storage, log, store) = gated(acks(RequiredAcks::Written));
    storage.set(Syncs::Wait);
    store.commit("g", &[("t", 0, at(2))]).unwrap();
    assert!(store.commit_async("g", &[("t", 0, at(3))]).is_answered());
    assert_eq!((fetched(&store, "g", "t", 0), log.recovery_point()), (Some(3), 1));
    storage.set(Syncs::Pass);
    store.flush_what_waits(std::time::Duration::ZERO);
    assert_eq!(log.recovery_point(), 3);
    store.flush_what_waits(std::time::Duration::ZERO);
}

#[test]
fn queued_commits_are_shown_once_they_are_synced() {
    let (storage, log, store) = gated(acks(RequiredAcks::Queued));
    storage.set(Syncs::Fail);
    store.commit("g", &[("t", 0, at(2))]).unwrap();
    store.commit_async("g", &[("t", 0, at(3))]).wait().unwrap();
    assert_eq!((fetched(&store, "g", "t", 0), log.end_offset()), (None, 3));
    storage.set(Syncs::Pass);
    store.flush_what_waits(std::time::Duration::ZERO);
    assert_eq!((fetched(&store, "g", "t", 0), log.recovery_point()), (Some(3), 3));
    assert_eq!(store.delete_offsets("g", &[("t", 0)]).unwrap(), 1);
    assert_eq!(fetched(&store, "g", "t", 0), Some(3), "a deletion is queued, too");
    store.flush().unwrap();
    assert_eq!(fetched(&store, "g", "t", 0), None);
}

#[test]
fn another_mode_waits_for_what_was_begun_in_the_one_before() {
    let (storage, log, store) = gated(CommitOptions::new());
    storage.set(Syncs::Wait);
    let pending = store.commit_async("g", &[("t", 0, at(2))]);
    store.set_options(acks(RequiredAcks::Written)).unwrap();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| store.commit("g", &[("t", 1, at(3))]));
        storage.wait_for_sync();
        assert!(!pending.is_answered() && fetched(&store, "g", "t", 0).is_none());
        storage.set(Syncs::Pass);
        written.join().unwrap().unwrap();
    });
    assert!(pending.is_answered());
    assert_eq!(log.recovery_point(), 3);
}

#[test]
fn an_answer_that_needs_no_wait_comes_behind_those_that_do() {
    let (storage, _, store) = gated(CommitOptions::new());
    storage.set(Syncs::Wait);
    let synced = store.commit_async("g", &[("t", 0, at(2))]);
    store.set_options(acks(RequiredAcks::Queued)).unwrap();
    let queued = store.commit_async("g", &[("t", 0, at(3))]);
    assert!(!synced.is_answered() && !queued.is_answered());
    storage.set(Syncs::Pass);
    store.flush().unwrap();
    assert!(synced.is_answered() && queued.is_answered());
    assert!(store.commit_async("g", &[("t", 0, at(4))]).is_answered());
}

#[test]
fn settings_change_while_the_store_is_open_and_bad_ones_change_nothing() {
    let store = open(&disk());
    store.set_options(CommitOptions::new().offset_metadata_max_bytes(3)).unwrap();
    assert!(
        store.commit("g", &[("t", 0, at(1).metadata("xxxx"))]).is_err() && store.commit("g", &[("t", 0, at(1).metadata("xxx"))]).is_ok()
    );
    for bad in [CommitOptions::new().offset_metadata_max_bytes(32_768), CommitOptions::new().offsets_retention(std::time::Duration::ZERO)] {
        assert_eq!(store.set_options(bad.clone()).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(OffsetStore::open(open_logs(&disk(), 1), bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(store.options().offset_metadata_max_bytes, 3);
}

const PRODUCER: Producer = Producer { id: 7, epoch: 3 };

fn stable(store: &OffsetStore, partition: i32) -> std::result::Result<Option<u64>, Unstable> {
    store.fetch_stable("g", &[("t", partition)]).unwrap().remove(0).map(|found| found.map(|found| found.offset))
}

#[test]
fn what_a_transaction_commits_is_shown_at_its_end_and_survives_restarts() {
    for (outcome, shown) in [(Outcome::Commit, Some(2)), (Outcome::Abort, Some(1))] {
        let mut disk = disk();
        let mut store = open(&disk);
        store.commit("g", &[("t", 0, at(1)), ("t", 1, at(1))]).unwrap();
        store.commit_in_transaction(PRODUCER, "g", &[("t", 0, at(2)), ("t", 1, at(2))]).unwrap();
        for _ in 0..2 {
            assert_eq!((fetched(&store, "g", "t", 0), stable(&store, 0), stable(&store, 9)), (Some(1), Err(Unstable), Ok(None)));
            disk = disk.image();
            store = open(&disk);
        }
        store.commit("g", &[("t", 1, at(5))]).unwrap();
        assert_eq!(store.end_transaction(PRODUCER, outcome).unwrap(), 1);
        assert_eq!(store.end_transaction(PRODUCER, outcome).unwrap(), 0, "it has ended");
        for store in [&store, &after_crash(&disk)] {
            assert_eq!((fetched(store, "g", "t", 0), stable(store, 0)), (shown, Ok(shown)));
            assert_eq!(stable(store, 1), Ok(Some(5)), "the later record counts");
        }
    }
}

#[test]
fn whoever_ends_a_transaction_again_waits_for_the_end_as_well() {
    let (_, log, store) = gated(acks(RequiredAcks::Queued));
    store.commit_in_transaction(PRODUCER, "g", &[("t", 0, at(2))]).unwrap();
    assert_eq!(store.end_transaction(PRODUCER, Outcome::Commit).unwrap(), 1);
    assert_eq!((fetched(&store, "g", "t", 0), log.recovery_point()), (None, 1));
    store.set_options(acks(RequiredAcks::Synced)).unwrap();
    assert_eq!(store.end_transaction(PRODUCER, Outcome::Commit).unwrap(), 0, "it has ended");
    assert_eq!((fetched(&store, "g", "t", 0), log.recovery_point()), (Some(2), 3));
}

#[test]
fn older_epochs_of_a_producer_are_refused() {
    let store = open(&disk());
    store.commit_in_transaction(PRODUCER, "g", &[("t", 0, at(1))]).unwrap();
    let zombie = Producer { epoch: 2, ..PRODUCER };
    assert_eq!(store.commit_in_transaction(zombie, "g", &[("t", 0, at(2))]).unwrap_err().kind(), ErrorKind::ProducerFenced);
    assert_eq!(store.end_transaction(zombie, Outcome::Commit).unwrap_err().kind(), ErrorKind::ProducerFenced);
    for unfit in [Producer { id: -1, ..PRODUCER }, Producer { epoch: -1, ..PRODUCER }] {
        assert_eq!(store.commit_in_transaction(unfit, "g", &[("t", 0, at(2))]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let newer = Producer { epoch: 4, ..PRODUCER };
    assert_eq!(store.end_transaction(newer, Outcome::Abort).unwrap(), 1);
    assert_eq!(stable(&store, 0), Ok(None));
    assert_eq!(store.commit_in_transaction(PRODUCER, "g", &[("t", 0, at(2))]).unwrap_err().kind(), ErrorKind::ProducerFenced);
}

#[test]
fn a_transaction_over_several_partitions_ends_in_all_of_them() {
    let disk = disk();
    let store = open(&disk);
    let groups: Vec<_> = (0..12).map(|number| format!("group-{number}")).collect();
    groups.iter().for_each(|group| store.commit_in_transaction(PRODUCER, group, &[("t", 0, at(1))]).unwrap());
    assert!(store.groups().unwrap().is_empty());
    assert_eq!(store.end_transaction(PRODUCER, Outcome::Commit).unwrap(), 3);
    assert_eq!(store.groups().unwrap().len(), 12);
    assert_eq!(after_crash(&disk).list().unwrap(), store.list().unwrap());
}

#[test]
fn deleting_takes_what_waits_in_a_transaction_and_the_transaction_still_ends() {
    let disk = disk();
    let store = open(&disk);
    store.commit_in_transaction(PRODUCER, "g", &[("t", 0, at(1)), ("t", 1, at(1))]).unwrap();
    assert_eq!(store.delete_offsets("g", &[("t", 0)]).unwrap(), 1);
    assert_eq!((stable(&store, 0), stable(&store, 1)), (Ok(None), Err(Unstable)));
    assert_eq!(store.delete_group("g").unwrap(), 1);
    assert_eq!(stable(&store, 1), Ok(None));
    store.commit_in_transaction(PRODUCER, "g", &[("t", 2, at(3))]).unwrap();
    assert_eq!(store.end_transaction(PRODUCER, Outcome::Commit).unwrap(), 1);
    for store in [&store, &after_crash(&disk)] {
        assert_eq!(store.list().unwrap().iter().map(|o| o.partition).collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn e18_a_deleted_topic_leaves_no_offsets_in_any_group() {
    let disk = disk();
    let store = open(&disk);
    for number in 0..700 {
        store.commit_async(&format!("group-{number}"), &[("gone", 0, at(1)), ("gone", 1, at(1)), ("kept", 0, at(1))]).wait().unwrap();
    }
    store.commit_in_transaction(PRODUCER, "pending", &[("gone", 0, at(1)), ("kept", 0, at(1))]).unwrap();
    let unshown = store.commit_async("late", &[("gone", 0, at(1))]);
    assert_eq!(store.delete_topic("gone").unwrap(), 1402);
    assert_eq!(store.delete_topic("gone").unwrap(), 0);
    unshown.wait().unwrap();
    store.end_transaction(PRODUCER, Outcome::Commit).unwrap();
    for store in [&store, &after_crash(&disk)] {
        assert_eq!(store.list().unwrap().len(), 701);
        assert!(store.list().unwrap().iter().all(|listed| *listed.topic == *"kept"));
    }
    store.commit("group-1", &[("gone", 0, at(9))]).unwrap();
    assert_eq!((fetched(&store, "group-1", "gone", 0), fetched(&store, "group-2", "gone", 0)), (Some(9), None));
}

#[test]
fn a_deletion_covers_the_key_of_0_8_2_as_well() {
    let logs = open_logs(&disk(), 1);
    let log = logs[0].clone();
    let (mut v0, mut value) = (Vec::new(), Vec::new());
    assert!(OffsetKey { group: "g", topic: "t", partition: 0 }.encode(&mut v0));
    v0[1] = 0;
    let old =
        OffsetValue { offset: 4, leader_epoch: None, metadata: "", commit_timestamp_ms: 5, expire_timestamp_ms: None, topic_id: None };
    assert!(old.encode(&mut value));
    log.append(&[Record::new(v0.clone(), value)], Durability::Synced).unwrap();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 0, at(9))]).unwrap();
    assert_eq!(store.delete_offsets("g", &[("t", 0)]).unwrap(), 1);
    let tombstones: Vec<_> = log.read_from(2).unwrap().map(|record| record.unwrap()).collect();
    let keys: Vec<_> = tombstones.iter().map(|tombstone| (tombstone.key().unwrap()[1], tombstone.value().is_none())).collect();
    assert_eq!(keys, [(0, true), (1, true)]);
}
