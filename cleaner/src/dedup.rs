//! The keys seen so far in one pass, newest first.
//!
//! A key is known by a 128-bit hash. Its highest 32 bits say where to look: they choose a *bucket*, eight words of 8 bytes that
//! fill one cache line. The low half is the *tag* that stands in it, 0 meaning "free". A bucket that is full continues in
//! the next one. Nothing is ever removed, so a free word ends every search. At most [`KEYS_PER_BUCKET`] of 8 words are
//! used on average: 10.7 bytes a key.
//!
//! **How large.** Most logs repeat their keys: a set for as many keys as there are records would be ten times too large,
//! and slow, since it fits no cache. So the set begins with a small table, and where that is full, what it has seen until
//! then tells how many keys there are likely to be: they move into a table for so many. For that, the small table keeps
//! the place of each key whole; a larger one has only the tags, which don't say where they would go. Where the guess was
//! too low, keys stay in the table that they came into, a further one takes what comes, and each search looks into all of
//! them; each further one is so much larger that four are enough for 500 million keys.
//!
//! **Two keys that look alike.** Keys are not stored. A key is taken for a duplicate wrongly if its tag equals
//! that of another key in the buckets that it is searched in. Tags are 64 bits of a hash under a secret, so each
//! comparison with a foreign tag errs with probability 2^-64 (2^-63 for tags 0 and 1, which share a value). A
//! search compares with the tags of one bucket of each table, and of the following ones while buckets are full: 3.6 on
//! average while a table fills, 11.3 for a key of the clean section that is asked for in a full one. So `n` different keys in
//! one table make `3.6 n` comparisons, and at the worst, all of them asked for in four full tables, `45 n`: of 50 million keys
//! one is lost in 1e-11 of all passes, and in 1.2e-10 at the worst. That is linear in `n`, not quadratic: for a key to be lost it
//! must share the bucket as well. Tests measure this with shorter tags; `docs/RELIABILITY.md` has the table.

mod cpu;
mod table;

use std::io;

pub(crate) use table::Shelf;
use table::{Find, Table};

/// Keys that a bucket takes on average when the table is at its capacity.
pub(crate) const KEYS_PER_BUCKET: u64 = 6;
/// Bytes of a bucket.
pub(crate) const BUCKET_BYTES: u64 = table::BUCKET_BYTES as u64;
/// How many searches ahead the memory that they need is asked for.
pub const SEARCHES_AHEAD: usize = 32;

/// The first table of a set that grows: enough to guess by, and it stays in the processor's cache.
const FIRST_KEYS: u64 = 64 << 10;

/// A key's place in a [`DedupSet`]: where to look, and what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub(crate) tag: u64,
    pub(crate) high: u32,
}

impl Place {
    /// The place of a key's hash.
    #[inline]
    pub fn new(hash: u128) -> Self {
        Self { tag: (hash as u64).max(1), high: (hash >> 96) as u32 }
    }
}

/// Why a key was not added.
#[derive(Debug)]
pub enum NotAdded {
    /// The set holds as many keys as it may, and was given another one.
    Full,
    /// The system gives no memory for more.
    OutOfMemory(io::Error),
}

/// The set of keys seen so far.
#[derive(Debug)]
pub struct DedupSet {
    /// Only the last one takes keys.
    tables: Vec<Table>,
    /// In a first table that its keys will move out of: the part of their places that is not in it, by word.
    highs: Vec<u32>,
    len: u64,
    capacity: u64,
    /// Keys that were added or found, to guess by how many there are.
    asked: u64,
}

impl DedupSet {
    /// A set for `capacity` keys, with all its memory.
    ///
    /// # Errors
    /// Those of the system, asked for memory.
    pub fn with_capacity(capacity: u64) -> io::Result<Self> {
        Ok(Self { tables: vec![Table::new(capacity)?], highs: Vec::new(), len: 0, capacity, asked: 0 })
    }

    /// A set for at most `capacity` keys, that begins small.
    ///
    /// # Errors
    /// Those of the system, asked for memory.
    pub fn growing(capacity: u64) -> io::Result<Self> {
        // A little more than the first table takes is not worth a second one.
        if capacity <= 4 * FIRST_KEYS {
            return Self::with_capacity(capacity);
        }
        let first = Table::new(FIRST_KEYS)?;
        let highs = vec![0; first.words_len()];
        Ok(Self { tables: vec![first], highs, len: 0, capacity, asked: 0 })
    }

    /// Keys that a set of at most this many bytes can take.
    pub(crate) fn capacity_of(bytes: u64) -> u64 {
        (bytes / BUCKET_BYTES).min(u64::from(u32::MAX)) * KEYS_PER_BUCKET
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.buckets() * BUCKET_BYTES).sum::<u64>() + size_of_val(&self.highs[..]) as u64
    }

    /// Keys in the set.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds as many keys as it may.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// Adds the key at `place`; returns whether it is new.
    ///
    /// # Errors
    /// If it is new and there is no room: the set is as before.
    #[inline]
    pub fn insert(&mut self, place: Place) -> Result<bool, NotAdded> {
        self.asked += 1;
        let (last, before) = self.tables.split_last_mut().expect("a set has a table from the start");
        if before.iter().any(|table| table.contains(place)) {
            return Ok(false);
        }
        match last.find(place) {
            Find::Here => return Ok(false),
            Find::Free(at) if !last.is_full() => {
                last.put(at, place);
                if let Some(high) = self.highs.get_mut(at) {
                    *high = place.high;
                }
            }
            Find::Free(_) | Find::Nowhere => self.add_table(place)?,
        }
        self.len += 1;
        Ok(true)
    }

    /// Whether the key at `place` is in the set.
    #[inline]
    pub fn contains(&self, place: Place) -> bool {
        self.tables.iter().any(|table| table.contains(place))
    }

    /// Begins to load what a search for `place` will look at.
    #[inline]
    pub fn prefetch(&self, place: Place) {
        self.tables.iter().for_each(|table| table.prefetch(place));
    }

    /// How many keys there are likely to be in what is added to it, by what was added so far.
    pub(crate) fn likely_keys(&self) -> u64 {
        likely_keys(self.asked, self.len)
    }

    /// What to ask for ahead of searches, by whoever has not the set at hand.
    pub(crate) fn shelf(&self) -> Shelf {
        self.tables.last().map_or_else(Shelf::default, Table::shelf)
    }

    /// A larger table, with the key at `place` in it.
    #[cold]
    fn add_table(&mut self, place: Place) -> Result<(), NotAdded> {
        if self.is_full() {
            return Err(NotAdded::Full);
        }
        // What the tables hold that stay as they are.
        let moves = !self.highs.is_empty();
        let stay = if moves { 0 } else { self.len };
        let least = self.len << (4 * (self.tables.len() - 1)).min(32);
        let keys = self.likely_keys().saturating_sub(stay).max(least).min(self.capacity - stay);
        let mut table = Table::new(keys).map_err(NotAdded::OutOfMemory)?;
        if moves {
            let highs = std::mem::take(&mut self.highs);
            let Some(first) = self.tables.pop() else { return Err(NotAdded::Full) };
            for (tag, high) in first.tags().zip(highs).filter(|(tag, _)| *tag != 0) {
                table.add(Place { tag, high });
            }
        }
        table.add(place);
        self.tables.push(table);
        Ok(())
    }
}

/// How many keys there are in all, and some more, if `asked` draws gave `distinct` of them, and all are equally likely.
/// Where some are more likely than others there are more of them, and this is too low.
fn likely_keys(asked: u64, distinct: u64) -> u64 {
    let (asked, distinct) = (asked as f64, distinct as f64);
    // The distinct ones among so many draws of `keys` rise with `keys`: halve the range until it is small.
    let drawn = |keys: f64| keys * (1.0 - (-asked / keys).exp());
    let (mut low, mut high) = (distinct, distinct * 1e6);
    while high > low * 1.01 {
        let middle = (low * high).sqrt();
        if drawn(middle) < distinct { low = middle } else { high = middle }
    }
    (high * 1.2) as u64
}

#[cfg(test)]
mod tests;
