//! What the demo commits: the same in the process that writes and in the one that compares.

use std::collections::BTreeMap;

use crate::door::{CommitOptions, Log, LogOptions, OffsetAndMetadata, OffsetStore, RequiredAcks, Store, StoreOptions};
use crate::failure::Failure;

/// The topic of the store, and its partitions.
pub(crate) const TOPIC: &str = "__consumer_offsets";
pub(crate) const PARTITIONS: u32 = 4;
const SEGMENT_BYTES: u32 = 10 << 20;

/// Keys: so many groups, with so many partitions each.
const GROUPS: u64 = 1000;
const PARTITIONS_PER_GROUP: u64 = 100;
const READ_TOPIC: &str = "orders";

/// The larger, the more commits come from few groups, as in life: some consumers are busy and most are not.
const SKEW: i32 = 2;

/// A sequence of commits. Every group commits once at first; then the busy ones more often than the others. Each commit
/// covers all partitions of its group, but the last one may cover fewer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    records: u64,
}

/// One commit.
pub(crate) struct Step {
    pub(crate) group: u64,
    pub(crate) offsets: Vec<(&'static str, i32, OffsetAndMetadata)>,
}

impl Workload {
    pub(crate) fn new(records: u64) -> Self {
        Self { records }
    }

    /// Offsets to commit.
    pub(crate) fn records(self) -> u64 {
        self.records
    }

    /// Keys that they are for.
    pub(crate) fn keys(self) -> u64 {
        self.records.min(GROUPS * PARTITIONS_PER_GROUP)
    }

    /// Commits that they come in.
    pub(crate) fn commits(self) -> u64 {
        self.records.div_ceil(PARTITIONS_PER_GROUP)
    }

    /// The commits of the groups that worker `worker` of `workers` owns, in order. A group has one owner, so what it
    /// commits last is known.
    pub(crate) fn steps(self, worker: u64, workers: u64) -> impl Iterator<Item = Step> {
        (0..self.commits()).filter(move |number| group_of(*number) % workers == worker).map(move |number| self.step(number))
    }

    fn step(self, number: u64) -> Step {
        let count = PARTITIONS_PER_GROUP.min(self.records - number * PARTITIONS_PER_GROUP);
        let committed = |partition: u64| (READ_TOPIC, partition as i32, OffsetAndMetadata::new(number * 1000 + partition));
        Step { group: group_of(number), offsets: (0..count).map(committed).collect() }
    }

    /// Compares every answer of `offsets` with the last commit of its key.
    pub(crate) fn wrong_answers(self, offsets: &OffsetStore) -> Result<u64, Failure> {
        let mut expected: BTreeMap<(u64, i32), OffsetAndMetadata> = BTreeMap::new();
        for step in self.last_steps().into_iter().map(|number| self.step(number)) {
            expected.extend(step.offsets.into_iter().map(|(_, partition, committed)| ((step.group, partition), committed)));
        }
        let mut wrong = 0;
        for group in 0..GROUPS {
            let of_group: Vec<_> = expected.range((group, 0)..(group + 1, 0)).collect();
            let places: Vec<(&str, i32)> = of_group.iter().map(|((_, partition), _)| (READ_TOPIC, *partition)).collect();
            let answers = offsets.fetch(&group_name(group), &places)?;
            wrong += answers.iter().zip(of_group).filter(|(answer, (_, committed))| answer.as_ref() != Some(*committed)).count() as u64;
        }
        Ok(wrong)
    }

    /// The steps that count in the end: the last of each group, and before it the one that a shorter last step leaves
    /// standing in part. In the order in which they were taken.
    fn last_steps(self) -> Vec<u64> {
        let mut last = BTreeMap::new();
        let shorter = self.commits() - 1;
        for number in 0..shorter {
            last.insert(group_of(number), number);
        }
        let mut steps: Vec<u64> = last.into_values().collect();
        steps.sort_unstable();
        steps.push(shorter);
        steps
    }
}

/// The group of step `number`.
fn group_of(number: u64) -> u64 {
    if number < GROUPS {
        return number;
    }
    // A mixed number (SplitMix64) as a fraction of 1.
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let fraction = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    ((GROUPS as f64 * fraction.powi(SKEW)) as u64).min(GROUPS - 1)
}

pub(crate) fn group_name(group: u64) -> String {
    format!("group-{group}")
}

/// A store with segments of 10 MiB; with or without its cleaner.
pub(crate) fn store_options(cleaner: bool) -> StoreOptions {
    let log = LogOptions::new().segment_bytes(SEGMENT_BYTES);
    StoreOptions::new().log(log).log_cleaner_enable(cleaner).log_cleaner_backoff_ms(200)
}

pub(crate) fn commit_options() -> CommitOptions {
    CommitOptions::new().offsets_commit_required_acks(RequiredAcks::Synced)
}

/// The partitions of the topic, opened or made.
pub(crate) fn logs(store: &Store) -> Result<Vec<Log>, Failure> {
    (0..PARTITIONS).map(|partition| store.log(TOPIC, partition).map_err(Failure::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_steps_and_no_group() {
        let workload = Workload::new(300_007);
        let mut offsets = 0;
        let mut owners = BTreeMap::new();
        for worker in 0..16 {
            for step in workload.steps(worker, 16) {
                offsets += step.offsets.len();
                assert_eq!(*owners.entry(step.group).or_insert(worker), worker);
            }
        }
        assert_eq!((offsets as u64, owners.len() as u64), (workload.records(), GROUPS));
    }

    #[test]
    fn the_steps_that_count_cover_every_key() {
        for records in [1, 99, 100, 101, 99_999, 100_000, 100_001, 200_000] {
            let workload = Workload::new(records);
            let mut keys = std::collections::BTreeSet::new();
            for number in workload.last_steps() {
                let step = workload.step(number);
                keys.extend(step.offsets.iter().map(|(_, partition, _)| (step.group, *partition)));
            }
            assert_eq!(keys.len() as u64, workload.keys(), "{records}");
        }
    }
}
