//! Time index (`.timeindex`): from a timestamp to the offset after which later records lie.
//!
//! An entry says: up to here the largest timestamp is `timestamp`, and `offset` is the last offset of the
//! earliest batch that has it. Only a record behind `offset` can be later. The last entry of a sealed segment
//! holds the segment's largest timestamp.

use crate::search::{field, prefix_len};
use crate::{IndexError, RELATIVE_OFFSET_MAX};

/// A timestamp and the offset it was reached at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeEntry {
    /// Largest timestamp so far, ms since the Unix epoch; -1 for "none".
    pub timestamp: i64,
    /// Last record offset of the earliest batch with that timestamp.
    pub offset: u64,
}

/// Time index of the segment with a given base offset.
#[derive(Clone, Debug)]
pub struct TimeIndex<B> {
    base: u64,
    bytes: B,
}

impl<B: AsRef<[u8]>> TimeIndex<B> {
    /// Bytes of one entry.
    pub const ENTRY_BYTES: usize = 12;

    /// An index over all of `bytes`. Fails if they are not a whole number of entries; see [`TimeIndex::check`]
    /// for their contents.
    pub fn new(base: u64, bytes: B) -> Result<Self, IndexError> {
        let len = bytes.as_ref().len();
        if !len.is_multiple_of(Self::ENTRY_BYTES) {
            return Err(IndexError::Ragged { bytes: len, entry_bytes: Self::ENTRY_BYTES });
        }
        Ok(Self { base, bytes })
    }

    /// Base offset of the segment.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The entries as stored.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Gives the bytes back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.as_bytes().len() / Self::ENTRY_BYTES
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entry `i`, counted from 0.
    pub fn entry(&self, i: usize) -> Option<TimeEntry> {
        let bytes = self.as_bytes();
        let timestamp = i64::from_be_bytes(field(bytes, i, Self::ENTRY_BYTES, 0)?);
        let relative = u32::from_be_bytes(field(bytes, i, Self::ENTRY_BYTES, 8)?);
        Some(TimeEntry { timestamp, offset: self.base.saturating_add(u64::from(relative)) })
    }

    /// The entry with the largest timestamp.
    pub fn last(&self) -> Option<TimeEntry> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// All entries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = TimeEntry> {
        (0..self.len()).map_while(|i| self.entry(i))
    }

    /// The entry with the greatest timestamp not above `timestamp`; timestamp -1 at the base offset if there is
    /// none.
    pub fn lookup(&self, timestamp: i64) -> TimeEntry {
        let not_above = self.count_while(|e| e.timestamp <= timestamp);
        not_above.checked_sub(1).and_then(|i| self.entry(i)).unwrap_or(TimeEntry { timestamp: -1, offset: self.base })
    }

    /// Checks every entry against a segment whose next offset is `next_offset`: timestamps are not negative and
    /// strictly rise, offsets never go back and lie in base..next.
    pub fn check(&self, next_offset: u64) -> Result<(), IndexError> {
        let mut previous = TimeEntry { timestamp: -1, offset: self.base };
        for (entry, e) in self.iter().enumerate() {
            if e.timestamp <= previous.timestamp {
                return Err(IndexError::TimestampNotRising { entry, timestamp: e.timestamp, previous: previous.timestamp });
            }
            self.follows(entry, previous.offset, e.offset)?;
            if e.offset >= next_offset {
                return Err(IndexError::OffsetOutside { entry, offset: e.offset, base: self.base, next: next_offset });
            }
            previous = e;
        }
        Ok(())
    }

    fn follows(&self, entry: usize, previous: u64, offset: u64) -> Result<(), IndexError> {
        if offset < self.base || offset - self.base > RELATIVE_OFFSET_MAX {
            let next = self.base.saturating_add(RELATIVE_OFFSET_MAX + 1);
            return Err(IndexError::OffsetOutside { entry, offset, base: self.base, next });
        }
        if offset < previous {
            return Err(IndexError::OffsetNotRising { entry, offset, previous });
        }
        Ok(())
    }

    fn count_while(&self, before: impl Fn(TimeEntry) -> bool) -> usize {
        prefix_len(self.len(), Self::ENTRY_BYTES, |i| self.entry(i).is_some_and(&before))
    }
}

impl TimeIndex<Vec<u8>> {
    /// An index with no entry.
    #[must_use]
    pub fn empty(base: u64) -> Self {
        Self { base, bytes: Vec::new() }
    }

    /// Offers the running maximum `timestamp` and its `offset`; stored, and `true`, if later than the last entry.
    /// Offering the last entry again, or no timestamp (-1), is harmless. Fails if `offset` is below the last
    /// entry's.
    pub fn maybe_append(&mut self, timestamp: i64, offset: u64) -> Result<bool, IndexError> {
        let last = self.last();
        if timestamp < 0 {
            return Ok(false);
        }
        self.follows(self.len(), last.map_or(self.base, |e| e.offset), offset)?;
        if last.is_some_and(|e| timestamp <= e.timestamp) {
            return Ok(false);
        }
        // invariant: `follows` bounds the relative offset to 31 bits
        let relative = (offset - self.base) as u32;
        self.bytes.extend_from_slice(&timestamp.to_be_bytes());
        self.bytes.extend_from_slice(&relative.to_be_bytes());
        Ok(true)
    }

    /// Drops the entries at `offset` and above.
    pub fn truncate_to(&mut self, offset: u64) {
        let kept = self.count_while(|e| e.offset < offset);
        self.bytes.truncate(kept * Self::ENTRY_BYTES);
    }

    /// Whether a file of at most `max_bytes` (Kafka's `segment.index.bytes`) has room for the closing entry only.
    #[must_use]
    pub fn is_full(&self, max_bytes: u32) -> bool {
        self.len() + 1 >= max_bytes as usize / Self::ENTRY_BYTES
    }
}
