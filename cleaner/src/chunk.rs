//! One chunk of a segment: its bytes, and what the pass knows of its entries and records.
//!
//! Filled by `scan`, marked by `decide`, read by `emit`.

use keeplog_engine::record::{BatchHeader, RecordRef};
use keeplog_engine::room;

use crate::dedup::Place;

/// Reading into memory at a multiple of this is several times faster on some processors.
const BUFFER_ALIGN: usize = 64;
/// Buffers beyond this are given back after a chunk that needed them.
const BUFFER_BYTES_KEPT: usize = 8 << 20;

/// What the pass has to know of one record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probe {
    // A place in its parts, so that a probe takes 16 bytes.
    tag: u64,
    high: u32,
    pub(crate) marks: Marks,
}

impl Probe {
    /// Of a record whose key is looked for at `place`.
    #[inline]
    pub(crate) fn new(place: Place, marks: Marks) -> Self {
        Self { tag: place.tag, high: place.high, marks }
    }

    /// Where its key is looked for, if it has one.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        Place { tag: self.tag, high: self.high }
    }
}

/// Facts about a record, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    /// Has a key, and its offset is below the end of the pass: newer records decide.
    pub(crate) const KEYED: u8 = 1;
    /// In the clean section: asks for its key, but leaves none.
    pub(crate) const ASKS: u8 = 2;
    /// At or above the end of the pass: stays.
    pub(crate) const BEYOND: u8 = 4;
    /// A tombstone that nobody needs any more: goes even if it is the newest of its key.
    pub(crate) const EXPIRED: u8 = 8;
    /// Its value is null.
    pub(crate) const NULL: u8 = 16;
    /// It stays: set by the decision.
    pub(crate) const LIVE: u8 = 32;

    pub(crate) fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    /// Its record is judged, and goes because it has no key.
    pub(crate) fn is_keyless(self) -> bool {
        self.0 & (Self::KEYED | Self::BEYOND) == 0
    }

    pub(crate) fn set(&mut self, mark: u8) {
        self.0 |= mark;
    }
}

/// What becomes of the records of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Each is judged by its marks.
    Judge,
    /// All stay: control records.
    Keep,
    /// All stay, and the batch gets its delete horizon: a marker whose transaction has no data left.
    Stamp,
    /// All go: aborted, or a marker that nobody needs any more.
    Drop,
}

/// Facts about an entry, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits(u8);

impl Traits {
    /// Stays even without records.
    pub(crate) const KEEPS_EMPTY: u8 = 1;
    /// Has a delete horizon.
    pub(crate) const HAS_HORIZON: u8 = 2;
    /// Of format v0 or v1.
    pub(crate) const LEGACY: u8 = 4;
    /// Of v2, with compressed records.
    pub(crate) const COMPRESSED: u8 = 8;
    /// Nobody needs its tombstones any more.
    pub(crate) const TOMBSTONES_EXPIRED: u8 = 16;
    /// Compressed, and its records are kept as they were decompressed.
    pub(crate) const KEPT: u8 = 32;

    pub(crate) fn has(self, a_trait: u8) -> bool {
        self.0 & a_trait != 0
    }

    /// With `a_trait`, if it `is` so.
    pub(crate) fn with(self, a_trait: u8, is: bool) -> Self {
        Self(self.0 | if is { a_trait } else { 0 })
    }
}

/// One entry of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Where it begins in the chunk's bytes.
    pub(crate) start: u32,
    /// Its size, bytes.
    pub(crate) size: u32,
    /// Where its records begin in the chunk's probes; those of the next entry follow.
    pub(crate) probes: u32,
    /// Where its records begin in the chunk's bodies, if they are kept.
    pub(crate) bodies: u32,
    pub(crate) verdict: Verdict,
    pub(crate) traits: Traits,
}

/// A record of a compressed batch, kept so that nothing is decompressed twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) offset: u64,
    pub(crate) timestamp: i64,
    /// Where it is in the chunk's area.
    pub(crate) start: u32,
    pub(crate) size: u32,
}

/// What a chunk adds to the report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScanCounts {
    pub(crate) records_read: u64,
    pub(crate) records_keyless: u64,
}

/// The chunk at hand. Its memory is reused for the next one.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) buffer: Vec<u8>,
    /// Where in `buffer` aligned memory starts, and the bytes with it.
    pub(crate) pad: usize,
    pub(crate) position: u32,
    pub(crate) entries: Vec<Entry>,
    pub(crate) probes: Vec<Probe>,
    /// What compressed entries hold, one after the other, and perhaps room behind that.
    pub(crate) area: Vec<u8>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) counts: ScanCounts,
    /// Base offset of its first entry, and the one after its last offset.
    pub(crate) first_offset: u64,
    pub(crate) next_offset: u64,
}

impl Chunk {
    /// Its bytes as they are in the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.pad..]
    }

    /// Where its last entry begins in the file.
    pub(crate) fn last_position(&self) -> u32 {
        self.position + self.entries.last().map_or(0, |entry| entry.start)
    }

    /// The bytes of one entry.
    pub(crate) fn entry_bytes(&self, entry: &Entry) -> &[u8] {
        &self.bytes()[entry.start as usize..][..entry.size as usize]
    }

    /// The offset after the last one of an entry.
    pub(crate) fn next_offset_of(&self, entry: &Entry) -> u64 {
        // invariant: its header was read a moment ago.
        BatchHeader::parse(self.entry_bytes(entry)).map_or(0, |header| header.next_offset())
    }

    /// The probes of the records of entry `i`; none unless its verdict is [`Verdict::Judge`].
    pub(crate) fn probes_of(&self, i: usize) -> &[Probe] {
        let end = self.entries.get(i + 1).map_or(self.probes.len(), |next| next.probes as usize);
        &self.probes[self.entries[i].probes as usize..end]
    }

    /// Record `i` of a compressed batch whose bodies start at `first`, as far as it takes to write it again.
    pub(crate) fn body(&self, first: u32, i: usize) -> RecordRef<'_> {
        let at = first as usize + i;
        let body = self.bodies[at];
        RecordRef {
            offset: body.offset,
            timestamp: body.timestamp,
            key: None,
            value: None,
            headers: Default::default(),
            body: &self.area[body.start as usize..][..body.size as usize],
        }
    }

    /// Whether it has tombstones whose time is over.
    pub(crate) fn loses_tombstones(&self) -> bool {
        let expired = |probe: &Probe| probe.marks.has(Marks::EXPIRED);
        let in_entry = |(i, entry): (usize, &Entry)| entry.traits.has(Traits::TOMBSTONES_EXPIRED) && self.probes_of(i).iter().any(expired);
        self.entries.iter().enumerate().any(in_entry)
    }

    /// One bit a probe: whether its record is live.
    pub(crate) fn live_bits(&self) -> Vec<u64> {
        let mut bits = vec![0; self.probes.len().div_ceil(64)];
        for (i, _) in self.probes.iter().enumerate().filter(|(_, probe)| probe.marks.has(Marks::LIVE)) {
            bits[i / 64] |= 1 << (i % 64);
        }
        bits
    }

    /// Marks the records whose bits are set.
    pub(crate) fn mark_live(&mut self, bits: &[u64]) {
        for (probes, word) in self.probes.chunks_mut(64).zip(bits) {
            let live = probes.iter_mut().enumerate().filter(|(i, _)| word >> i & 1 == 1);
            live.for_each(|(_, probe)| probe.marks.set(Marks::LIVE));
        }
    }

    /// Makes room for `size` bytes that begin at `position` of a file, and forgets all that it had.
    pub(crate) fn begin(&mut self, position: u32, size: usize) -> std::io::Result<()> {
        if self.buffer.capacity() > BUFFER_BYTES_KEPT && size + BUFFER_ALIGN <= BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        if self.area.capacity() > BUFFER_BYTES_KEPT {
            self.area = Vec::new();
        }
        room::resize(&mut self.buffer, size + BUFFER_ALIGN)?;
        self.pad = self.buffer.as_ptr().align_offset(BUFFER_ALIGN).min(BUFFER_ALIGN);
        self.buffer.truncate(self.pad + size);
        self.position = position;
        self.entries.clear();
        self.probes.clear();
        self.bodies.clear();
        self.counts = ScanCounts::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b04_the_buffer_of_a_large_batch_is_given_back_by_the_next_chunk() {
        let mut chunk = Chunk::default();
        chunk.begin(0, 64 << 10).unwrap();
        assert_eq!(chunk.bytes().len(), 64 << 10);
        chunk.begin(0, BUFFER_BYTES_KEPT + 1).unwrap();
        chunk.area = Vec::with_capacity(BUFFER_BYTES_KEPT + 1);
        assert!(chunk.buffer.capacity() > BUFFER_BYTES_KEPT);
        chunk.begin(0, 64 << 10).unwrap();
        assert_eq!(chunk.bytes().len(), 64 << 10);
        assert!(chunk.buffer.capacity() <= BUFFER_BYTES_KEPT && chunk.area.capacity() <= BUFFER_BYTES_KEPT);
    }
}
