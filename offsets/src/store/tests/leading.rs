//! Partitions that are led, resigned, and loaded.

use super::*;

fn unled(disk: &MemoryStorage) -> OffsetStore {
    OffsetStore::open_unled(open_logs(disk, 3), CommitOptions::new()).unwrap()
}

/// A disk with 30 groups, and one of them in each partition.
fn filled() -> (MemoryStorage, Vec<String>) {
    let disk = disk();
    let store = open(&disk);
    for number in 0..30 {
        store.commit(&format!("group-{number}"), &[("t", 0, at(number))]).unwrap();
    }
    let count = store.partitions();
    let of = |partition| (0..30).map(|n| format!("group-{n}")).find(|group| partition_for(group, count) == partition).unwrap();
    (disk.image(), (0..3).map(of).collect())
}

fn kind_of(store: &OffsetStore, group: &str) -> Option<ErrorKind> {
    let fetch = store.fetch(group, &[("t", 0)]).err().map(|error| error.kind());
    let commit = store.commit(group, &[("u", 0, at(1))]).err().map(|error| error.kind());
    let deletion = store.delete_offsets(group, &[("u", 0)]).err().map(|error| error.kind());
    assert_eq!((fetch, store.commit_async(group, &[("u", 0, at(1))]).wait().err().map(|error| error.kind())), (commit, deletion));
    fetch
}

#[test]
fn a_partition_is_served_from_its_load_to_its_resignation() {
    let (disk, groups) = filled();
    let store = unled(&disk);
    assert_eq!((kind_of(&store, &groups[1]), store.groups().unwrap().len()), (Some(ErrorKind::NotLeader), 0));
    assert_eq!(store.lead(1, 5).unwrap(), Lead::Loads);
    assert_eq!(kind_of(&store, &groups[1]), Some(ErrorKind::Loading));
    assert!(store.list().is_err(), "a list without the partition that loads would not be whole");
    assert_eq!(store.load_next().map(|(partition, loaded)| (partition, loaded.unwrap().groups > 0)), Some((1, true)));
    assert!(store.load_next().is_none());
    assert_eq!((kind_of(&store, &groups[1]), kind_of(&store, &groups[0])), (None, Some(ErrorKind::NotLeader)));
    assert!(store.groups().unwrap().iter().all(|group| partition_for(group, store.partitions()) == 1));
    assert_eq!(store.reload().unwrap().groups, store.groups().unwrap().len() as u64);

    assert!(store.resign(1, Some(6)).unwrap());
    assert_eq!((kind_of(&store, &groups[1]), store.partition_state(1).unwrap()), (Some(ErrorKind::NotLeader), PartitionState::NotLed));
    let too_long = [("t", 0, at(1).metadata("x".repeat(4097)))];
    for told in [store.commit(&groups[1], &too_long), store.commit_async(&groups[1], &too_long).wait()] {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::NotLeader, "where it is not served, nothing is said of what it would take");
    }
    assert_eq!(store.lead(3, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(store.resign(3, None).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn stale_epochs_change_nothing() {
    let (disk, groups) = filled();
    let store = unled(&disk);
    assert_eq!((store.lead(0, 5).unwrap(), store.lead(0, 5).unwrap(), store.lead(0, 4).unwrap()), (Lead::Loads, Lead::Stale, Lead::Stale));
    assert_eq!(store.lead(0, 6).unwrap(), Lead::Led, "it is being loaded already");
    store.load_next().unwrap().1.unwrap();
    assert_eq!((store.lead(0, 8).unwrap(), kind_of(&store, &groups[0])), (Lead::Led, None));
    assert!(!store.resign(0, Some(7)).unwrap());
    assert_eq!(kind_of(&store, &groups[0]), None);
    assert!(store.resign(0, Some(8)).unwrap());
    assert_eq!((store.lead(0, 8).unwrap(), kind_of(&store, &groups[0])), (Lead::Stale, Some(ErrorKind::NotLeader)));
    assert_eq!(store.lead(0, 9).unwrap(), Lead::Loads);
    assert!(store.resign(0, None).unwrap(), "without an epoch it always counts");
    assert_eq!(kind_of(&store, &groups[0]), Some(ErrorKind::NotLeader));
    assert_eq!(store.lead(0, 9).unwrap(), Lead::Stale);
}

#[test]
fn the_largest_partition_is_loaded_first_and_progress_is_told() {
    let (disk, groups) = filled();
    let store = open(&disk);
    for number in 0..100 {
        store.commit(&groups[2], &[("t", number, at(1).metadata("x".repeat(300)))]).unwrap();
    }
    let store = unled(&disk.image());
    for partition in 0..3 {
        store.lead(partition, 0).unwrap();
    }
    let PartitionState::Loading { bytes_read, bytes } = store.partition_state(2).unwrap() else { panic!() };
    assert_eq!((bytes_read, bytes), (0, store.inner.shards[2].log().segments().all()[0].size_bytes()));
    let error = store.fetch(&groups[2], &[("t", 0)]).unwrap_err();
    assert!(error.to_string().contains(&format!("0 of {bytes} bytes read")), "{error}");
    let first = store.load_next().unwrap();
    assert_eq!((first.0, first.1.unwrap().bytes), (2, bytes));
    assert!(store.load_next().is_some() && store.load_next().is_some() && store.load_next().is_none());
}

/// The load has taken its partition in hand when it is resigned, and led again: what it brings is of an earlier life.
#[test]
fn e20_a_load_that_ends_after_a_resignation_brings_nothing_back() {
    let (disk, groups) = filled();
    let store = unled(&disk);
    let shard = &store.inner.shards[0];
    for led_again in [false, true] {
        let epoch = 10 * i32::from(led_again);
        store.lead(0, epoch + 1).unwrap();
        let progress = shard.waiting_load().unwrap();
        assert!(progress.begin());
        store.resign(0, Some(epoch + 2)).unwrap();
        if led_again {
            store.lead(0, epoch + 3).unwrap();
        }
        shard.load(&progress, true).unwrap();
        assert_eq!(kind_of(&store, &groups[0]), Some(if led_again { ErrorKind::Loading } else { ErrorKind::NotLeader }));
    }
    store.load_next().unwrap().1.unwrap();
    assert_eq!(kind_of(&store, &groups[0]), None);
}

/// It was led when the reload began, and resigned before its turn came.
#[test]
fn a_reload_brings_no_partition_back_that_was_resigned_meanwhile() {
    let (disk, groups) = filled();
    let store = open(&disk);
    let led: Vec<_> = store.led_shards().collect();
    store.resign(1, None).unwrap();
    for shard in led {
        shard.reload(0, true).unwrap();
    }
    assert_eq!((kind_of(&store, &groups[1]), kind_of(&store, &groups[0])), (Some(ErrorKind::NotLeader), None));
}

#[test]
fn those_who_wait_are_told_of_a_resignation() {
    let (disk, groups) = filled();
    let store = open(&disk);
    let pending = store.commit_async(&groups[1], &[("t", 0, at(77))]);
    store.resign(1, None).unwrap();
    let error = pending.wait().unwrap_err();
    assert!(error.kind() == ErrorKind::NotLeader && error.to_string().contains("may be there or not"), "{error}");
    assert_eq!(store.lead(1, 1).unwrap(), Lead::Loads);
    store.load_next().unwrap().1.unwrap();
    assert_eq!(fetched(&store, &groups[1], "t", 0), Some(77));
}

/// Another leader may have had less of the log, so that the same offsets are given again.
#[test]
fn what_was_owed_before_a_resignation_holds_up_no_answer_after_it() {
    let store = OffsetStore::open(open_logs(&disk(), 1), CommitOptions::new()).unwrap();
    let owed = store.commit_async("g", &[("t", 0, at(1)), ("t", 1, at(1))]);
    store.resign(0, Some(1)).unwrap();
    assert_eq!(owed.wait().unwrap_err().kind(), ErrorKind::NotLeader);
    store.inner.shards[0].log().truncate_to(0).unwrap();
    store.lead(0, 2).unwrap();
    store.load_next().unwrap().1.unwrap();
    store.set_options(CommitOptions::new().offsets_commit_required_acks(RequiredAcks::Queued)).unwrap();
    for offset in 0..2 {
        assert!(store.commit_async("g", &[("t", 0, at(offset))]).is_answered(), "{offset}");
    }
}

#[test]
fn a_failed_load_says_why_and_is_tried_again_with_a_newer_epoch() {
    let (disk, groups) = filled();
    let logs = open_logs(&disk, 3);
    let log = logs[0].clone();
    let store = OffsetStore::open_unled(logs, CommitOptions::new()).unwrap();
    log.append(&[Record::new(vec![0, 1, 0, 9], "x")], Durability::Synced).unwrap();
    store.lead(0, 1).unwrap();
    assert_eq!(store.load_next().unwrap().1.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(kind_of(&store, &groups[0]), Some(ErrorKind::Corrupt));
    let PartitionState::Failed { why } = store.partition_state(0).unwrap() else { panic!() };
    assert!(why.contains("cannot be read"), "{why}");
    assert_eq!(store.lead(0, 1).unwrap(), Lead::Stale);
    assert_eq!(store.lead(0, 2).unwrap(), Lead::Loads);
    assert_eq!(store.load_next().unwrap().1.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_reload_that_cannot_sync_ends_a_load_that_nobody_goes_on_with() {
    let storage = Arc::new(GatedStorage::new(disk()));
    let logs = logs(Arc::clone(&storage) as Arc<dyn Storage>, Path::new(DATA), 1, &LogOptions::new());
    logs[0].append(&[Record::new("k", "v")], Durability::Synced).unwrap();
    logs[0].append(&[Record::new("k", "v")], Durability::Buffered).unwrap();
    let store = OffsetStore::open_unled(logs, CommitOptions::new()).unwrap();
    store.lead(0, 1).unwrap();
    storage.set(Syncs::Fail);
    assert_eq!(store.reload().unwrap_err().kind(), ErrorKind::Io);
    assert!(matches!(store.partition_state(0).unwrap(), PartitionState::Failed { .. }));
}
