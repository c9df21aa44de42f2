//! The committed offsets of one partition of `__consumer_offsets`, in memory.
//!
//! The commits of a group for up to 64 neighbouring partitions of a topic are a block: a header with a bit for each
//! partition, and an array of entries of 24 bytes that hold no key. Names are numbers, and compared as texts whenever one
//! is looked for. So a commit takes about 30 bytes where groups commit for 20 partitions of a topic or more, and less
//! than 80 where each block holds but one.
//!
//! The rule for what stays is that of the log: of two commits for the same place, the one whose record has the larger
//! offset.

mod block;
mod blocks;
mod compact;
mod entry;
mod lookups;
mod names;
mod piece;
mod raw;
mod runs;

use std::sync::Arc;

pub(crate) use block::{NONE, Place};
pub(crate) use blocks::Blocks;
use blocks::Unnamed;
pub(crate) use entry::TopicId;
use entry::Values;
pub(crate) use lookups::Lookups;
pub(crate) use names::{NameId, Names, Recent};
pub(crate) use raw::{Incoming, METADATA_MAX, RawBlock, RawEntry, Rebuild, SPANS, Texts, odd_words};

use crate::record::OffsetKey;

/// A commit, as the cache is given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit<'a> {
    /// The offset to read next.
    pub offset: u64,
    /// Epoch of the leader that the last record came from; -1 is none.
    pub leader_epoch: Option<i32>,
    /// Whatever the group wants to remember.
    pub metadata: &'a str,
    /// When it was committed, ms.
    pub commit_timestamp_ms: i64,
    /// When it goes, ms; `None`, or -1: by the store's retention.
    pub expire_timestamp_ms: Option<i64>,
    /// Id of the topic, where the writer knew it.
    pub topic_id: Option<[u8; 16]>,
    /// Offset of the record that says so.
    pub record_offset: u64,
}

/// A commit, as the cache gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The offset to read next.
    pub offset: u64,
    /// Epoch of the leader that the last record came from; -1 is none.
    pub leader_epoch: Option<i32>,
    /// Whatever the group wants to remember; never longer than what fits a record.
    pub metadata: Arc<str>,
    /// When it was committed, ms.
    pub commit_timestamp_ms: i64,
    /// When it goes, ms; `None`, or -1: by the store's retention.
    pub expire_timestamp_ms: Option<i64>,
    /// Id of the topic, where the writer knew it.
    pub topic_id: Option<[u8; 16]>,
    /// Offset of the record that says so.
    pub record_offset: u64,
}

/// One committed offset of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition of it.
    pub partition: i32,
    /// What is committed there.
    pub committed: CommittedOffset,
}

/// Committed offsets by group, topic and partition. Names are compared exactly.
#[derive(Default)]
pub struct OffsetCache {
    names: KeyNames,
    blocks: Blocks,
}

/// The names that keys are made of.
#[derive(Default)]
pub(crate) struct KeyNames {
    pub(crate) groups: Names,
    pub(crate) topics: Names,
}

impl KeyNames {
    /// The name of a place's group.
    pub(crate) fn group(&self, place: Place) -> &str {
        self.groups.name(place.group)
    }

    /// The name of a place's topic.
    pub(crate) fn topic(&self, place: Place) -> &str {
        self.topics.name(place.topic)
    }
}

impl OffsetCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A cache of `blocks` whose numbers stand for `names`. Blocks without entries, and names without blocks, are dropped;
    /// what room is left over is given back where it is worth it.
    pub(crate) fn from_parts(names: KeyNames, blocks: Blocks) -> Self {
        let mut cache = Self { names, blocks };
        let empty: Vec<u32> = (0_u32..).zip(cache.blocks.headers.iter()).filter(|(_, b)| b.present == 0).map(|(id, _)| id).collect();
        for id in empty {
            cache.blocks.drop_block(id);
        }
        let KeyNames { groups, topics } = &mut cache.names;
        drop_unused(groups, |id| cache.blocks.of_group(id).next().is_some());
        drop_unused(topics, |id| cache.blocks.topics.get(id as usize).is_some_and(|topic| topic.blocks > 0));
        if cache.needs_compaction() {
            cache.compact();
        }
        cache
    }

    /// Committed offsets held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Groups with a committed offset.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.names.groups.len()
    }

    /// The groups with a committed offset, in no order.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.groups.iter().map(|(_, name)| name)
    }

    /// Whether `group` has a committed offset.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.names.groups.find(group.as_bytes()).is_some()
    }

    /// Takes a commit over, unless what is held for `key` comes from a later record. Returns whether it was taken.
    pub fn apply_commit(&mut self, key: &OffsetKey<'_>, commit: &Commit<'_>) -> bool {
        let KeyNames { groups, topics } = &mut self.names;
        let place = Place::of(groups.intern(key.group), topics.intern(key.topic), key.partition);
        let (id, bit) = (self.blocks.find_or_make(place), Place::bit(key.partition));
        if !self.blocks.has(id, bit) {
            self.blocks.insert(id, bit, commit);
            return true;
        }
        let newer = commit.record_offset >= self.blocks.values_at(id, bit).record_offset;
        if newer {
            self.blocks.replace(id, bit, commit);
        }
        newer
    }

    /// Forgets what is held for `key`. Returns whether there was anything.
    pub fn remove(&mut self, key: &OffsetKey<'_>) -> bool {
        let Some((id, bit)) = self.locate(key) else { return false };
        let Unnamed { group, topic } = self.blocks.remove(id, bit);
        group.into_iter().for_each(|group| self.names.groups.release(group));
        topic.into_iter().for_each(|topic| self.names.topics.release(topic));
        true
    }

    /// What is committed for `key`.
    #[must_use]
    pub fn get(&self, key: &OffsetKey<'_>) -> Option<CommittedOffset> {
        let (id, bit) = self.locate(key)?;
        Some(self.committed(&self.blocks.values_at(id, bit)))
    }

    /// What is committed for each of `keys`, in their order: in less time than as many [`OffsetCache::get`].
    #[must_use]
    pub fn get_many(&self, keys: &[OffsetKey<'_>]) -> Vec<Option<CommittedOffset>> {
        let mut found = Vec::with_capacity(keys.len());
        let mut lookups = Lookups::default();
        let mut values = [None; Lookups::MAX];
        let (mut groups, mut topics) = (Recent::<1>::new(&self.names.groups), Recent::<1>::new(&self.names.topics));
        for keys in keys.chunks(Lookups::MAX) {
            lookups.clear();
            for key in keys {
                lookups.push(groups.find(key.group.as_bytes()), topics.find(key.topic.as_bytes()), key.partition);
            }
            self.blocks.find_all(&mut lookups);
            for (values, (block, bit)) in values.iter_mut().zip(lookups.found()) {
                *values = (block != NONE && self.blocks.has(block, bit)).then(|| self.blocks.values_at(block, bit));
            }
            found.extend(values[..keys.len()].iter().map(|values| values.as_ref().map(|values| self.committed(values))));
        }
        found
    }

    /// All that `group` has committed, by topic and partition.
    #[must_use]
    pub fn list_group(&self, group: &str) -> Vec<GroupOffset> {
        let Some(group) = self.names.groups.find(group.as_bytes()) else { return Vec::new() };
        let mut listed = Vec::new();
        for block in self.blocks.of_group(group) {
            let topic = self.names.topics.name(block.topic);
            listed.extend(self.blocks.values_of(block).map(|(partition, values)| GroupOffset {
                topic: Arc::clone(topic),
                partition,
                committed: self.committed(&values),
            }));
        }
        listed.sort_unstable_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        listed
    }

    /// Everything that is committed, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (OffsetKey<'_>, Commit<'_>)> {
        self.blocks.headers.iter().filter(|block| block.present != 0).flat_map(move |block| {
            let (group, topic) = (self.names.groups.name(block.group), self.names.topics.name(block.topic));
            let values = self.blocks.values_of(block);
            values.map(move |(partition, values)| (OffsetKey { group, topic, partition }, self.blocks.entries.commit(&values)))
        })
    }

    /// Heap memory taken, bytes, room for more included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.names.groups.memory_bytes() + self.names.topics.memory_bytes() + self.blocks.memory_bytes()
    }

    /// Whether [`OffsetCache::compact`] would give back much: more than 15 % of the room for entries holds none, and
    /// noticeably more than the last compaction had to leave.
    #[must_use]
    pub fn needs_compaction(&self) -> bool {
        self.blocks.is_loose()
    }

    /// Gives back the room that removed commits, and blocks that grew, have left. No commit does this on its own, since it
    /// goes over everything (6 ms a million offsets or so): a load does, and whoever removes many at a time should ask
    /// [`OffsetCache::needs_compaction`] afterwards.
    pub fn compact(&mut self) {
        self.blocks.compact();
    }

    #[inline]
    fn place(&self, key: &OffsetKey<'_>) -> Option<Place> {
        let group = self.names.groups.find(key.group.as_bytes())?;
        let topic = self.names.topics.find(key.topic.as_bytes())?;
        Some(Place::of(group, topic, key.partition))
    }

    /// Block and bit of a partition that has an entry.
    #[inline]
    fn find(&self, place: Place, bit: u32) -> Option<(u32, u32)> {
        let id = self.blocks.find(place)?;
        self.blocks.has(id, bit).then_some((id, bit))
    }

    #[inline]
    fn locate(&self, key: &OffsetKey<'_>) -> Option<(u32, u32)> {
        self.find(self.place(key)?, Place::bit(key.partition))
    }

    #[inline]
    fn committed(&self, values: &Values) -> CommittedOffset {
        let entries = &self.blocks.entries;
        let Commit { offset, leader_epoch, commit_timestamp_ms, expire_timestamp_ms, topic_id, record_offset, .. } = entries.commit(values);
        let metadata = entries.metadata().shared(values.metadata);
        CommittedOffset { offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id, record_offset }
    }
}

fn drop_unused(names: &mut Names, is_used: impl Fn(NameId) -> bool) {
    let unused: Vec<NameId> = names.iter().map(|(id, _)| id).filter(|id| !is_used(*id)).collect();
    unused.into_iter().for_each(|id| names.release(id));
}

impl std::fmt::Debug for OffsetCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OffsetCache").field("entries", &self.len()).field("groups", &self.group_count()).finish_non_exhaustive()
    }
}

impl Commit<'_> {
    /// With its metadata copied.
    #[must_use]
    pub fn to_owned(self) -> CommittedOffset {
        CommittedOffset {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: self.metadata.into(),
            commit_timestamp_ms: self.commit_timestamp_ms,
            expire_timestamp_ms: self.expire_timestamp_ms,
            topic_id: self.topic_id,
            record_offset: self.record_offset,
        }
    }
}

impl CommittedOffset {
    /// As the cache takes it.
    #[must_use]
    pub fn as_commit(&self) -> Commit<'_> {
        Commit {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: &self.metadata,
            commit_timestamp_ms: self.commit_timestamp_ms,
            expire_timestamp_ms: self.expire_timestamp_ms,
            topic_id: self.topic_id,
            record_offset: self.record_offset,
        }
    }
}

#[cfg(test)]
mod tests;
