//! One committed offset in three words, and where those are kept that do not fit.
//!
//! ```text
//! offset 64 | commit time 40, topic id 1, leader epoch 23 | record offset 40, metadata 24
//! ```
//! Commit time (ms) and record offset count from those of the first commit, in either direction: 17 years, and 5 * 10^11
//! records. The bit for the topic id says that it is the one that is noted for the topic. A commit with more to it (an
//! expire timestamp, another topic id, numbers out of these ranges) lies in a table of its own, whose index stands in the
//! place of the offset.

use super::Commit;
use super::names::{EMPTY, NameId, SharedTexts};

/// What lies in the array of a block. The zeros of new memory are never read: presence is noted in the block.
pub(crate) type Entry = [u64; 3];

const LOW_BITS: u32 = 24;
pub(super) const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
const HIGH_LIMIT: i64 = 1 << 39;
/// The topic id is the noted one.
pub(super) const HAS_ID: u64 = 1 << 23;
pub(super) const EPOCH_MASK: u64 = HAS_ID - 1;
/// In the place of a leader epoch: there is none.
const NO_EPOCH: u64 = EPOCH_MASK;
/// In the place of a leader epoch: the entry lies in the table.
pub(super) const ODD: u64 = EPOCH_MASK - 1;

pub(crate) type TopicId = [u8; 16];

/// A leader epoch that stands for none, as in the record.
pub(super) const NONE_I32: i32 = -1;
/// A timestamp that stands for none, as in the record.
pub(super) const NONE_I64: i64 = -1;

/// A commit whose metadata is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) offset: u64,
    pub(super) record_offset: u64,
    pub(super) commit_timestamp_ms: i64,
    pub(super) expire_timestamp_ms: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: NameId,
    pub(super) topic_id: Option<TopicId>,
}

/// Makes entries of commits, and commits of entries.
#[derive(Default)]
pub(super) struct Entries {
    /// What commit times and record offsets count from; set by the first.
    base: Option<(i64, u64)>,
    odd: Vec<Values>,
    free: Vec<u32>,
    metadata: SharedTexts,
}

impl Entries {
    /// The entry for a commit without metadata, expire timestamp and topic id, if it fits.
    #[inline(always)]
    pub(super) fn plain(&mut self, offset: u64, leader_epoch: i32, commit_timestamp_ms: i64, record_offset: u64) -> Option<Entry> {
        let (base_ms, base_offset) = *self.base.get_or_insert((commit_timestamp_ms, record_offset));
        let time = commit_timestamp_ms.wrapping_sub(base_ms);
        let record = record_offset.wrapping_sub(base_offset).cast_signed();
        let (epoch, is_known) = (u64::from(leader_epoch.cast_unsigned()), leader_epoch != NONE_I32);
        let fits = |difference: i64| (-HIGH_LIMIT..HIGH_LIMIT).contains(&difference);
        let all_fit = (epoch < ODD || !is_known) && fits(time) && fits(record);
        all_fit.then(|| [offset, word(time, if is_known { epoch } else { NO_EPOCH }), word(record, EMPTY.into())])
    }

    /// The entry for a commit. `noted` is the id that is noted for its topic; if there is none, that of the commit will be.
    #[inline]
    pub(super) fn make(&mut self, commit: &Commit<'_>, noted: &mut Option<TopicId>) -> Entry {
        let (base_ms, base_offset) = *self.base.get_or_insert((commit.commit_timestamp_ms, commit.record_offset));
        let metadata = self.metadata.retain(commit.metadata);
        // Both differences come back by wrapping addition, whatever the numbers are.
        let time = commit.commit_timestamp_ms.wrapping_sub(base_ms);
        let record = commit.record_offset.wrapping_sub(base_offset).cast_signed();
        let epoch = match commit.leader_epoch {
            None | Some(NONE_I32) => Some(NO_EPOCH),
            Some(epoch) => u64::try_from(epoch).ok().filter(|epoch| *epoch < ODD),
        };
        let fits = |difference: i64| (-HIGH_LIMIT..HIGH_LIMIT).contains(&difference);
        let has_id = commit.topic_id.map_or(Some(0), |id| (*noted.get_or_insert(id) == id).then_some(HAS_ID));
        let expires = commit.expire_timestamp_ms.is_some_and(|ms| ms != NONE_I64);
        match (epoch, has_id) {
            (Some(epoch), Some(has_id)) if !expires && fits(time) && fits(record) && u64::from(metadata) <= LOW_MASK => {
                [commit.offset, word(time, has_id | epoch), word(record, metadata.into())]
            }
            _ => self.make_odd(commit, metadata),
        }
    }

    #[cold]
    fn make_odd(&mut self, commit: &Commit<'_>, metadata: NameId) -> Entry {
        let values = Values {
            offset: commit.offset,
            record_offset: commit.record_offset,
            commit_timestamp_ms: commit.commit_timestamp_ms,
            expire_timestamp_ms: commit.expire_timestamp_ms.unwrap_or(NONE_I64),
            leader_epoch: commit.leader_epoch.unwrap_or(NONE_I32),
            metadata,
            topic_id: commit.topic_id,
        };
        let at = if let Some(at) = self.free.pop() {
            self.odd[at as usize] = values;
            u64::from(at)
        } else {
            self.odd.push(values);
            self.odd.len() as u64 - 1
        };
        [at, word(0, ODD), 0]
    }

    /// What an entry says, of a topic with this noted id.
    #[inline]
    pub(super) fn values(&self, entry: &Entry, noted: &Option<TopicId>) -> Values {
        if entry[1] & EPOCH_MASK == ODD {
            return self.odd[entry[0] as usize];
        }
        plain_values(entry, self.base.unwrap_or_default(), noted)
    }

    /// What an entry says, its metadata as text.
    #[inline]
    pub(super) fn commit(&self, values: &Values) -> Commit<'_> {
        commit_of(values, self.metadata.text(values.metadata))
    }

    pub(super) fn metadata(&self) -> &SharedTexts {
        &self.metadata
    }

    pub(super) fn metadata_mut(&mut self) -> &mut SharedTexts {
        &mut self.metadata
    }

    /// What commit times and record offsets count from.
    pub(super) fn base(&self) -> Option<(i64, u64)> {
        self.base
    }

    /// Before there is any entry.
    pub(super) fn set_base(&mut self, base: Option<(i64, u64)>) {
        self.base = base;
    }

    /// Lets go of what an entry has elsewhere. It is not to be read any more.
    #[inline]
    pub(super) fn release(&mut self, entry: &Entry) {
        self.metadata.release(self.values(entry, &None).metadata);
        if entry[1] & EPOCH_MASK == ODD {
            // The index was pushed as one, so it is below 2^32 where there is memory for as many.
            self.free.push(entry[0] as u32);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.odd.capacity() * size_of::<Values>() + self.free.capacity() * size_of::<u32>() + self.metadata.memory_bytes()
    }
}

/// What an entry says that is not odd, counted from `base`.
#[inline]
fn plain_values(entry: &Entry, (base_ms, base_offset): (i64, u64), noted: &Option<TopicId>) -> Values {
    let &[offset, time_epoch, record_metadata] = entry;
    let epoch = time_epoch & EPOCH_MASK;
    Values {
        offset,
        record_offset: base_offset.wrapping_add(high(record_metadata).cast_unsigned()),
        commit_timestamp_ms: base_ms.wrapping_add(high(time_epoch)),
        expire_timestamp_ms: NONE_I64,
        leader_epoch: if epoch == NO_EPOCH { NONE_I32 } else { epoch as i32 },
        metadata: (record_metadata & LOW_MASK) as NameId,
        topic_id: if time_epoch & HAS_ID == 0 { None } else { *noted },
    }
}

/// The same, with another text of its metadata.
pub(super) fn plain_commit<'a>(entry: &Entry, base: (i64, u64), noted: Option<TopicId>, metadata: &'a str) -> Commit<'a> {
    commit_of(&plain_values(entry, base, &noted), metadata)
}

#[inline]
fn commit_of<'a>(values: &Values, metadata: &'a str) -> Commit<'a> {
    Commit {
        offset: values.offset,
        leader_epoch: (values.leader_epoch != NONE_I32).then_some(values.leader_epoch),
        metadata,
        commit_timestamp_ms: values.commit_timestamp_ms,
        expire_timestamp_ms: (values.expire_timestamp_ms != NONE_I64).then_some(values.expire_timestamp_ms),
        topic_id: values.topic_id,
        record_offset: values.record_offset,
    }
}

#[inline]
fn word(high: i64, low: u64) -> u64 {
    high.cast_unsigned() << LOW_BITS | low
}

#[inline]
fn high(word: u64) -> i64 {
    word.cast_signed() >> LOW_BITS
}
