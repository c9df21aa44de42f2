//! Field reports about committed offsets: part (e) of docs/FIELD_REPORTS.md, as far as offsets do not expire.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::offsets::record::{OffsetKey, OffsetValue};
use keeplog::inspect::record::{BatchSpec, BatchWriter};
use keeplog::inspect::storage::Storage;
use keeplog::{
    CONSUMER_OFFSETS, CleanOptions, Durability, ErrorKind, Log, OffsetAndMetadata, OffsetOptions, OffsetStore, Progress, Record,
    StoreOptions, TransactionEnd, TxnResult, Watch,
};

use crate::shim::{Call, Shim, Verdict};

use keeplog_fixtures::Dice;

use crate::disk::{T0, disk};

fn options() -> OffsetOptions {
    let options = OffsetOptions::new().offsets_topic_segment_bytes(4096).offsets_topic_num_partitions(1);
    options.store(StoreOptions::new().background_thread(false))
}

fn open(storage: &Arc<impl Storage + 'static>) -> OffsetStore {
    open_with(storage, options()).unwrap()
}

fn open_with(storage: &Arc<impl Storage + 'static>, options: OffsetOptions) -> keeplog::Result<OffsetStore> {
    OffsetStore::open_with(Arc::clone(storage) as Arc<dyn Storage>, Path::new("/data"), options)
}

fn at(offset: u64) -> OffsetAndMetadata {
    OffsetAndMetadata::new(offset)
}

fn fetched(offsets: &OffsetStore, group: &str, topic: &str) -> Option<u64> {
    offsets.fetch(group, &[(topic, 0)]).unwrap()[0].as_ref().map(|committed| committed.offset)
}

fn log_of(offsets: &OffsetStore) -> Log {
    offsets.store().log(CONSUMER_OFFSETS, 0).unwrap()
}

/// What is committed, by group, topic and partition, without where it stands in the log.
fn answers(offsets: &OffsetStore) -> Vec<(String, String, i32, u64)> {
    let listed = offsets.list().unwrap().into_iter();
    listed.map(|o| (o.group.to_string(), o.topic.to_string(), o.partition, o.committed.offset)).collect()
}

fn key(group: &str, topic: &str) -> Vec<u8> {
    let mut key = Vec::new();
    assert!(OffsetKey { group, topic, partition: 0 }.encode(&mut key));
    key
}

fn value(offset: i64) -> Vec<u8> {
    let (leader_epoch, commit_timestamp_ms, expire_timestamp_ms) = (None, T0, None);
    let mut value = Vec::new();
    let committed = OffsetValue { offset, leader_epoch, metadata: "", commit_timestamp_ms, expire_timestamp_ms, topic_id: None };
    assert!(committed.encode(&mut value));
    value
}

/// One record of an open transaction.
fn in_transaction(log: &Log, producer_id: i64, sequence: i32, key: &[u8], value: &[u8]) {
    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec { producer_id, producer_epoch: 0, base_sequence: sequence, transactional: true, ..BatchSpec::default() });
    writer.push(0, T0, Some(key), Some(value), &[]).unwrap();
    let mut batch = Vec::new();
    writer.finish(&mut batch).unwrap();
    log.append_batch(batch, Durability::Buffered).unwrap();
}

fn end(log: &Log, producer_id: i64, result: TxnResult) {
    log.end_transaction(&TransactionEnd { producer_id, producer_epoch: 0, result, coordinator_epoch: 0 }, Durability::Buffered).unwrap();
}

#[test]
fn e03_the_last_record_wins_over_all_segments() {
    let disk = disk();
    let offsets = open(&disk);
    let log = log_of(&offsets);
    offsets.commit("g", &[("a", 0, at(1)), ("b", 0, at(1)), ("c", 0, at(1))]).unwrap();
    log.roll().unwrap();
    offsets.commit("g", &[("a", 0, at(2)), ("c", 0, at(2))]).unwrap();
    offsets.delete_offsets("g", &[("b", 0)]).unwrap();
    log.roll().unwrap();
    offsets.commit("g", &[("b", 0, at(3))]).unwrap();
    offsets.delete_offsets("g", &[("c", 0)]).unwrap();
    let expected = [Some(2), Some(3), None];
    let seen = |offsets: &OffsetStore| ["a", "b", "c"].map(|topic| fetched(offsets, "g", topic));
    assert_eq!(seen(&offsets), expected);
    assert_eq!(seen(&open(&Arc::new(disk.image()))), expected);
    offsets.close().unwrap();
    assert_eq!(seen(&open(&disk)), expected);
}

/// The higher place in the log wins, whichever was complete first: before and after a pass, and after a restart.
#[test]
fn e08_transactions_and_plain_commits_have_one_order() {
    for (transaction_first, result) in [(true, TxnResult::Committed), (false, TxnResult::Committed), (true, TxnResult::Aborted)] {
        let disk = disk();
        let offsets = open(&disk);
        let log = log_of(&offsets);
        if transaction_first {
            in_transaction(&log, 7, 0, &key("g", "t"), &value(10));
            offsets.commit("g", &[("t", 0, at(20))]).unwrap();
        } else {
            offsets.commit("g", &[("t", 0, at(20))]).unwrap();
            in_transaction(&log, 7, 0, &key("g", "t"), &value(10));
        }
        end(&log, 7, result);
        let expected = Some(if transaction_first { 20 } else { 10 });
        offsets.reload().unwrap();
        assert_eq!(fetched(&offsets, "g", "t"), expected);
        log.roll().unwrap();
        offsets.store().clean(&log).unwrap();
        offsets.reload().unwrap();
        assert_eq!(fetched(&offsets, "g", "t"), expected, "after a pass");
        offsets.close().unwrap();
        assert_eq!(fetched(&open(&disk), "g", "t"), expected, "after a restart");
    }
}

/// What waits in an open transaction is seen by nobody, deleted with its group, and gone at its end.
#[test]
fn e09_nothing_is_left_of_a_transaction_at_its_end() {
    for result in [Some(TxnResult::Committed), Some(TxnResult::Aborted), None] {
        for deleted in [false, true] {
            let disk = disk();
            let offsets = open(&disk);
            let log = log_of(&offsets);
            in_transaction(&log, 7, 0, &key("new", "t"), &value(10));
            offsets.reload().unwrap();
            assert_eq!((fetched(&offsets, "new", "t"), offsets.groups().unwrap().len()), (None, 0));
            if deleted {
                assert_eq!(offsets.delete_group("new").unwrap(), 1, "what waits counts");
            }
            if let Some(result) = result {
                end(&log, 7, result);
            }
            offsets.reload().unwrap();
            let expected = (result == Some(TxnResult::Committed) && !deleted).then_some(10);
            assert_eq!(fetched(&offsets, "new", "t"), expected, "{result:?}, deleted: {deleted}");
            let waits = usize::from(result.is_none() && !deleted);
            assert_eq!(offsets.delete_group("new").unwrap(), waits + usize::from(expected.is_some()), "{result:?}, deleted: {deleted}");
        }
    }
}

/// A commit that was acknowledged is what the same thread reads next, whatever the others do.
#[test]
fn e10_an_acknowledged_commit_is_seen_by_the_next_read() {
    let offsets = open(&disk());
    std::thread::scope(|scope| {
        for group in 0..8 {
            let offsets = &offsets;
            scope.spawn(move || {
                // Two threads share a group, and all share syncs.
                let (group, topic) = (format!("group-{}", group / 2), format!("topic-{group}"));
                for offset in 0..500 {
                    offsets.commit(&group, &[(topic.as_str(), 0, at(offset))]).unwrap();
                    assert_eq!(fetched(offsets, &group, &topic), Some(offset));
                }
            });
        }
    });
}

/// Random lives, of which anything may be missing that a cleaner could have taken: the answers are those of the whole.
#[test]
fn e11_what_compaction_may_leave_gives_the_answers_of_the_whole() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let steps: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..30)
            .map(|i| {
                let key = key(&format!("g{}", dice.roll(2)), &format!("t{}", dice.roll(3)));
                (key, (dice.roll(3) > 0).then(|| value(i)))
            })
            .collect();
        let mut newest = BTreeMap::new();
        steps.iter().enumerate().for_each(|(i, (key, _))| _ = newest.insert(key.clone(), i));
        let answers_without = |missing: &dyn Fn(usize) -> bool| {
            let disk = disk();
            let offsets = open(&disk);
            let log = log_of(&offsets);
            let mut writer = BatchWriter::new();
            for (i, (key, value)) in steps.iter().enumerate().filter(|(i, _)| !missing(*i)) {
                writer.begin(BatchSpec { base_offset: i as u64, ..BatchSpec::default() });
                writer.push(i as u64, T0, Some(key), value.as_deref(), &[]).unwrap();
                let mut batch = Vec::new();
                writer.finish(&mut batch).unwrap();
                log.append_as_follower(&batch, Durability::Buffered).unwrap();
            }
            offsets.reload().unwrap();
            answers(&offsets)
        };
        let whole = answers_without(&|_| false);
        let legal: Vec<usize> = (0..steps.len()).filter(|i| newest[&steps[*i].0] != *i || steps[*i].1.is_none()).collect();
        for _ in 0..10 {
            let kept = dice.roll(1 << 30);
            // A tombstone goes only when nothing older of its key is left.
            let superseded = |i: usize| legal.contains(&i) && newest[&steps[i].0] != i && kept >> (i % 30) & 1 == 0;
            let missing = |i: usize| {
                let older_left = (0..i).any(|j| steps[j].0 == steps[i].0 && !superseded(j));
                superseded(i) || (legal.contains(&i) && newest[&steps[i].0] == i && !older_left && kept >> (i % 30) & 1 == 0)
            };
            assert_eq!(answers_without(&missing), whole, "seed {seed}");
        }
    }
}

/// Loads the store anew between the pieces of a pass.
struct Reloading<'a>(&'a OffsetStore, std::sync::Mutex<usize>);

impl Watch for Reloading<'_> {
    fn progress(&self, _: Progress) {
        let before = answers(self.0);
        self.0.reload().unwrap();
        assert_eq!(answers(self.0), before);
        *self.1.lock().unwrap() += 1;
    }
}

#[test]
fn e11_a_load_during_a_pass_gives_the_same_answers() {
    let offsets = open(&disk());
    let log = log_of(&offsets);
    for round in 0..30 {
        let all: Vec<_> = (0..20).map(|p| ("t", p, at(round))).collect();
        offsets.commit(&format!("group-{}", round % 3), &all).unwrap();
        offsets.delete_group("group-1").unwrap();
    }
    log.roll().unwrap();
    let watch = Reloading(&offsets, Default::default());
    let mut pass = CleanOptions::new(T0);
    (pass.segment_bytes, pass.chunk_bytes) = (4096, 1000);
    let report = keeplog::clean(&log, &pass, &watch).unwrap();
    assert!(*watch.1.lock().unwrap() > 5 && report.bytes_written * 2 < report.bytes_read, "{report}");
    offsets.reload().unwrap();
    assert_eq!(answers(&offsets).len(), 40);
}

/// Commits, deletions and expiries from many threads while a cleaner works on small segments: all come to their end.
#[test]
fn e12_commits_deletions_and_the_cleaner_do_not_wait_for_each_other() {
    let offsets = open(&disk());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16_u64)
            .map(|worker| {
                let offsets = &offsets;
                scope.spawn(move || {
                    for round in 0..50 {
                        let group = format!("group-{}", (worker + round) % 8);
                        let old = at(round).commit_timestamp_ms(1);
                        offsets.commit(&group, &[("t", 0, at(round)), ("u", 1, at(worker)), ("v", 2, old)]).unwrap();
                        match round % 5 {
                            0 => _ = offsets.delete_group(&group).unwrap(),
                            1 => _ = offsets.delete_offsets(&group, &[("u", 1)]).unwrap(),
                            _ => _ = offsets.fetch_all(&group).unwrap(),
                        }
                    }
                })
            })
            .collect();
        let log = log_of(&offsets);
        while workers.iter().any(|worker| !worker.is_finished()) {
            offsets.expire().unwrap();
            log.roll().unwrap();
            offsets.store().clean(&log).unwrap();
        }
    });
    let shown = answers(&offsets);
    offsets.reload().unwrap();
    assert_eq!(answers(&offsets), shown);
}

/// Metadata that is too long refuses its own entry; whatever else is wrong with one refuses the call, and so does an append that
/// fails.
#[test]
fn e14_one_bad_entry_of_a_commit_is_told_by_itself_and_a_failed_append_shows_nothing() {
    let shim = Shim::over(&disk());
    let roomy = || options().offsets_topic_segment_bytes(1 << 20);
    let offsets = open_with(&shim, roomy()).unwrap();
    let limit = offsets.options().offset_metadata_max_bytes;
    let error = offsets.commit("g", &[("a", 0, at(1)), ("b", -1, at(2)), ("c", 0, at(3))]).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("\"b\""), "{error}");
    assert_eq!((answers(&offsets).len(), log_of(&offsets).end_offset()), (0, 0));
    let entries = [("a", 0, at(1).metadata("")), ("b", 0, at(2).metadata("x".repeat(limit + 1))), ("c", 0, at(3))];
    let answer = offsets.commit_each("g", &entries).unwrap();
    assert_eq!(answer.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(answers(&offsets).len(), 2);
    offsets.commit("g", &[("b", 0, at(2).metadata("x".repeat(limit)))]).unwrap();
    shim.set_rule(|call, path| {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if is_log && matches!(call, Call::Write(_)) { Verdict::Fail(std::io::ErrorKind::Other) } else { Verdict::Go }
    });
    assert_eq!(offsets.commit("g", &[("a", 0, at(9)), ("d", 0, at(9))]).unwrap_err().kind(), ErrorKind::Io);
    shim.heal();
    assert_eq!((fetched(&offsets, "g", "a"), fetched(&offsets, "g", "d")), (Some(1), None));
    drop(offsets);
    let offsets = open_with(&shim, roomy()).unwrap();
    assert_eq!((fetched(&offsets, "g", "a"), answers(&offsets).len()), (Some(1), 3));
}

/// What a log may have as an offset may be committed, and comes back exactly. What lies above the end is the caller's business.
#[test]
fn e15_offsets_at_the_edges_survive_a_restart() {
    let disk = disk();
    let offsets = open(&disk);
    let edges = [0, 1, u64::from(u32::MAX), (1 << 53) + 1, i64::MAX as u64];
    for (partition, offset) in edges.into_iter().enumerate() {
        offsets.commit("g", &[("unknown", i32::try_from(partition).unwrap(), at(offset))]).unwrap();
    }
    // -1 and -2, as bits.
    for negative in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert_eq!(offsets.commit("g", &[("t", 0, at(negative))]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    offsets.close().unwrap();
    let offsets = open(&disk);
    let partitions: Vec<_> = (0..edges.len()).map(|p| ("unknown", i32::try_from(p).unwrap())).collect();
    let back: Vec<_> = offsets.fetch("g", &partitions).unwrap().into_iter().map(|c| c.unwrap().offset).collect();
    assert_eq!(back, edges);
    // Another tool's -1 means nothing committed.
    let log = log_of(&offsets);
    log.append(&[Record::new(key("g", "t"), value(-1))], Durability::Buffered).unwrap();
    offsets.reload().unwrap();
    assert_eq!(fetched(&offsets, "g", "t"), None);
}

#[test]
fn e16_a_commit_of_nothing_writes_nothing() {
    let offsets = open(&disk());
    offsets.commit("g", &[("t", 0, at(1))]).unwrap();
    let log = log_of(&offsets);
    offsets.commit::<&str>("g", &[]).unwrap();
    offsets.commit::<&str>("never seen", &[]).unwrap();
    assert_eq!(offsets.delete_offsets::<&str>("g", &[]).unwrap(), 0);
    assert_eq!((log.end_offset(), offsets.groups().unwrap().len()), (1, 1));
    // The end of a transaction without commits is a marker, and no batch of records.
    end(&log, 7, TxnResult::Committed);
    offsets.reload().unwrap();
    assert_eq!((log.read_from(0).unwrap().count(), answers(&offsets).len()), (1, 1));
}
