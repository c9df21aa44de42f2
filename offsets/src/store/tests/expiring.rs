//! What expires, when, and what is never taken for expired.

use super::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const WEEK_MS: u64 = 7 * DAY_MS;

/// A store of one partition, with its log.
fn single(disk: &MemoryStorage) -> (Log, OffsetStore) {
    let logs = open_logs(disk, 1);
    (logs[0].clone(), OffsetStore::open(logs, CommitOptions::new()).unwrap())
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Writes what a broker does of a classic group: with one member that reads each of `topics`, or empty since `since_ms`.
fn classic(log: &Log, group: &str, since_ms: i64, topics: &[&str]) {
    let mut key = vec![0, 2];
    put_string(&mut key, group);
    let mut value = vec![0, 3];
    put_string(&mut value, "consumer");
    value.extend_from_slice(&7i32.to_be_bytes());
    match topics {
        [] => value.extend_from_slice(&[0xFF; 4]),
        _ => {
            put_string(&mut value, "range");
            put_string(&mut value, "member-0");
        }
    }
    value.extend_from_slice(&since_ms.to_be_bytes());
    value.extend_from_slice(&(topics.len() as i32).to_be_bytes());
    for (number, topic) in topics.iter().enumerate() {
        put_string(&mut value, &format!("member-{number}"));
        value.extend_from_slice(&[0xFF; 2]);
        put_string(&mut value, "client");
        put_string(&mut value, "/127.0.0.1");
        value.extend_from_slice(&[60_000i32.to_be_bytes(), 45_000i32.to_be_bytes()].concat());
        let mut subscription = vec![0, 0, 0, 0, 0, 1];
        put_string(&mut subscription, topic);
        subscription.extend_from_slice(&[0xFF; 4]);
        put_bytes(&mut value, &subscription);
        put_bytes(&mut value, &[]);
    }
    log.append(&[Record::new(key, value)], Durability::Synced).unwrap();
}

fn expired(store: &OffsetStore) -> (u64, u64) {
    let expired = store.expire().unwrap();
    (expired.offsets, expired.groups)
}

#[test]
fn a_simple_group_expires_one_retention_after_its_commit_and_not_a_millisecond_before() {
    let disk = disk();
    let (log, store) = single(&disk);
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    disk.advance_ms(DAY_MS);
    store.commit("g", &[("t", 1, at(1))]).unwrap();
    disk.advance_ms(WEEK_MS - DAY_MS - 1);
    assert_eq!((expired(&store), log.end_offset()), ((0, 0), 2));
    disk.advance_ms(1);
    assert_eq!((expired(&store), log.end_offset()), ((1, 0), 3));
    assert_eq!((fetched(&store, "g", "t", 0), fetched(&store, "g", "t", 1)), (None, Some(1)));
    assert_eq!(expired(&store), (0, 0));
    assert_eq!(after_crash_of_one(&disk).list().unwrap(), store.list().unwrap());
}

fn after_crash_of_one(disk: &MemoryStorage) -> OffsetStore {
    single(&disk.image()).1
}

#[test]
fn e05_no_expiry_in_a_record_means_the_retention_of_the_store() {
    let disk = disk();
    let logs = open_logs(&disk, 1);
    let log = logs[0].clone();
    for (partition, expire_timestamp_ms) in [(0, None), (1, Some(-1)), (2, Some(NOW + 5))] {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        assert!(OffsetKey { group: "g", topic: "t", partition }.encode(&mut key));
        value.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0]);
        value.extend_from_slice(&NOW.to_be_bytes());
        match expire_timestamp_ms {
            Some(ms) => value.extend_from_slice(&i64::to_be_bytes(ms)),
            None => {
                value[1] = 2; // version 2 has no such field
            }
        }
        log.append(&[Record::new(key, value)], Durability::Synced).unwrap();
    }
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    disk.advance_ms(4);
    assert_eq!(expired(&store), (0, 0));
    disk.advance_ms(1);
    assert_eq!(expired(&store), (1, 0), "only the one that says so");
    disk.advance_ms(WEEK_MS - 6);
    assert_eq!((expired(&store), store.list().unwrap().len()), ((0, 0), 2));
    disk.advance_ms(1);
    assert_eq!(expired(&store), (2, 0));
}

#[test]
fn e06_no_retention_overflows() {
    let disk = disk();
    let (_, store) = single(&disk);
    store.commit("g", &[("t", 0, at(1)), ("t", 1, at(1).commit_timestamp_ms(0)), ("t", 2, at(1).commit_timestamp_ms(i64::MAX))]).unwrap();
    for retention in [std::time::Duration::MAX, std::time::Duration::from_millis(i64::MAX as u64), std::time::Duration::from_secs(1 << 40)]
    {
        store.set_options(CommitOptions::new().offsets_retention(retention)).unwrap();
        assert_eq!(expired(&store), (0, 0));
    }
    store.set_options(CommitOptions::new()).unwrap();
    assert_eq!(expired(&store), (1, 0), "the one of 1970");
    disk.advance_ms(WEEK_MS);
    assert_eq!(expired(&store), (1, 0), "not the one of the far future");
}

#[test]
fn e07_offsets_of_a_group_in_use_do_not_expire() {
    let disk = disk();
    let logs = open_logs(&disk, 1);
    let log = logs[0].clone();
    classic(&log, "live", NOW, &["read", "both"]);
    classic(&log, "empty", NOW + WEEK_MS as i64, &[]);
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    for group in ["live", "empty"] {
        store.commit(group, &[("read", 0, at(1)), ("both", 0, at(2)), ("left", 0, at(3))]).unwrap();
    }
    disk.advance_ms(WEEK_MS);
    assert_eq!(expired(&store), (1, 0), "of the live group, what it does not read any more");
    assert_eq!((fetched(&store, "live", "left", 0), fetched(&store, "live", "read", 0)), (None, Some(1)));
    disk.advance_ms(WEEK_MS - 1);
    assert_eq!(expired(&store), (0, 0), "the clock of an empty group starts when it becomes empty");
    classic(&log, "live", NOW, &[]);
    classic(&log, "empty", NOW, &["read"]);
    store.reload().unwrap();
    disk.advance_ms(1);
    assert_eq!(expired(&store), (4, 1), "the one became empty long ago, the other one came back: what it does not read goes");
    assert_eq!(store.list().unwrap().iter().map(|o| format!("{} {}", o.group, o.topic)).collect::<Vec<_>>(), ["empty read"]);
    assert_eq!(after_crash_of_one(&disk).list().unwrap(), store.list().unwrap());
}

#[test]
fn a_group_with_nothing_left_goes_with_its_last_offset() {
    let disk = disk();
    let logs = open_logs(&disk, 1);
    let log = logs[0].clone();
    classic(&log, "g", NOW, &[]);
    classic(&log, "never committed", NOW, &[]);
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    assert_eq!(expired(&store), (0, 1), "the empty group without offsets");
    disk.advance_ms(WEEK_MS);
    let end_offset = log.end_offset();
    assert_eq!(expired(&store), (1, 1));
    let tombstones: Vec<_> = log.read_from(end_offset).unwrap().map(|record| record.unwrap()).collect();
    assert_eq!(tombstones.iter().map(|t| (t.key().unwrap()[1], t.value().is_none())).collect::<Vec<_>>(), [(1, true), (2, true)]);
    assert_eq!(log.batches_from(end_offset).unwrap().count(), 1, "in one batch");
    assert_eq!(expired(&store), (0, 0));
}

#[test]
fn e09_what_waits_to_be_committed_does_not_expire_nor_does_its_group() {
    let disk = disk();
    let logs = open_logs(&disk, 1);
    let log = logs[0].clone();
    for group in ["open", "waiting"] {
        classic(&log, group, NOW, &[]);
    }
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    let producer = Producer { id: 1, epoch: 0 };
    store.commit("open", &[("t", 0, at(1)), ("t", 1, at(1))]).unwrap();
    store.commit("waiting", &[("t", 0, at(1))]).unwrap();
    store.commit_in_transaction(producer, "open", &[("t", 0, at(2))]).unwrap();
    disk.advance_ms(WEEK_MS);
    let pending = store.commit_async("waiting", &[("t", 0, at(2))]);
    assert_eq!(expired(&store), (1, 0));
    pending.wait().unwrap();
    assert_eq!((fetched(&store, "open", "t", 0), fetched(&store, "waiting", "t", 0)), (Some(1), Some(2)));
    store.end_transaction(producer, Outcome::Commit).unwrap();
    assert_eq!(fetched(&store, "open", "t", 0), Some(2));
    disk.advance_ms(WEEK_MS);
    assert_eq!(expired(&store), (2, 2));
}

#[test]
fn e13_an_expiry_passes_over_a_partition_that_loads() {
    let disk = disk();
    open(&disk).commit("g", &[("t", 0, at(1))]).unwrap();
    let disk = disk.image();
    disk.advance_ms(WEEK_MS);
    let store = OffsetStore::open_unled(open_logs(&disk, 3), CommitOptions::new()).unwrap();
    (0..3).for_each(|partition| _ = store.lead(partition, 0).unwrap());
    assert_eq!(expired(&store), (0, 0));
    while store.load_next().is_some() {}
    assert_eq!(expired(&store), (1, 0));
}

#[test]
fn an_expiry_passes_over_a_partition_that_is_resigned_meanwhile() {
    let disk = disk();
    open(&disk).commit("g", &[("t", 0, at(1))]).unwrap();
    disk.advance_ms(WEEK_MS);
    let store = open(&disk.image());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for epoch in 0..100 {
                store.resign(0, Some(epoch)).unwrap();
                store.lead(0, epoch + 1).unwrap();
                while store.load_next().is_some() {}
            }
        });
        let found: u64 = (0..100).map(|_| expired(&store).0).sum();
        assert!(found <= 1);
    });
}

#[test]
fn e13_a_new_commit_wins_against_an_expiry_at_the_same_time() {
    let disk = disk();
    let store = open(&disk);
    for round in 0..200 {
        store.commit("g", &[("t", 0, at(round))]).unwrap();
        disk.advance_ms(WEEK_MS);
        std::thread::scope(|scope| {
            let expiry = scope.spawn(|| store.expire().unwrap());
            store.commit("g", &[("t", 0, at(1000 + round))]).unwrap();
            expiry.join().unwrap();
        });
        assert_eq!(fetched(&store, "g", "t", 0), Some(1000 + round));
        assert_eq!(fetched(&after_crash(&disk), "g", "t", 0), Some(1000 + round));
    }
}

#[test]
fn a_clock_that_goes_back_expires_nothing() {
    let disk = disk();
    let (log, store) = single(&disk);
    disk.advance_ms(10 * WEEK_MS);
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    disk.set_now_ms(0);
    assert_eq!((expired(&store), log.end_offset()), ((0, 0), 1));
}

#[test]
fn e17_what_is_committed_once_does_not_pile_up() {
    let disk = disk();
    let options = LogOptions::new().max_message_bytes(2000).segment_bytes(65_536);
    let logs = logs(Arc::new(disk.clone()), Path::new(DATA), 1, &options);
    let log = logs[0].clone();
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    let mut all = 0;
    for day in 0..30 {
        let pending: Vec<_> = (0..400).map(|n| store.commit_async(&format!("once-{day}-{n}"), &[("t", 0, at(1))])).collect();
        pending.into_iter().for_each(|pending| pending.wait().unwrap());
        disk.advance_ms(DAY_MS);
        all += expired(&store).0;
        assert!(store.list().unwrap().len() <= 7 * 400);
    }
    assert_eq!((all, store.groups().unwrap().len()), (24 * 400, 6 * 400));
    assert!(log.batches_from(0).unwrap().all(|batch| batch.unwrap().bytes.len() <= 2000));
    assert_eq!(after_crash_of_one(&disk).list().unwrap(), store.list().unwrap());
}

#[test]
fn a_group_with_members_is_not_deleted() {
    let logs = open_logs(&disk(), 1);
    let log = logs[0].clone();
    classic(&log, "g", NOW, &["t"]);
    let store = OffsetStore::open(logs, CommitOptions::new()).unwrap();
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    let error = store.delete_group("g").unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("members"), "{error}");
    classic(&log, "g", NOW, &[]);
    store.reload().unwrap();
    assert_eq!(store.delete_group("g").unwrap(), 1);
    assert_eq!(log.read_from(3).unwrap().map(|record| record.unwrap().key().unwrap()[1]).collect::<Vec<_>>(), [1, 2]);
}
