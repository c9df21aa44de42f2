//! What is chosen and looked at, beside the plain rule over all logs of a store.

use std::path::Path;
use std::sync::Arc;

use keeplog_cleaner::schedule::{Candidate, choose};
use keeplog_engine::record::{BatchSpec, BatchWriter, Record, TxnResult};
use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::{CleanupPolicy, Durability, LogOptions, TransactionEnd};
use keeplog_fixtures::Dice;

use super::super::cleaning::For;
use super::super::{Store, StoreOptions};
use super::*;

const T0: i64 = 1_760_000_000_000;

struct World {
    disk: Arc<MemoryStorage>,
    store: Store,
    due: Due,
    /// Counted along, for the plain rule.
    waited: BTreeMap<TopicPartition, u32>,
    sequences: BTreeMap<(TopicPartition, u64), i32>,
}

impl World {
    fn new() -> Self {
        let disk = Arc::new(MemoryStorage::new());
        disk.set_now_ms(T0);
        let options = StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false);
        let store = Store::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap();
        Self { disk, store, due: Due::default(), waited: BTreeMap::new(), sequences: BTreeMap::new() }
    }

    fn may_be_cleaned(&self, log: &Log) -> bool {
        !log.needs_reopen() && !self.store.inner.passes.is_paused(log.topic_partition())
    }

    /// The rule: all logs are looked at.
    fn choose(&mut self) -> Option<TopicPartition> {
        let inner = &self.store.inner;
        let logs: Vec<Log> =
            self.store.logs().into_iter().filter(|log| self.may_be_cleaned(log) && inner.is_to_be_compacted(log)).collect();
        let candidate = |log: &Log| {
            let look = inner.look(log).unwrap();
            let passes_waited = self.waited.get(log.topic_partition()).copied().unwrap_or(0);
            Candidate { dirtiness: look.dirtiness, rules: look.rules, passes_waited }
        };
        let all: Vec<_> = logs.iter().map(candidate).collect();
        let chosen = choose(&all);
        let others = logs.iter().zip(&all).enumerate().filter(|(at, (_, candidate))| Some(*at) != chosen && candidate.is_eligible());
        self.waited = others.map(|(_, (log, candidate))| (log.topic_partition().clone(), candidate.passes_waited + 1)).collect();
        chosen.map(|at| logs[at].topic_partition().clone())
    }

    fn queue_chooses(&self) -> Option<Log> {
        self.due.next_to_clean(&self.store.inner, |log| self.may_be_cleaned(log))
    }

    fn append(&self, log: &Log, dice: &mut Dice) {
        let now_ms = self.disk.now_ms();
        for _ in 0..1 + dice.roll(30) {
            let late = if dice.roll(20) == 0 { 2000 } else { 0 };
            let record = Record::new(format!("key {}", dice.roll(20)), "v".repeat(200)).timestamp_ms(now_ms - dice.roll(300) as i64 + late);
            log.append(&[record], Durability::Buffered).unwrap();
        }
    }

    /// A record of a transaction that stays open, or the end of one.
    fn transact(&mut self, log: &Log, dice: &mut Dice) {
        let producer = dice.roll(2);
        let (producer_id, producer_epoch) = (producer as i64, 0);
        if dice.roll(2) == 0 {
            let end = TransactionEnd { producer_id, producer_epoch, result: TxnResult::Committed, coordinator_epoch: 0 };
            log.end_transaction(&end, Durability::Buffered).unwrap();
            return;
        }
        let sequence = self.sequences.entry((log.topic_partition().clone(), producer)).or_default();
        let mut writer = BatchWriter::new();
        writer.begin(BatchSpec { producer_id, producer_epoch, base_sequence: *sequence, transactional: true, ..BatchSpec::default() });
        writer.push(0, self.disk.now_ms(), Some(b"key 1"), Some(b"v"), &[]).unwrap();
        let mut batch = Vec::new();
        writer.finish(&mut batch).unwrap();
        // After a truncation the log knows of fewer.
        if log.append_batch(batch, Durability::Buffered).is_ok() {
            *sequence += 1;
        }
    }

    /// One of the things that may happen to a log.
    fn step(&mut self, dice: &mut Dice) {
        let partition = dice.roll(5) as u32;
        let topic = ["a", "b"][dice.roll(2) as usize];
        let log = self.store.log(topic, partition).unwrap();
        let store = &self.store;
        match dice.roll(24) {
            0..9 => self.append(&log, dice),
            9..12 => log.roll().unwrap(),
            12..15 => self.transact(&log, dice),
            15 => log.truncate_to(dice.roll(log.end_offset() + 1)).unwrap(),
            16 => log.advance_start(dice.roll(log.end_offset() + 1)).unwrap(),
            17 => _ = log.apply_retention().unwrap(),
            18 => store.inner.data_dir.set_cleaner_offset(log.topic_partition(), Some(dice.roll(log.end_offset() + 50))),
            19 => _ = store.inner.clean(&log, For::Caller),
            20 => store.pause_cleaning(topic, partition).unwrap(),
            21 => _ = store.resume_cleaning(topic, partition),
            22 => {
                self.sequences.retain(|(name, _), _| name != log.topic_partition());
                if dice.roll(2) == 0 { log.close().unwrap() } else { store.delete_log(topic, partition).unwrap() }
            }
            _ => {
                let options = LogOptions::new()
                    .segment_bytes(4096)
                    .cleanup_policy([CleanupPolicy::Compact, CleanupPolicy::CompactDelete, CleanupPolicy::Compact][dice.roll(3) as usize])
                    .min_cleanable_dirty_ratio([0.0, 0.2, 0.5][dice.roll(3) as usize])
                    .min_compaction_lag_ms([0, 100, 400][dice.roll(3) as usize])
                    .max_compaction_lag_ms([500, 1500, i64::MAX][dice.roll(3) as usize]);
                store.set_log_options(topic, &options).unwrap();
            }
        }
    }
}

#[test]
fn what_is_chosen_is_what_a_look_at_all_logs_would_choose() {
    let (mut chosen, mut rounds, mut logs) = (0, 0, 0);
    for seed in 0..60 {
        let (mut dice, mut world) = (Dice::new(seed), World::new());
        for round in 0..120 {
            for _ in 0..dice.roll(5) {
                world.step(&mut dice);
            }
            match dice.roll(12) {
                0 => world.disk.set_now_ms(world.disk.now_ms() - 700),
                1..6 => world.disk.advance_ms(dice.roll(300)),
                _ => {}
            }
            let log = world.queue_chooses();
            let expected = world.choose();
            assert_eq!(log.as_ref().map(|log| log.topic_partition().clone()), expected, "seed {seed}, round {round}");
            rounds += 1;
            logs += world.store.logs().len() as u64;
            if let Some(log) = log.filter(|_| dice.roll(3) > 0) {
                chosen += 1;
                world.store.inner.clean(&log, For::Background).unwrap();
            }
        }
    }
    assert!(chosen > 1000, "{chosen} passes in {rounds} rounds over {logs} logs");
}

#[test]
fn g12_an_idle_store_looks_at_no_log_and_a_busy_log_costs_no_other_a_look() {
    const LOGS: u32 = 10_000;
    let world = World::new();
    let logs: Vec<Log> = (0..LOGS).map(|partition| world.store.log("a", partition).unwrap()).collect();
    for log in &logs {
        log.append(&[Record::new("k", "v").timestamp_ms(T0)], Durability::Buffered).unwrap();
    }
    let status = || {
        let status = world.store.cleaner();
        (status.dirtiness_looks, status.upkeep_looks)
    };
    let round = |expected: (u64, u64)| {
        let before = status();
        world.store.housekeep();
        let after = status();
        assert_eq!((after.0 - before.0, after.1 - before.1), expected);
    };
    let all = u64::from(LOGS);
    round((all, all));
    (0..3).for_each(|_| round((0, 0)));
    // Appends that close no segment change nothing.
    (0..10).for_each(|_| _ = logs[7].append(&[Record::new("k", "v".repeat(100)).timestamp_ms(T0)], Durability::Buffered).unwrap());
    round((0, 0));
    logs[7].roll().unwrap();
    round((1, 1));
    assert_eq!(world.store.cleaner().passes, 1);
    // What the pass has changed.
    round((1, 0));
    (0..3).for_each(|_| round((0, 0)));
    // After a week the active segments are closed, and may be cleaned.
    world.disk.advance_ms(7 * 86_400_000);
    round((0, 0));
    world.disk.advance_ms(1);
    round((0, all - 1));
    assert!(logs.iter().all(|log| log.segments().sealed().len() == 1));
}
