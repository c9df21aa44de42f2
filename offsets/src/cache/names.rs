//! Names as small numbers: each distinct name is kept once.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::block::NONE;

/// The number of a name. Reused once the name is gone.
pub(crate) type NameId = u32;

/// What the allocator and the counts of an `Arc` add to a name, bytes.
const NAME_OVERHEAD_BYTES: usize = 24;

/// Names by number and numbers by name. A number is found by a seeded hash and always settled by comparing the whole name.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<Arc<str>>,
    free: Vec<NameId>,
    by_name: HashTable<Named>,
    hasher: DefaultHashBuilder,
    text_bytes: usize,
}

/// A name in the table.
struct Named {
    ends: Ends,
    id: NameId,
}

/// Length and both ends of a name: of one that is not longer than [`Ends::WHOLE_MAX`], all of it. So a look-up of most names
/// stays in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    head: u64,
    tail: u64,
    len: u32,
}

impl Ends {
    const WHOLE_MAX: u32 = 16;

    #[inline(always)]
    fn of(name: &[u8]) -> Self {
        let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            _ => (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
        };
        Self { head, tail, len: u32::try_from(name.len()).unwrap_or(u32::MAX) }
    }

    /// One of so many slots, a power of two. Names that are used together mostly differ at their ends.
    #[inline(always)]
    fn slot(&self, slots: usize) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % slots
    }
}

impl Names {
    /// Names in use.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The names in use, with their numbers, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NameId, &Arc<str>)> {
        self.by_name.iter().map(|named| (named.id, &self.names[named.id as usize]))
    }

    /// The name of a number in use.
    #[inline]
    pub(super) fn name(&self, id: NameId) -> &Arc<str> {
        &self.names[id as usize]
    }

    #[inline]
    fn hash(&self, ends: &Ends, name: &[u8]) -> u64 {
        hash(&self.hasher, ends, name)
    }

    /// The number of `name`, UTF-8 or not.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<NameId> {
        let ends = Ends::of(name);
        self.find_by(self.hash(&ends, name), &ends, name)
    }

    #[inline]
    fn find_by(&self, hash: u64, ends: &Ends, name: &[u8]) -> Option<NameId> {
        let is_it = |named: &Named| named.ends == *ends && (ends.len <= Ends::WHOLE_MAX || self.name(named.id).as_bytes() == name);
        self.by_name.find(hash, is_it).map(|named| named.id)
    }

    /// The number of `name`, a new one if it is new.
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        let ends = Ends::of(name.as_bytes());
        let hash = self.hash(&ends, name.as_bytes());
        if let Some(id) = self.find_by(hash, &ends, name.as_bytes()) {
            return id;
        }
        self.text_bytes += name.len() + NAME_OVERHEAD_BYTES;
        let id = if let Some(id) = self.free.pop() {
            self.names[id as usize] = name.into();
            id
        } else {
            // invariant: 2^32 names would not fit in memory.
            let id = NameId::try_from(self.names.len()).expect("fewer than 2^32 names");
            self.names.push(name.into());
            id
        };
        let (names, hasher) = (&self.names, &self.hasher);
        let hash_of = |named: &Named| self::hash(hasher, &named.ends, names[named.id as usize].as_bytes());
        self.by_name.insert_unique(hash, Named { ends, id }, hash_of);
        id
    }

    /// Forgets a name in use.
    pub(super) fn release(&mut self, id: NameId) {
        let name = std::mem::take(&mut self.names[id as usize]);
        let hash = self.hash(&Ends::of(name.as_bytes()), name.as_bytes());
        if let Ok(entry) = self.by_name.find_entry(hash, |named| named.id == id) {
            entry.remove();
        }
        self.text_bytes -= name.len() + NAME_OVERHEAD_BYTES;
        self.free.push(id);
    }

    /// Heap memory taken, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names.capacity() * size_of::<Arc<str>>()
            + self.free.capacity() * size_of::<NameId>()
            + self.by_name.allocation_size()
            + self.text_bytes
    }
}

#[inline]
fn hash(hasher: &DefaultHashBuilder, ends: &Ends, name: &[u8]) -> u64 {
    if ends.len <= Ends::WHOLE_MAX { hasher.hash_one(ends) } else { hasher.hash_one(name) }
}

/// Names that were looked for last, as many as there are slots: mostly the next ones are among them.
pub(crate) struct Recent<'n, const SLOTS: usize> {
    names: &'n Names,
    slots: [(Ends, NameId); SLOTS],
}

impl<'n, const SLOTS: usize> Recent<'n, SLOTS> {
    pub(crate) fn new(names: &'n Names) -> Self {
        Self { names, slots: [(Ends { head: 0, tail: 0, len: u32::MAX }, NONE); SLOTS] }
    }

    /// The number of a name; [`NONE`] of one that has none.
    #[inline(always)]
    pub(crate) fn find(&mut self, name: &[u8]) -> NameId {
        let ends = Ends::of(name);
        let slot = &mut self.slots[ends.slot(SLOTS)];
        let is_it = slot.0 == ends && (ends.len <= Ends::WHOLE_MAX || slot.1 != NONE && self.names.name(slot.1).as_bytes() == name);
        if !is_it {
            let id = self.names.find_by(self.names.hash(&ends, name), &ends, name);
            *slot = (ends, id.unwrap_or(NONE));
        }
        slot.1
    }
}

/// Texts that many entries may share, each counted.
#[derive(Default)]
pub(super) struct SharedTexts {
    names: Names,
    uses: Vec<u32>,
}

/// The text that most entries have: the empty one, which is never kept.
pub(super) const EMPTY: NameId = 0;

impl SharedTexts {
    /// The number of `text`, used once more.
    #[inline]
    pub(super) fn retain(&mut self, text: &str) -> NameId {
        if text.is_empty() { EMPTY } else { self.retain_some(text) }
    }

    fn retain_some(&mut self, text: &str) -> NameId {
        let id = self.names.intern(text) as usize;
        if self.uses.len() <= id {
            self.uses.resize(id + 1, 0);
        }
        self.uses[id] += 1;
        id as NameId + 1
    }

    /// One use more of a number in use.
    #[inline]
    pub(super) fn retain_again(&mut self, id: NameId) {
        self.uses[id as usize - 1] += 1;
    }

    /// One use less; after the last it is forgotten.
    #[inline]
    pub(super) fn release(&mut self, id: NameId) {
        if id == EMPTY {
            return;
        }
        let uses = &mut self.uses[id as usize - 1];
        *uses -= 1;
        if *uses == 0 {
            self.names.release(id - 1);
        }
    }

    /// The text of a number in use.
    #[inline]
    pub(super) fn text(&self, id: NameId) -> &str {
        if id == EMPTY { "" } else { self.names.name(id - 1) }
    }

    /// A number in use, and its text; `None` of the empty one.
    #[inline]
    pub(super) fn named(&self, id: NameId) -> Option<(NameId, &Arc<str>)> {
        (id != EMPTY).then(|| (id, self.names.name(id - 1)))
    }

    /// As [`SharedTexts::text`], to keep.
    pub(super) fn shared(&self, id: NameId) -> Arc<str> {
        if id == EMPTY { Arc::default() } else { Arc::clone(self.names.name(id - 1)) }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.uses.capacity() * size_of::<u32>()
    }
}
