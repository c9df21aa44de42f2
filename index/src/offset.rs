//! Offset index (`.index`): from a record offset to a place in the segment from which to scan.
//!
//! An entry holds the *last* offset of a chunk of batches and the position where that chunk *starts*. Every
//! batch that starts before that position ends below that offset.

use crate::search::{field, prefix_len};
use crate::{IndexError, RELATIVE_OFFSET_MAX};

/// An offset and the position from which to scan for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetEntry {
    /// Last record offset of the chunk.
    pub offset: u64,
    /// Byte position in the segment where the chunk starts; always that of a batch.
    pub position: u32,
}

/// Offset index of the segment with a given base offset.
#[derive(Clone, Debug)]
pub struct OffsetIndex<B> {
    base: u64,
    bytes: B,
}

impl<B: AsRef<[u8]>> OffsetIndex<B> {
    /// Bytes of one entry.
    pub const ENTRY_BYTES: usize = 8;

    /// An index over all of `bytes`. Fails if they are not a whole number of entries; see [`OffsetIndex::check`]
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
    pub fn entry(&self, i: usize) -> Option<OffsetEntry> {
        let bytes = self.as_bytes();
        // Read unsigned: a negative relative offset becomes a huge one, which `check` refuses.
        let relative = u32::from_be_bytes(field(bytes, i, Self::ENTRY_BYTES, 0)?);
        let position = u32::from_be_bytes(field(bytes, i, Self::ENTRY_BYTES, 4)?);
        Some(OffsetEntry { offset: self.base.saturating_add(u64::from(relative)), position })
    }

    /// The entry with the largest offset.
    pub fn last(&self) -> Option<OffsetEntry> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// All entries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = OffsetEntry> {
        (0..self.len()).map_while(|i| self.entry(i))
    }

    /// The entry with the largest offset not above `target`; the start of the segment if there is none.
    pub fn lookup(&self, target: u64) -> OffsetEntry {
        let not_above = self.count_while(|e| e.offset <= target);
        not_above.checked_sub(1).and_then(|i| self.entry(i)).unwrap_or(OffsetEntry { offset: self.base, position: 0 })
    }

    /// The first entry whose position is at or past `position`: everything that starts before `position` ends
    /// below its offset.
    pub fn lookup_position(&self, position: u32) -> Option<OffsetEntry> {
        self.entry(self.count_while(|e| e.position < position))
    }

    /// Checks every entry against a segment of `log_bytes` bytes whose next offset is `next_offset`: offsets and
    /// positions strictly rise, offsets lie in base..next, positions lie inside the data. Whether each position
    /// is that of a batch only a scan of the segment can tell.
    pub fn check(&self, log_bytes: u32, next_offset: u64) -> Result<(), IndexError> {
        let mut previous: Option<OffsetEntry> = None;
        for (entry, e) in self.iter().enumerate() {
            if e.position == 0 {
                return Err(IndexError::Unused { entry });
            }
            self.follows(entry, previous, e)?;
            if e.offset >= next_offset {
                return Err(IndexError::OffsetOutside { entry, offset: e.offset, base: self.base, next: next_offset });
            }
            if e.position >= log_bytes {
                return Err(IndexError::PositionOutside { entry, position: e.position, log_bytes });
            }
            previous = Some(e);
        }
        Ok(())
    }

    /// What must hold between neighbours and for each entry by itself.
    fn follows(&self, entry: usize, previous: Option<OffsetEntry>, e: OffsetEntry) -> Result<(), IndexError> {
        if e.offset < self.base || e.offset - self.base > RELATIVE_OFFSET_MAX {
            let next = self.base.saturating_add(RELATIVE_OFFSET_MAX + 1);
            return Err(IndexError::OffsetOutside { entry, offset: e.offset, base: self.base, next });
        }
        if let Some(previous) = previous.filter(|p| e.offset <= p.offset) {
            return Err(IndexError::OffsetNotRising { entry, offset: e.offset, previous: previous.offset });
        }
        let previous_position = previous.map_or(0, |p| p.position);
        if e.position <= previous_position {
            return Err(IndexError::PositionNotRising { entry, position: e.position, previous: previous_position });
        }
        if i32::try_from(e.position).is_err() {
            return Err(IndexError::PositionOutside { entry, position: e.position, log_bytes: i32::MAX as u32 });
        }
        Ok(())
    }

    fn count_while(&self, before: impl Fn(OffsetEntry) -> bool) -> usize {
        prefix_len(self.len(), Self::ENTRY_BYTES, |i| self.entry(i).is_some_and(&before))
    }
}

impl OffsetIndex<Vec<u8>> {
    /// An index with no entry.
    #[must_use]
    pub fn empty(base: u64) -> Self {
        Self { base, bytes: Vec::new() }
    }

    /// Adds an entry: `offset` is the last one of a chunk, `position` where the chunk starts. Both must be above
    /// those of the last entry, and the position above 0: the first chunk of a segment needs no entry.
    pub fn append(&mut self, offset: u64, position: u32) -> Result<(), IndexError> {
        self.follows(self.len(), self.last(), OffsetEntry { offset, position })?;
        // invariant: `follows` bounds the relative offset to 31 bits
        let relative = (offset - self.base) as u32;
        self.bytes.extend_from_slice(&relative.to_be_bytes());
        self.bytes.extend_from_slice(&position.to_be_bytes());
        Ok(())
    }

    /// Drops the entries at `offset` and above.
    pub fn truncate_to(&mut self, offset: u64) {
        let kept = self.count_while(|e| e.offset < offset);
        self.bytes.truncate(kept * Self::ENTRY_BYTES);
    }

    /// Whether a file of at most `max_bytes` (Kafka's `segment.index.bytes`) has no room for another entry.
    #[must_use]
    pub fn is_full(&self, max_bytes: u32) -> bool {
        self.len() >= max_bytes as usize / Self::ENTRY_BYTES
    }
}
