//! What must be true of the committed offsets.
//!
//! The oracle knows every batch that was asked for, in the order of the log. After a crash the log says how many of them are
//! left: no fewer than were acknowledged, none of them in part. What is shown is what these come to, in this order.

mod fold;
mod partition;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use keeplog::inspect::offsets::partition_for;
use keeplog::{CONSUMER_OFFSETS, Log, OffsetStore};

use super::read_around;
pub use fold::check_fold;
pub use partition::{Partition, Served, Until};
pub use state::What;
use state::{Held, State};

/// Group, topic, partition.
pub type Place = (String, String, i32);

/// The groups that commit.
pub const GROUPS: [&str; 4] = ["g0", "g1", "g2", "g3"];
/// What they commit for, each with partitions from 0 to 3.
pub const TOPICS: [&str; 2] = ["orders", "bills"];

/// What is known of all partitions of the offset store.
#[derive(Clone, Debug, Default)]
pub struct OffsetsModel {
    /// By number.
    pub partitions: Vec<Partition>,
}

/// What a store answers, or should.
#[derive(Debug, Default, PartialEq, Eq)]
struct Visible {
    committed: BTreeMap<Place, Held>,
    unstable: BTreeSet<Place>,
}

/// The log of a partition of the offset store.
#[must_use]
pub fn log_of(store: &OffsetStore, partition: usize) -> Option<Log> {
    let is_it = |log: &Log| {
        let name = log.topic_partition();
        name.topic() == CONSUMER_OFFSETS && name.partition() as usize == partition
    };
    store.store().logs().into_iter().find(is_it)
}

impl OffsetsModel {
    /// The partition that a group lies in.
    #[must_use]
    pub fn partition_of(&self, store: &OffsetStore, group: &str) -> usize {
        partition_for(group, store.partitions()) as usize
    }

    /// The store was opened anew: what is left is durable, shown, and the truth from here on.
    ///
    /// `epoch` is that of its leader, if it was told.
    pub fn opened(&mut self, store: &OffsetStore, epoch: Option<i32>) -> Result<(), String> {
        self.partitions.resize_with(store.partitions().get() as usize, Partition::default);
        for (number, partition) in self.partitions.iter_mut().enumerate() {
            let log = log_of(store, number).ok_or("a partition is missing")?;
            let seen = visible(store, number)?;
            let is_seen = |state: &State| Visible::from(state) == seen;
            let held = read_around(&log, Log::batches_from)?;
            let held = held.iter().map(|batch| (batch.header.base_offset, batch.header.next_offset())).collect();
            partition.opened(&held, log.end_offset(), is_seen).map_err(|why| format!("offsets {number}: {why}"))?;
            partition.epoch = epoch;
        }
        Ok(())
    }

    /// The store was closed in order.
    pub fn closed(&mut self) {
        self.partitions.iter_mut().for_each(Partition::settle_unshown);
    }

    /// After a power failure, what was only written may be missing.
    pub fn lose_unsynced(&mut self) {
        self.partitions.iter_mut().for_each(Partition::lose_unsynced);
    }

    /// Something failed, and somebody looks: what is answered was shown, and stays.
    pub fn look(&mut self, store: &OffsetStore) -> Result<(), String> {
        for number in 0..self.partitions.len() {
            if self.partitions[number].served == Served::Yes
                && let Ok(seen) = visible(store, number)
            {
                self.partitions[number]
                    .look(|state| Visible::from(state) == seen)
                    .map_err(|why| format!("offsets {number}: {why} {seen:?}"))?;
            }
        }
        Ok(())
    }

    /// Every answer is right.
    pub fn check(&self, store: &OffsetStore) -> Result<(), String> {
        let mut all = BTreeMap::new();
        for (number, partition) in self.partitions.iter().enumerate() {
            groups_of(store, number).try_for_each(|group| partition.check_refusal(store, group))?;
            if partition.served != Served::Yes {
                continue;
            }
            let (seen, right) = (visible(store, number)?, Visible::from(partition.state()));
            if seen != right {
                return Err(format!("offsets {number}: {seen:?} is answered, {right:?} would be right"));
            }
            all.extend(right.committed);
        }
        if self.partitions.iter().any(|partition| partition.served == Served::Waiting) {
            return if store.list().is_err() { Ok(()) } else { Err("a list leaves out what waits for its load".into()) };
        }
        let listed = store.list().map_err(|e| format!("{e:?}"))?.into_iter();
        let listed: BTreeMap<_, _> = listed
            .map(|listed| ((listed.group.to_string(), listed.topic.to_string(), listed.partition), held(&listed.committed)))
            .collect();
        if listed == all { Ok(()) } else { Err(format!("{listed:?} are listed, {all:?} would be right")) }
    }
}

impl From<&State> for Visible {
    fn from(state: &State) -> Self {
        Self { committed: state.committed.clone(), unstable: state.pending.keys().map(|(place, _)| place.clone()).collect() }
    }
}

fn groups_of(store: &OffsetStore, partition: usize) -> impl Iterator<Item = &'static str> {
    let count = store.partitions();
    GROUPS.into_iter().filter(move |group| partition_for(group, count) as usize == partition)
}

fn held(committed: &keeplog::CommittedOffset) -> Held {
    Held { offset: committed.offset, timestamp_ms: committed.commit_timestamp_ms, record_offset: committed.record_offset }
}

/// What a store answers of a partition that it serves: the same whichever way it is asked.
fn visible(store: &OffsetStore, partition: usize) -> Result<Visible, String> {
    let told = |e: keeplog::Error| format!("{e:?}");
    let mut visible = Visible::default();
    for group in groups_of(store, partition) {
        for of_group in store.fetch_all(group).map_err(told)? {
            let place = (group.to_owned(), of_group.topic.to_string(), of_group.partition);
            visible.committed.insert(place, held(&of_group.committed));
        }
        let places: Vec<_> = TOPICS.into_iter().flat_map(|topic| (0..4).map(move |partition| (topic, partition))).collect();
        let fetched = store.fetch(group, &places).map_err(told)?;
        let stable = store.fetch_stable(group, &places).map_err(told)?;
        for (((topic, partition), fetched), stable) in places.into_iter().zip(fetched).zip(stable) {
            let place = (group.to_owned(), topic.to_owned(), partition);
            let answer = fetched.as_ref().map(|found| found.offset);
            if answer != visible.committed.get(&place).map(|held| held.offset) {
                return Err(format!("{place:?}: a fetch answers {answer:?}, one of all {:?}", visible.committed.get(&place)));
            }
            match stable {
                Err(_) => _ = visible.unstable.insert(place),
                Ok(stable) if stable != fetched => return Err(format!("{place:?}: {stable:?} is stable, {fetched:?} is fetched")),
                Ok(_) => {}
            }
        }
    }
    Ok(visible)
}
