//! The committed offsets of one partition of `__consumer_offsets`, in memory.
//!
//! Entries lie in one array, found through a table of (group, topic, partition) and chained by group. The rule for
//! what stays is that of the log: of two commits for the same place, the one whose record has the larger offset.

mod names;

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use names::{NameId, Names};

use crate::record::OffsetKey;

/// No entry, no name.
const NONE: u32 = u32::MAX;
const NO_EPOCH: i32 = -1;
const NO_TIMESTAMP: i64 = -1;

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
pub struct OffsetCache {
    entries: Vec<Entry>,
    /// First of the unused entries, which are chained by `next`.
    free: u32,
    by_place: HashTable<u32>,
    hasher: DefaultHashBuilder,
    groups: Names<Chain>,
    topics: Names<()>,
    metadata: Names<()>,
}

/// One cache line: at millions of entries in no order, the time of a look-up is the lines that it touches.
#[repr(align(64))]
struct Entry {
    place: Place,
    /// Neighbours in the chain of the group.
    previous: u32,
    next: u32,
    /// `NONE` for the empty string, which most commits have.
    metadata: NameId,
    offset: u64,
    record_offset: u64,
    commit_timestamp_ms: i64,
    /// -1 for none, as in the record.
    expire_timestamp_ms: i64,
    /// -1 for none, as in the record.
    leader_epoch: i32,
}

const _: () = assert!(size_of::<Entry>() == 64);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    group: NameId,
    topic: NameId,
    partition: i32,
}

/// Where the entries of a group begin.
struct Chain {
    first: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE }
    }
}

impl OffsetCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            by_place: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            groups: Names::new(),
            topics: Names::new(),
            metadata: Names::new(),
        }
    }

    /// Committed offsets held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Whether nothing is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Groups with a committed offset.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The groups with a committed offset, in no order.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.iter()
    }

    /// Takes a commit over, unless what is held for `key` comes from a later record. Returns whether it was taken.
    pub fn apply_commit(&mut self, key: &OffsetKey<'_>, commit: &Commit<'_>) -> bool {
        let place = Place { group: self.groups.intern(key.group), topic: self.topics.intern(key.topic), partition: key.partition };
        let hash = self.hasher.hash_one(place);
        let Some(&index) = self.by_place.find(hash, |&i| self.entries[i as usize].place == place) else {
            self.insert(hash, place, commit);
            return true;
        };
        let newer = commit.record_offset >= self.entries[index as usize].record_offset;
        if newer {
            self.take_over(index, commit);
        }
        newer
    }

    /// Forgets what is held for `key`. Returns whether there was anything.
    pub fn remove(&mut self, key: &OffsetKey<'_>) -> bool {
        let Some((hash, place)) = self.place_of(key) else { return false };
        let Ok(found) = self.by_place.find_entry(hash, |&i| self.entries[i as usize].place == place) else { return false };
        let (index, _) = found.remove();
        self.unchain(index);
        let entry = &mut self.entries[index as usize];
        entry.next = self.free;
        self.free = index;
        if entry.metadata != NONE {
            self.metadata.release(entry.metadata);
        }
        self.topics.release(place.topic);
        self.groups.release(place.group);
        true
    }

    /// What is committed for `key`.
    #[must_use]
    pub fn get(&self, key: &OffsetKey<'_>) -> Option<CommittedOffset> {
        let (hash, place) = self.place_of(key)?;
        let index = self.by_place.find(hash, |&i| self.entries[i as usize].place == place)?;
        Some(self.committed(&self.entries[*index as usize]))
    }

    /// All that `group` has committed, by topic and partition.
    #[must_use]
    pub fn list_group(&self, group: &str) -> Vec<GroupOffset> {
        let mut next = self.groups.find(group).map_or(NONE, |id| self.groups.data(id).first);
        let mut listed = Vec::new();
        while next != NONE {
            let entry = &self.entries[next as usize];
            let topic = self.topics.name(entry.place.topic).clone();
            listed.push(GroupOffset { topic, partition: entry.place.partition, committed: self.committed(entry) });
            next = entry.next;
        }
        listed.sort_unstable_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        listed
    }

    fn place_of(&self, key: &OffsetKey<'_>) -> Option<(u64, Place)> {
        let place = Place { group: self.groups.find(key.group)?, topic: self.topics.find(key.topic)?, partition: key.partition };
        Some((self.hasher.hash_one(place), place))
    }

    fn insert(&mut self, hash: u64, place: Place, commit: &Commit<'_>) {
        let next = self.groups.data(place.group).first;
        let entry = Entry {
            place,
            previous: NONE,
            next,
            metadata: NONE,
            offset: 0,
            record_offset: 0,
            commit_timestamp_ms: 0,
            expire_timestamp_ms: NO_TIMESTAMP,
            leader_epoch: NO_EPOCH,
        };
        let index = if self.free == NONE {
            // invariant: 2^32 - 1 entries would not fit in memory.
            let index = u32::try_from(self.entries.len()).ok().filter(|i| *i != NONE).expect("fewer than 2^32 - 1 entries");
            self.entries.push(entry);
            index
        } else {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            self.entries[index as usize] = entry;
            index
        };
        self.take_over(index, commit);
        self.groups.data_mut(place.group).first = index;
        if next != NONE {
            self.entries[next as usize].previous = index;
        }
        self.groups.retain(place.group);
        self.topics.retain(place.topic);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_place.insert_unique(hash, index, |&i| hasher.hash_one(entries[i as usize].place));
    }

    fn take_over(&mut self, index: u32, commit: &Commit<'_>) {
        let entry = &mut self.entries[index as usize];
        entry.offset = commit.offset;
        entry.record_offset = commit.record_offset;
        entry.commit_timestamp_ms = commit.commit_timestamp_ms;
        entry.expire_timestamp_ms = commit.expire_timestamp_ms.unwrap_or(NO_TIMESTAMP);
        entry.leader_epoch = commit.leader_epoch.unwrap_or(NO_EPOCH);
        let held = entry.metadata;
        if held == NONE && commit.metadata.is_empty() {
            return;
        }
        entry.metadata = NONE;
        if !commit.metadata.is_empty() {
            entry.metadata = self.metadata.intern(commit.metadata);
            self.metadata.retain(entry.metadata);
        }
        if held != NONE {
            self.metadata.release(held);
        }
    }

    fn committed(&self, entry: &Entry) -> CommittedOffset {
        let metadata = (entry.metadata != NONE).then(|| Arc::clone(self.metadata.name(entry.metadata)));
        CommittedOffset {
            offset: entry.offset,
            leader_epoch: (entry.leader_epoch != NO_EPOCH).then_some(entry.leader_epoch),
            metadata: metadata.unwrap_or_default(),
            commit_timestamp_ms: entry.commit_timestamp_ms,
            expire_timestamp_ms: (entry.expire_timestamp_ms != NO_TIMESTAMP).then_some(entry.expire_timestamp_ms),
            record_offset: entry.record_offset,
        }
    }

    fn unchain(&mut self, index: u32) {
        let Entry { place, previous, next, .. } = self.entries[index as usize];
        match previous {
            NONE => self.groups.data_mut(place.group).first = next,
            _ => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
    }
}

impl Default for OffsetCache {
    fn default() -> Self {
        Self::new()
    }
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
            record_offset: self.record_offset,
        }
    }
}

#[cfg(test)]
mod tests;
