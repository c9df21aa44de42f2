//! A partition of `__consumer_offsets` folded, record by record in the order of the log, into a cache.
//!
//! The rules are those of Kafka's coordinator since 3.7:
//! - a plain commit is taken over, a transactional one waits for its producer's marker;
//! - a commit marker makes waiting commits visible, except where a later record has been taken over meanwhile;
//! - a tombstone, in a transaction or not, removes what is committed and whatever waits for the same place;
//! - a negative offset is what clients take for "nothing committed", and so it is held here; what older records still wait for
//!   comes to nothing, as with any later commit.
//!
//! Records of the groups themselves carry no offsets and go to their [registry](Groups), whatever is in them; types of
//! the future are passed over, and counted.

use std::sync::Arc;

use hashbrown::{Equivalent, HashMap, HashSet};
use keeplog_engine::planted::{Defect, is_planted};
use thiserror::Error;

use crate::cache::{Commit, CommittedOffset, OffsetCache};
use crate::groups::Groups;
use crate::record::{DecodeError, InternalTopic, OFFSET_KEY_V0, OffsetKey, OffsetValue, version_of};

/// The kind of batch that a record is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A batch of its own.
    Plain,
    /// A batch in a transaction of this producer.
    Transaction {
        /// The producer's id.
        producer_id: i64,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What it committed counts.
    Commit,
    /// As if it had never been.
    Abort,
}

/// What a replay has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReplayCounts {
    /// Records of any kind, those of control batches left out.
    pub records: u64,
    /// Tombstones of commits.
    pub tombstones: u64,
    /// Records whose key is of a type not known here.
    pub unknown_types: u64,
    /// Commits whose value has a version above the known ones.
    pub newer_values: u64,
    /// Commits and their tombstones under the key that 0.8.2 wrote.
    pub old_keys: u64,
}

/// A record that no coordinator can have written. Loading must not go on past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the {part} of the record at offset {offset} cannot be read")]
pub struct ReplayError {
    /// The record.
    pub offset: u64,
    /// Which part of it.
    pub part: RecordPart,
    /// What is wrong with it.
    pub source: DecodeError,
}

/// A part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPart {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl std::fmt::Display for RecordPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
        })
    }
}

/// A cache with what it needs to be carried on: commits that wait for the end of their transaction.
#[derive(Debug, Default)]
pub struct Replay {
    cache: OffsetCache,
    groups: Groups,
    /// What waits for each place.
    pending: HashMap<PendingKey, Waiting>,
    /// The places that commits of each producer's open transaction wait for. There may be none: a tombstone has removed
    /// what waited, though the transaction is still open.
    open: HashMap<ProducerId, HashSet<PendingKey>>,
    /// Records of groups are counted and not kept.
    commits_only: bool,
    counts: ReplayCounts,
}

impl Replay {
    /// At the start of a log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At the start of a log, of which no more is asked than what is committed: there are no [`groups`](Self::groups).
    #[must_use]
    pub fn of_commits() -> Self {
        Self { commits_only: true, ..Self::default() }
    }

    /// What is committed so far.
    #[must_use]
    pub fn cache(&self) -> &OffsetCache {
        &self.cache
    }

    /// Gives back the room that many removals have left in the cache, where it is worth it.
    pub(crate) fn compact(&mut self) {
        if self.cache.needs_compaction() {
            self.cache.compact();
        }
    }

    /// The groups so far, by their own records.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// What was met so far.
    #[must_use]
    pub fn counts(&self) -> ReplayCounts {
        self.counts
    }

    /// Transactions with commits that have not ended.
    #[must_use]
    pub fn open_transactions(&self) -> usize {
        self.open.len()
    }

    /// Whether a commit for `key` waits for the end of its transaction.
    #[must_use]
    pub fn is_pending(&self, key: &OffsetKey<'_>) -> bool {
        self.pending.contains_key(key)
    }

    /// Whether the transaction of this producer has committed anything here and has not ended.
    #[must_use]
    pub fn is_in_transaction(&self, producer_id: i64) -> bool {
        self.open.contains_key(&ProducerId(producer_id))
    }

    /// All places that commits wait for.
    pub fn pending_places(&self) -> impl Iterator<Item = OffsetKey<'_>> {
        self.pending.keys().map(PendingKey::as_key)
    }

    /// The places of `group` that commits wait for.
    pub fn pending_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = OffsetKey<'a>> {
        self.pending_places().filter(move |key| key.group == group)
    }

    /// What waits for the end of transactions: its place, producer and record, and what it is; `None` for a negative offset.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (OffsetKey<'_>, i64, u64, Option<&CommittedOffset>)> {
        let all = self.pending.iter().flat_map(|(place, waiting)| waiting.all().map(move |(id, pending)| (place, waiting, id, pending)));
        all.map(|(place, waiting, id, pending)| {
            let committed = pending.committed.as_ref().filter(|_| !waiting.is_cleared(pending));
            (place.as_key(), id, pending.record_offset, committed)
        })
    }

    /// Producers whose transactions have commits here and have not ended.
    pub(crate) fn open_producers(&self) -> impl Iterator<Item = i64> {
        self.open.keys().map(|producer| producer.0)
    }

    /// The groups, to take in what is known of them.
    pub(crate) fn groups_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// Has what a load found committed in the whole log, and what it met there.
    pub(crate) fn resume(&mut self, cache: OffsetCache, counts: ReplayCounts) {
        (self.cache, self.counts) = (cache, counts);
    }

    /// Has a commit, `None` for a negative offset, that waits for the end of the producer's transaction.
    pub(crate) fn resume_pending(&mut self, producer_id: i64, key: &OffsetKey<'_>, record_offset: u64, committed: Option<CommittedOffset>) {
        self.put_pending(key, producer_id, Pending { record_offset, committed });
    }

    /// Has an open transaction, whether anything of it still waits or not.
    pub(crate) fn resume_open(&mut self, producer_id: i64) {
        self.open.entry(ProducerId(producer_id)).or_default();
    }

    /// Takes in the record at `offset`, which must be above all earlier ones. After an error nothing has changed.
    pub fn record(&mut self, origin: Origin, offset: u64, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<(), ReplayError> {
        let in_key = |source| ReplayError { offset, part: RecordPart::Key, source };
        let in_value = |source| ReplayError { offset, part: RecordPart::Value, source };
        let key = key.ok_or(in_key(DecodeError::Null { at: 0 }))?;
        let Some(place) = OffsetKey::decode(key).map_err(in_key)? else {
            let known = InternalTopic::ConsumerOffsets.knows(version_of(key).map_err(in_key)?);
            self.counts.records += 1;
            self.counts.unknown_types += u64::from(!known);
            // A group that cannot be read is no reason not to serve the others: the registry counts it.
            if !self.commits_only {
                let _ = self.groups.record(offset, key, value);
            }
            return Ok(());
        };
        self.counts.old_keys += u64::from(version_of(key) == Ok(OFFSET_KEY_V0));
        match value {
            None => {
                self.counts.tombstones += 1;
                self.remove(&place);
            }
            Some(value) => {
                let decoded = OffsetValue::decode(value).map_err(in_value)?;
                self.counts.newer_values += u64::from(version_of(value).map_err(in_value)? > OffsetValue::LATEST_VERSION);
                self.commit(origin, offset, &place, &decoded);
            }
        }
        self.counts.records += 1;
        Ok(())
    }

    /// Takes in the marker that ends the open transaction of a producer.
    pub fn marker(&mut self, producer_id: i64, outcome: Outcome) {
        for place in self.open.remove(&ProducerId(producer_id)).unwrap_or_default() {
            let key = place.as_key();
            let Some(pending) = self.take_pending(&key, producer_id) else { continue };
            match (outcome, pending.committed) {
                (Outcome::Abort, _) => {}
                (Outcome::Commit, Some(committed)) => {
                    if is_planted(Defect::MarkerBeatsLater) {
                        self.cache.remove(&key);
                    }
                    self.cache.apply_commit(&key, &committed.as_commit());
                }
                (Outcome::Commit, None) => self.clear(&key, pending.record_offset),
            }
        }
    }

    fn commit(&mut self, origin: Origin, record_offset: u64, key: &OffsetKey<'_>, value: &OffsetValue<'_>) {
        let commit = u64::try_from(value.offset).ok().map(|offset| Commit {
            offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata,
            commit_timestamp_ms: value.commit_timestamp_ms,
            expire_timestamp_ms: value.expire_timestamp_ms,
            topic_id: value.topic_id,
            record_offset,
        });
        match (origin, commit) {
            (Origin::Plain, Some(commit)) => {
                self.cache.apply_commit(key, &commit);
            }
            (Origin::Plain, None) => self.clear(key, record_offset),
            (Origin::Transaction { producer_id }, commit) => {
                self.put_pending(key, producer_id, Pending { record_offset, committed: commit.map(Commit::to_owned) });
            }
        }
    }

    /// Takes in that nothing is committed, as of the record at `record_offset`.
    fn clear(&mut self, key: &OffsetKey<'_>, record_offset: u64) {
        if self.cache.get(key).is_some_and(|held| held.record_offset < record_offset) {
            self.cache.remove(key);
        }
        // Nothing is held that an older commit, once its transaction ends, could be compared with.
        if let Some(waiting) = self.pending.get_mut(key) {
            waiting.cleared_below = waiting.cleared_below.max(record_offset);
        }
    }

    fn remove(&mut self, key: &OffsetKey<'_>) {
        self.cache.remove(key);
        let Some((place, waiting)) = self.pending.remove_entry(key) else { return };
        for producer in waiting.by_producer.into_keys() {
            self.open.entry(producer).and_modify(|places| _ = places.remove(&place));
        }
    }

    fn put_pending(&mut self, key: &OffsetKey<'_>, producer_id: i64, pending: Pending) {
        // All who wait for a place share its names.
        let place = self.pending.get_key_value(key).map_or_else(|| PendingKey::from(key), |(held, _)| held.clone());
        let (waiting, producer) = (self.pending.entry(place.clone()).or_default(), ProducerId(producer_id));
        if waiting.by_producer.insert(producer, pending).is_none() {
            self.open.entry(producer).or_default().insert(place);
        }
    }

    fn take_pending(&mut self, key: &OffsetKey<'_>, producer_id: i64) -> Option<Pending> {
        let waiting = self.pending.get_mut(key)?;
        let mut taken = waiting.by_producer.remove(&ProducerId(producer_id))?;
        if waiting.is_cleared(&taken) {
            taken.committed = None;
        }
        if waiting.by_producer.is_empty() {
            self.pending.remove(key);
        }
        Some(taken)
    }
}

/// What waits for one place.
#[derive(Debug, Default)]
struct Waiting {
    /// By producer: a log may hold any number of transactions that are open at the same time.
    by_producer: HashMap<ProducerId, Pending>,
    /// What was written below this offset comes to nothing.
    cleared_below: u64,
}

impl Waiting {
    fn is_cleared(&self, pending: &Pending) -> bool {
        pending.record_offset < self.cleared_below
    }

    fn all(&self) -> impl Iterator<Item = (i64, &Pending)> {
        self.by_producer.iter().map(|(producer, pending)| (producer.0, pending))
    }
}

/// A commit that waits.
#[derive(Debug)]
struct Pending {
    record_offset: u64,
    /// `None` for a negative offset.
    committed: Option<CommittedOffset>,
}

/// The id of a producer. Tests count how often two are compared.
#[derive(Clone, Copy, Debug, Eq)]
struct ProducerId(i64);

impl PartialEq for ProducerId {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl std::hash::Hash for ProducerId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingKey {
    group: Arc<str>,
    topic: Arc<str>,
    partition: i32,
}

impl PendingKey {
    fn as_key(&self) -> OffsetKey<'_> {
        OffsetKey { group: &self.group, topic: &self.topic, partition: self.partition }
    }
}

impl From<&OffsetKey<'_>> for PendingKey {
    fn from(key: &OffsetKey<'_>) -> Self {
        Self { group: key.group.into(), topic: key.topic.into(), partition: key.partition }
    }
}

// Owned and borrowed keys must hash alike, so that one finds the other.
impl std::hash::Hash for PendingKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_key().hash(state);
    }
}

impl Equivalent<PendingKey> for OffsetKey<'_> {
    fn equivalent(&self, owned: &PendingKey) -> bool {
        *self == owned.as_key()
    }
}

#[cfg(test)]
mod tests;
