use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use keeplog_fixtures::{Set, dump_lines, unpack};
use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::cache::GroupOffset;

thread_local! {
    /// How often the ids of two producers were compared.
    pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
}

const KEY: OffsetKey<'static> = OffsetKey { group: "g", topic: "t", partition: 0 };
const TXN: Origin = Origin::Transaction { producer_id: 7 };

fn key_bytes(key: &OffsetKey<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(key.encode(&mut out));
    out
}

fn value_bytes(offset: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let value = OffsetValue { offset, leader_epoch: None, metadata: "", commit_timestamp_ms: 5, expire_timestamp_ms: None, topic_id: None };
    assert!(value.encode(&mut out));
    out
}

/// A log written by hand: each step has the next offset.
#[derive(Default)]
struct Log {
    replay: Replay,
    next: u64,
}

impl Log {
    fn commit(&mut self, origin: Origin, offset: i64) -> &mut Self {
        self.append(origin, Some(&value_bytes(offset)))
    }

    fn tombstone(&mut self, origin: Origin) -> &mut Self {
        self.append(origin, None)
    }

    fn append(&mut self, origin: Origin, value: Option<&[u8]>) -> &mut Self {
        self.replay.record(origin, self.next, Some(&key_bytes(&KEY)), value).unwrap();
        self.next += 1;
        self
    }

    fn marker(&mut self, producer_id: i64, outcome: Outcome) -> &mut Self {
        self.replay.marker(producer_id, outcome);
        self.next += 1;
        self
    }

    fn committed(&self) -> Option<u64> {
        self.replay.cache().get(&KEY).map(|c| c.offset)
    }
}

#[test]
fn the_later_of_two_plain_commits_counts_and_a_tombstone_ends_it() {
    let mut log = Log::default();
    assert_eq!(log.commit(Origin::Plain, 5).committed(), Some(5));
    assert_eq!(log.commit(Origin::Plain, 3).committed(), Some(3));
    assert_eq!(log.tombstone(Origin::Plain).committed(), None);
    assert_eq!(log.replay.counts(), ReplayCounts { records: 3, tombstones: 1, ..Default::default() });
}

#[test]
fn a_transactional_commit_is_seen_after_its_marker_or_never() {
    let mut log = Log::default();
    assert_eq!(log.commit(TXN, 5).committed(), None);
    assert!(log.replay.is_pending(&KEY));
    assert_eq!(log.marker(8, Outcome::Commit).committed(), None, "another producer's marker");
    assert_eq!(log.commit(TXN, 6).marker(7, Outcome::Commit).committed(), Some(6), "the later of two in one transaction");
    assert_eq!(log.commit(TXN, 7).marker(7, Outcome::Abort).committed(), Some(6));
    assert_eq!(log.marker(7, Outcome::Commit).committed(), Some(6), "an aborted commit does not come back");
    assert_eq!((log.replay.open_transactions(), log.replay.is_pending(&KEY)), (0, false));
}

#[test]
fn the_newest_record_wins_not_the_newest_marker() {
    let mut log = Log::default();
    log.commit(TXN, 5).commit(Origin::Plain, 6).marker(7, Outcome::Commit);
    assert_eq!(log.committed(), Some(6));
    let other = Origin::Transaction { producer_id: 8 };
    log.commit(TXN, 10).commit(other, 20).marker(8, Outcome::Commit);
    assert_eq!(log.committed(), Some(20));
    assert_eq!(log.marker(7, Outcome::Commit).committed(), Some(20));
}

#[test]
fn a_tombstone_removes_what_waits_for_the_same_place() {
    for origin in [Origin::Plain, TXN, Origin::Transaction { producer_id: 8 }] {
        let mut log = Log::default();
        log.commit(Origin::Plain, 1).commit(TXN, 5).tombstone(origin);
        assert_eq!(log.committed(), None, "{origin:?}: at once, whatever the transaction comes to");
        assert_eq!((log.replay.is_pending(&KEY), log.replay.open_transactions()), (false, 1), "the transaction is still open");
        assert_eq!(log.marker(7, Outcome::Commit).committed(), None);
        assert_eq!(log.replay.open_transactions(), 0);
        assert_eq!(log.commit(TXN, 6).marker(7, Outcome::Commit).committed(), Some(6));
    }
}

#[test]
fn a_commit_after_a_tombstone_in_the_same_transaction_counts() {
    let mut log = Log::default();
    log.commit(TXN, 5).tombstone(TXN).commit(TXN, 6).marker(7, Outcome::Commit);
    assert_eq!((log.committed(), log.replay.open_transactions()), (Some(6), 0));
}

#[test]
fn a_negative_offset_is_nothing_committed() {
    let mut log = Log::default();
    assert_eq!(log.commit(Origin::Plain, 5).commit(Origin::Plain, -1).committed(), None);
    assert_eq!(log.commit(Origin::Plain, 5).commit(TXN, -1).committed(), Some(5));
    assert_eq!(log.marker(7, Outcome::Commit).committed(), None);
    log.commit(TXN, -1).commit(Origin::Plain, 6).marker(7, Outcome::Commit);
    assert_eq!(log.committed(), Some(6), "older than what is held");
}

/// As with any later commit; a cleaner drops the older record for it.
#[test]
fn what_waits_from_before_a_negative_offset_comes_to_nothing() {
    let other = Origin::Transaction { producer_id: 8 };
    for later in [Origin::Plain, other] {
        let mut log = Log::default();
        log.commit(TXN, 5).commit(later, -1).marker(8, Outcome::Commit);
        assert!(log.replay.is_pending(&KEY), "{later:?}: its transaction is open");
        assert_eq!(log.marker(7, Outcome::Commit).committed(), None, "{later:?}");
        log.commit(later, -1).commit(TXN, 6).marker(8, Outcome::Commit);
        assert_eq!(log.marker(7, Outcome::Commit).committed(), Some(6), "{later:?}");
    }
}

#[test]
fn both_key_versions_are_one_entry() {
    let mut replay = Replay::new();
    let (newer, value) = (key_bytes(&KEY), value_bytes(1));
    let mut older = newer.clone();
    older[1] = 0;
    replay.record(Origin::Plain, 0, Some(&older), Some(&value)).unwrap();
    replay.record(Origin::Plain, 1, Some(&newer), Some(&value_bytes(2))).unwrap();
    assert_eq!((replay.cache().len(), replay.cache().get(&KEY).unwrap().offset), (1, 2));
    replay.record(Origin::Plain, 2, Some(&older), None).unwrap();
    assert!(replay.cache().is_empty());
}

#[test]
fn what_is_not_known_is_passed_over_and_counted() {
    let mut replay = Replay::new();
    replay.record(Origin::Plain, 0, Some(&[0, 2, 0, 1, b'g']), Some(&[0xFF])).unwrap();
    assert_eq!(replay.counts(), ReplayCounts { records: 1, ..Default::default() }, "a group's own record, unread");
    assert_eq!((replay.groups().len(), replay.groups().problems().count()), (1, 1));
    replay.record(Origin::Plain, 0, Some(&[0, 2, 0, 9, b'g']), None).unwrap();
    assert_eq!((replay.groups().unreadable_keys(), replay.counts().records), (1, 2), "not even its key is a reason to stop");
    replay.record(Origin::Plain, 1, Some(&[0, 99]), Some(&[])).unwrap();
    replay.record(TXN, 2, Some(&[0xFF, 0xFF]), None).unwrap();
    let mut newer = value_bytes(6);
    newer[1] = 5;
    newer.splice(14..16, [1]); // an empty compact string for an empty string
    newer.extend_from_slice(b"more");
    replay.record(Origin::Plain, 3, Some(&key_bytes(&KEY)), Some(&newer)).unwrap();
    assert_eq!(replay.counts(), ReplayCounts { records: 5, tombstones: 0, unknown_types: 2, newer_values: 1, old_keys: 0 });
    assert_eq!(replay.cache().get(&KEY).unwrap().offset, 6);
}

#[test]
fn what_no_coordinator_writes_is_an_error_that_changes_nothing() {
    let mut log = Log::default();
    log.commit(Origin::Plain, 5);
    let before = log.replay.counts();
    let (key, value) = (key_bytes(&KEY), value_bytes(6));
    for (key, value, part) in [
        (None, Some(&value[..]), RecordPart::Key),
        (Some(&key[..1]), Some(&value[..]), RecordPart::Key),
        (Some(&key[..key.len() - 1]), None, RecordPart::Key),
        (Some(&key[..]), Some(&value[..value.len() - 1]), RecordPart::Value),
        (Some(&key[..]), Some(&[0xFF, 0xFF][..]), RecordPart::Value),
        (Some(&key[..]), Some(&[][..]), RecordPart::Value),
    ] {
        let error = log.replay.record(Origin::Plain, 9, key, value).unwrap_err();
        assert_eq!((error.offset, error.part), (9, part));
    }
    assert_eq!((log.committed(), log.replay.counts()), (Some(5), before));
}

fn hex(record: &Json, name: &str) -> Option<Vec<u8>> {
    let text = record[name].as_str()?;
    Some((0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect())
}

fn replay_dump(log: &str) -> Replay {
    let mut replay = Replay::new();
    for batch in dump_lines(unpack(Set::Broker).join(format!("{log}.jsonl"))) {
        let producer_id = batch["pid"].as_i64().unwrap();
        let origin = if batch["txn"] == true { Origin::Transaction { producer_id } } else { Origin::Plain };
        for record in batch["records"].as_array().unwrap() {
            let (key, value) = (hex(record, "k"), hex(record, "v"));
            if batch["control"] == true {
                let outcome = if key.unwrap()[3] == 1 { Outcome::Commit } else { Outcome::Abort };
                replay.marker(producer_id, outcome);
            } else {
                replay.record(origin, record["o"].as_u64().unwrap(), key.as_deref(), value.as_deref()).unwrap();
            }
        }
    }
    replay
}

#[test]
fn the_broker_answers_the_same() {
    let mut ours = BTreeSet::new();
    for log in 0..4 {
        let replay = replay_dump(&format!("__consumer_offsets-{log}"));
        assert_eq!((replay.counts().unknown_types, replay.counts().newer_values), (0, 0));
        for group in replay.cache().groups() {
            for GroupOffset { topic, partition, committed } in replay.cache().list_group(group) {
                let epoch = committed.leader_epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
                ours.insert(format!("{group}\t{topic}\t{partition}\t{}\t{epoch}\t{}", committed.offset, committed.metadata));
            }
        }
    }
    let answers = std::fs::read_to_string(unpack(Set::Broker).join("committed-offsets.tsv")).unwrap();
    let answers: BTreeSet<_> = answers.lines().skip(1).map(str::to_owned).collect();
    assert!(answers.len() > 100);
    assert_eq!(ours, answers);
}

/// The plainest possible fold, written from the rules and sharing nothing with the code under test.
#[derive(Default)]
struct Model {
    committed: Offsets,
    pending: BTreeMap<i64, Offsets>,
}

/// By group and partition: the offset, and the offset of its record.
type Offsets = BTreeMap<(u8, u8), (i64, u64)>;

#[derive(Clone, Debug)]
enum Step {
    Record { group: u8, partition: u8, producer: Option<i64>, offset: Option<i64> },
    Marker { producer: i64, commit: bool },
}

impl Model {
    fn step(&mut self, at: u64, step: &Step) {
        match *step {
            Step::Record { group, partition, producer: _, offset: None } => {
                self.committed.remove(&(group, partition));
                for waiting in self.pending.values_mut() {
                    waiting.remove(&(group, partition));
                }
            }
            Step::Record { group, partition, producer: Some(producer), offset: Some(offset) } => {
                self.pending.entry(producer).or_default().insert((group, partition), (offset, at));
            }
            Step::Record { group, partition, producer: None, offset: Some(offset) } => {
                self.committed.insert((group, partition), (offset, at));
            }
            Step::Marker { producer, commit } => {
                for (place, (offset, written)) in self.pending.remove(&producer).unwrap_or_default() {
                    if commit && self.committed.get(&place).is_none_or(|(_, held)| *held < written) {
                        self.committed.insert(place, (offset, written));
                    }
                }
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..3u8, 0..3u8, prop::option::of(0..3i64), prop::option::weighted(0.8, 0..100i64))
        .prop_map(|(group, partition, producer, offset)| Step::Record { group, partition, producer, offset });
    let marker = (0..3i64, any::<bool>()).prop_map(|(producer, commit)| Step::Marker { producer, commit });
    prop_oneof![4 => record, 1 => marker]
}

proptest! {
    #[test]
    fn replay_equals_the_plain_fold(steps in prop::collection::vec(step(), 0..200)) {
        let (mut replay, mut model) = (Replay::new(), Model::default());
        for (at, step) in (0..).zip(&steps) {
            model.step(at, step);
            match *step {
                Step::Record { group, partition, producer, offset } => {
                    let key = key_bytes(&OffsetKey { group: &group.to_string(), topic: "t", partition: partition.into() });
                    let origin = producer.map_or(Origin::Plain, |producer_id| Origin::Transaction { producer_id });
                    replay.record(origin, at, Some(&key), offset.map(value_bytes).as_deref()).unwrap();
                }
                Step::Marker { producer, commit } => {
                    replay.marker(producer, if commit { Outcome::Commit } else { Outcome::Abort });
                }
            }
        }
        prop_assert_eq!(replay.cache().len(), model.committed.len());
        for ((group, partition), (offset, written)) in &model.committed {
            let held = replay.cache().get(&OffsetKey { group: &group.to_string(), topic: "t", partition: (*partition).into() });
            prop_assert_eq!(held.map(|c| (c.offset as i64, c.record_offset)), Some((*offset, *written)));
        }
        let waiting = model.pending.values().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>();
        prop_assert_eq!(replay.pending.len(), waiting.len());
        prop_assert_eq!(replay.open_transactions(), model.pending.len());
    }
}

#[test]
fn any_number_of_open_transactions_on_one_place_takes_a_constant_time_each() {
    const COUNT: i64 = 80_000;
    let mut log = Log::default();
    COMPARED.set(0);
    for producer_id in 0..COUNT {
        log.commit(Origin::Transaction { producer_id }, producer_id);
    }
    for producer_id in 0..COUNT {
        log.marker(producer_id, Outcome::Commit);
    }
    assert_eq!(log.committed(), Some(COUNT as u64 - 1));
    let compared = COMPARED.get();
    assert!(compared < 16 * COUNT as u64, "{compared} comparisons");
}

#[test]
fn what_tombstones_have_removed_is_not_remembered_by_its_transaction() {
    let mut log = Log::default();
    for offset in 0..1000 {
        log.commit(TXN, offset).tombstone(TXN);
    }
    assert!(log.replay.open.values().all(|places| places.capacity() < 10), "{:?}", log.replay.open);
    assert!(log.replay.is_in_transaction(7), "it has not ended");
    assert_eq!(log.commit(TXN, 5).marker(7, Outcome::Commit).committed(), Some(5));
}

#[test]
fn a_negative_offset_ends_what_older_records_wait_for_and_nothing_else() {
    let other = Origin::Transaction { producer_id: 8 };
    let mut log = Log::default();
    log.commit(TXN, 5).commit(Origin::Plain, -1).commit(other, 6);
    let mut waiting: Vec<_> = log.replay.waiting().map(|(_, id, at, committed)| (id, at, committed.map(|c| c.offset))).collect();
    waiting.sort_unstable();
    assert_eq!(waiting, [(7, 0, None), (8, 2, Some(6))], "as a snapshot has them");
    assert_eq!(log.marker(8, Outcome::Commit).committed(), Some(6));
    assert_eq!(log.marker(7, Outcome::Commit).committed(), Some(6), "a later commit has been taken over");
}
