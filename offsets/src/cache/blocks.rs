//! The blocks of a cache: found by place, chained by group, their entries in arrays.
//!
//! ```text
//! (group, topic, span) -> table -> header: presence bits, where the array is, its shape -> array of entries
//! ```
//! Table and headers of many entries stay in the processor's cache; an entry itself is mostly the one wait for memory.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Commit;
use super::block::{Block, Headers, NONE, Place, SPAN, Shape};
use super::entry::{Entries, Entry, TopicId, Values};
use super::names::NameId;
use super::runs::Runs;

/// A block grows up to so many entries packed; one with more is likely to get all.
const PACKED_MAX: usize = 4;

/// See above.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(super) headers: Headers,
    /// First of the headers not in use, which are chained by `next`.
    pub(super) unused: Option<u32>,
    pub(super) unused_len: usize,
    pub(super) table: HashTable<u32>,
    pub(super) hasher: DefaultHashBuilder,
    pub(super) runs: Runs,
    pub(super) entries: Entries,
    /// The first block of each group, by the number of its name; `NONE` for a group without.
    pub(super) groups: Vec<u32>,
    /// By the number of a topic's name.
    pub(super) topics: Vec<TopicFacts>,
    pub(super) len: usize,
    /// Entries' room that the last compaction could not make use of.
    pub(super) left_unused: usize,
    /// How often blocks got other numbers.
    pub(super) moves: u64,
}

/// What is known of a topic.
#[derive(Clone, Copy, Default)]
pub(super) struct TopicFacts {
    /// How many blocks it has.
    pub(super) blocks: u32,
    /// One past the highest partition seen.
    pub(super) width: u32,
    /// The first id that a commit came with; others lie with their commits.
    pub(super) id: Option<TopicId>,
}

/// The names that nothing uses any more.
#[derive(Default)]
pub(super) struct Unnamed {
    pub(super) group: Option<NameId>,
    pub(super) topic: Option<NameId>,
}

impl Blocks {
    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn hash(&self, place: Place) -> u64 {
        hash(&self.hasher, place)
    }

    pub(super) fn hash_of(&self, block: &Block) -> u64 {
        self.hash(block.place())
    }

    /// The block at `place`.
    #[inline]
    pub(crate) fn find(&self, place: Place) -> Option<u32> {
        self.find_by(self.hash(place), place)
    }

    #[inline]
    fn find_by(&self, hash: u64, place: Place) -> Option<u32> {
        self.table.find(hash, |&id| self.headers.get(id).place() == place).copied()
    }

    /// The block at `place`, made if there is none.
    #[inline]
    pub(crate) fn find_or_make(&mut self, place: Place) -> u32 {
        let hash = self.hash(place);
        self.find_by(hash, place).unwrap_or_else(|| self.make(hash, place))
    }

    /// The block that is most likely the one at `place`, if there is one; its header is not looked at.
    #[inline]
    pub(super) fn guess(&self, place: Place) -> u32 {
        self.table.find(self.hash(place), |_| true).copied().unwrap_or(NONE)
    }

    /// Whether a block is the one at `place`.
    #[inline]
    pub(super) fn is_at(&self, id: u32, place: Place) -> bool {
        id != NONE && self.headers.get(id).place() == place
    }

    /// Begins to load where the entry of a partition would be put; not one that is there already.
    #[inline]
    pub(super) fn prefetch_room(&self, id: u32, bit: u32) {
        let block = self.headers.get(id);
        let is_empty = bit < block.dense_len() && !block.has(bit);
        // No branch: which it is nobody can foresee.
        self.runs.prefetch(if is_empty { block.start + bit } else { 0 });
    }

    /// Begins to load the entry of a partition, if it has one.
    #[inline]
    pub(super) fn prefetch_entry(&self, id: u32, bit: u32) {
        let block = self.headers.get(id);
        self.runs.prefetch(if block.has(bit) { block.start + block.index(bit) as u32 } else { 0 });
    }

    fn make(&mut self, hash: u64, place: Place) -> u32 {
        if self.table.len() == self.table.capacity() {
            self.rebuild_table(self.table.len() + 1);
        }
        let (group, topic) = (place.group as usize, place.topic as usize);
        if self.groups.len() <= group {
            self.groups.resize(group + 1, NONE);
        }
        if self.topics.len() <= topic {
            self.topics.resize(topic + 1, TopicFacts::default());
        }
        self.topics[topic].blocks += 1;
        let block = Block::new(place, self.groups[group]);
        let id = match self.unused {
            Some(id) => {
                let next = self.headers.get(id).next;
                self.unused = (next != NONE).then_some(next);
                self.unused_len -= 1;
                *self.headers.get_mut(id) = block;
                id
            }
            None => self.headers.push(block),
        };
        let next = std::mem::replace(&mut self.groups[group], id);
        if next != NONE {
            self.headers.get_mut(next).previous = id;
        }
        let (headers, hasher) = (&self.headers, &self.hasher);
        self.table.insert_unique(hash, id, |&id| self::hash(hasher, headers.get(id).place()));
        id
    }

    /// A table for `blocks` blocks or more, filled in the order of the headers: the table's own order would go to and fro
    /// between them.
    pub(super) fn rebuild_table(&mut self, blocks: usize) {
        let mut table = HashTable::with_capacity(blocks.max(self.table.len()));
        let used = (0..).zip(self.headers.iter()).filter(|(_, block)| block.is_used());
        for (id, block) in used {
            table.insert_unique(self.hash(block.place()), id, |&id| self.hash(self.headers.get(id).place()));
        }
        self.table = table;
    }

    #[inline]
    pub(crate) fn has(&self, id: u32, bit: u32) -> bool {
        self.headers.get(id).has(bit)
    }

    /// Which block and which of its partitions it is.
    pub(crate) fn spot(&self, id: u32, bit: u32) -> (Place, i32) {
        let block = self.headers.get(id);
        (block.place(), block.partition(bit))
    }

    /// The entry of a partition that has one.
    #[inline]
    pub(super) fn entry(&self, id: u32, bit: u32) -> &Entry {
        let block = self.headers.get(id);
        self.runs.entry(block.start + block.index(bit) as u32)
    }

    /// What an entry of a block says.
    #[inline]
    pub(super) fn values(&self, block: &Block, entry: &Entry) -> Values {
        self.entries.values(entry, &self.topics[block.topic as usize].id)
    }

    /// What the entry of a partition that has one says.
    #[inline]
    pub(super) fn values_at(&self, id: u32, bit: u32) -> Values {
        self.values(self.headers.get(id), self.entry(id, bit))
    }

    /// Puts a commit where there is none.
    pub(crate) fn insert(&mut self, id: u32, bit: u32, commit: &Commit<'_>) {
        let topic = self.headers.get(id).topic;
        let entry = self.entries.make(commit, &mut self.topics[topic as usize].id);
        self.insert_entry(id, bit, entry);
    }

    /// As [`Blocks::insert`], for a commit without anything more to it; `false` if it does not fit an entry.
    #[inline(always)]
    pub(crate) fn insert_plain(&mut self, id: u32, bit: u32, offset: u64, leader_epoch: i32, times: (i64, u64)) -> bool {
        let (commit_timestamp_ms, record_offset) = times;
        let entry = self.entries.plain(offset, leader_epoch, commit_timestamp_ms, record_offset);
        entry.map(|entry| self.insert_entry(id, bit, entry)).is_some()
    }

    #[inline(always)]
    fn insert_entry(&mut self, id: u32, bit: u32, entry: Entry) {
        let block = self.headers.get_mut(id);
        if bit < block.dense_len() {
            block.present |= 1 << bit;
            *self.runs.entry_mut(block.start + bit) = entry;
            self.len += 1;
        } else {
            self.insert_moving(id, bit, entry);
        }
    }

    fn insert_moving(&mut self, id: u32, bit: u32, entry: Entry) {
        let block = *self.headers.get(id);
        let topic = &mut self.topics[block.topic as usize];
        topic.width = topic.width.max(u32::try_from(block.partition(bit)).map_or(0, |partition| partition + 1));
        match block.shape() {
            Shape::Packed(len) if block.count() < len => {
                let run = self.runs.run_mut(block.start, len);
                let at = block.rank(bit);
                run.copy_within(at..block.count(), at + 1);
                run[at] = entry;
            }
            _ => self.insert_growing(id, bit, entry),
        }
        self.headers.get_mut(id).present |= 1 << bit;
        self.len += 1;
    }

    fn insert_growing(&mut self, id: u32, bit: u32, entry: Entry) {
        let block = *self.headers.get(id);
        let count = block.count() + 1;
        let shape = if count <= PACKED_MAX {
            Shape::packed(count.next_power_of_two())
        } else {
            Shape::dense(self.width_in(block.topic, block.span()).max(block.width()).max(bit as usize + 1))
        };
        let mut grown = block;
        grown.present |= 1 << bit;
        grown.set_array(self.runs.take(shape.len()), shape);
        for other in bits(block.present) {
            let moved = *self.runs.entry(block.start + block.index(other) as u32);
            *self.runs.entry_mut(grown.start + grown.index(other) as u32) = moved;
        }
        *self.runs.entry_mut(grown.start + grown.index(bit) as u32) = entry;
        self.give_back(&block);
        *self.headers.get_mut(id) = grown;
    }

    /// Partitions of a topic within a span, as far as they were seen.
    fn width_in(&self, topic: NameId, span: i32) -> usize {
        let Ok(span) = u32::try_from(span) else { return 0 };
        self.topics[topic as usize].width.saturating_sub(span * SPAN.unsigned_abs()).min(SPAN.unsigned_abs()) as usize
    }

    fn give_back(&mut self, block: &Block) {
        if block.shape().len() > 0 {
            self.runs.give_back(block.start, block.shape().len());
        }
    }

    /// Puts a commit in the place of the one there is.
    #[inline]
    pub(super) fn replace(&mut self, id: u32, bit: u32, commit: &Commit<'_>) {
        let block = self.headers.get(id);
        let at = block.start + block.index(bit) as u32;
        // The new one first: what both have in common stays.
        let entry = self.entries.make(commit, &mut self.topics[block.topic as usize].id);
        let old = std::mem::replace(self.runs.entry_mut(at), entry);
        self.entries.release(&old);
    }

    /// Takes out the commit there is, and the block with its last one.
    pub(super) fn remove(&mut self, id: u32, bit: u32) -> Unnamed {
        let block = *self.headers.get(id);
        let at = block.index(bit);
        let entry = *self.runs.entry(block.start + at as u32);
        self.entries.release(&entry);
        if let Shape::Packed(len) = block.shape() {
            self.runs.run_mut(block.start, len).copy_within(at + 1..block.count(), at);
        }
        self.headers.get_mut(id).present &= !(1 << bit);
        self.len -= 1;
        if self.headers.get(id).present == 0 { self.drop_block(id) } else { Unnamed::default() }
    }

    /// Forgets a block without entries.
    pub(super) fn drop_block(&mut self, id: u32) -> Unnamed {
        let block = *self.headers.get(id);
        self.give_back(&block);
        if let Ok(found) = self.table.find_entry(self.hash(block.place()), |&other| other == id) {
            found.remove();
        }
        match block.previous {
            NONE => self.groups[block.group as usize] = block.next,
            previous => self.headers.get_mut(previous).next = block.next,
        }
        if block.next != NONE {
            self.headers.get_mut(block.next).previous = block.previous;
        }
        *self.headers.get_mut(id) = Block::unused(self.unused.unwrap_or(NONE));
        self.unused = Some(id);
        self.unused_len += 1;
        let topic = &mut self.topics[block.topic as usize];
        topic.blocks -= 1;
        let is_last = topic.blocks == 0;
        if is_last {
            *topic = TopicFacts::default();
        }
        Unnamed { group: (self.groups[block.group as usize] == NONE).then_some(block.group), topic: is_last.then_some(block.topic) }
    }

    /// The blocks of a group.
    pub(super) fn of_group(&self, group: NameId) -> impl Iterator<Item = &Block> {
        let first = self.groups.get(group as usize).copied().unwrap_or(NONE);
        let block = |id: u32| (id != NONE).then(|| self.headers.get(id));
        std::iter::successors(block(first), move |before| block(before.next))
    }

    /// What the entries of a block say, by partition.
    #[inline]
    pub(super) fn values_of<'a>(&'a self, block: &'a Block) -> impl Iterator<Item = (i32, Values)> + 'a {
        let run = if block.present == 0 { &[][..] } else { self.runs.run(block.start, block.shape().len()) };
        bits(block.present).map(|bit| (block.partition(bit), self.values(block, &run[block.index(bit)])))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.headers.memory_bytes()
            + self.table.allocation_size()
            + self.runs.memory_bytes()
            + self.entries.memory_bytes()
            + self.groups.capacity() * size_of::<u32>()
            + self.topics.capacity() * size_of::<TopicFacts>()
    }
}

#[inline]
fn hash(hasher: &DefaultHashBuilder, place: Place) -> u64 {
    let Place { group, topic, span } = place;
    hasher.hash_one((u64::from(group) << 32 | u64::from(topic), span))
}

/// The numbers of the bits that are set, ascending.
#[inline]
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros());
        word &= word.wrapping_sub(1);
        bit
    })
}
