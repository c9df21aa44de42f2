//! One chunk of a segment: read, verified, decoded and hashed. Needs nothing that depends on newer chunks, so any
//! number of chunks may be at this stage at once.

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::{BatchHeader, Codec, DecodeError, Decoder, RecordRef};
use keeplog_engine::storage::{File, read_exact_at};
use keeplog_engine::{Error, Result};

use crate::dedup::{Place, Shelf};
use crate::hash::KeyHasher;
use crate::plan::Rules;
use crate::source::Source;
use crate::transactions::LazyTransactions;
use crate::walk::{OP, Order, corrupt, corrupt_order};

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

/// One entry of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Where it begins in the chunk's bytes.
    pub(crate) start: u32,
    /// Its size, bytes.
    pub(crate) size: u32,
    /// The offset after its last one.
    pub(crate) next_offset: u64,
    /// Where its records begin in the chunk's probes; those of the next entry follow.
    pub(crate) probes: u32,
    /// Where its records begin in the chunk's bodies, if it was compressed.
    pub(crate) bodies: Option<u32>,
    pub(crate) verdict: Verdict,
    /// Stays even without records.
    pub(crate) keeps_empty: bool,
    pub(crate) has_horizon: bool,
    pub(crate) is_legacy: bool,
}

/// A record of a compressed batch, kept so that nothing is decompressed twice.
#[derive(Clone, Copy, Debug)]
struct Body {
    offset: u64,
    timestamp: i64,
    start: u32,
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
    buffer: Vec<u8>,
    /// Where in `buffer` aligned memory starts, and the bytes with it.
    pad: usize,
    pub(crate) position: u32,
    pub(crate) entries: Vec<Entry>,
    pub(crate) probes: Vec<Probe>,
    area: Vec<u8>,
    bodies: Vec<Body>,
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

    /// The probes of the records of entry `i`; none unless its verdict is [`Verdict::Judge`].
    pub(crate) fn probes_of(&self, i: usize) -> &[Probe] {
        let end = self.entries.get(i + 1).map_or(self.probes.len(), |next| next.probes as usize);
        &self.probes[self.entries[i].probes as usize..end]
    }

    /// Record `i` of a compressed batch whose bodies start at `first`, as far as it takes to write it again.
    pub(crate) fn body(&self, first: u32, i: usize) -> RecordRef<'_> {
        let at = first as usize + i;
        let body = self.bodies[at];
        let end = self.bodies.get(at + 1).map_or(self.area.len(), |next| next.start as usize);
        RecordRef {
            offset: body.offset,
            timestamp: body.timestamp,
            key: None,
            value: None,
            headers: Default::default(),
            body: &self.area[body.start as usize..end],
        }
    }

    fn begin(&mut self, position: u32, size: usize) {
        if self.buffer.capacity() > BUFFER_BYTES_KEPT && size + BUFFER_ALIGN <= BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        if self.area.capacity() > BUFFER_BYTES_KEPT {
            self.area = Vec::new();
        }
        self.buffer.resize(size + BUFFER_ALIGN, 0);
        self.pad = self.buffer.as_ptr().align_offset(BUFFER_ALIGN).min(BUFFER_ALIGN);
        self.buffer.truncate(self.pad + size);
        self.position = position;
        self.entries.clear();
        self.probes.clear();
        self.area.clear();
        self.bodies.clear();
        self.counts = ScanCounts::default();
    }
}

/// Fills chunks. One for each thread that does so.
pub(crate) struct Scanner<'a> {
    rules: &'a Rules,
    transactions: &'a LazyTransactions<'a>,
    hasher: &'a KeyHasher,
    decoder: Decoder,
    /// Where the decision will look for the keys, as far as that is known beforehand.
    pub(crate) shelf: Shelf,
}

impl<'a> Scanner<'a> {
    /// A scanner for a pass by `rules`.
    pub(crate) fn new(rules: &'a Rules, transactions: &'a LazyTransactions<'a>, hasher: &'a KeyHasher, batch_bytes_max: usize) -> Self {
        Self { rules, transactions, hasher, decoder: Decoder::new(batch_bytes_max), shelf: Shelf::default() }
    }

    /// Reads the bytes from `start` to `end` of `source` into `chunk`: whole entries, sound in every byte, of
    /// offsets in `order`.
    pub(crate) fn scan(
        &mut self,
        source: &dyn Source,
        file: &dyn File,
        (start, end): (u32, u32),
        mut order: Order,
        chunk: &mut Chunk,
    ) -> Result<()> {
        let size = (end - start) as usize;
        chunk.begin(start, size);
        let pad = chunk.pad;
        read_exact_at(file, &mut chunk.buffer[pad..], u64::from(start))
            .map_err(|e| Error::io(OP, source.path(), e).position_at(u64::from(start)))?;
        let keeps_legacy_tombstones = self.rules.keeps_legacy_tombstones(source.modified_ms());
        let buffer = std::mem::take(&mut chunk.buffer);
        let bytes = &buffer[pad..];
        let mut at = 0;
        while at < size {
            let position = start + at as u32;
            let header = match BatchHeader::parse_v2(&bytes[at..]) {
                Some(header) => header,
                None => BatchHeader::parse(&bytes[at..]).map_err(|e| corrupt(source, position, e))?,
            };
            let Some(entry) = bytes[at..].get(..header.size as usize) else {
                let short = DecodeError::Truncated { needed: u64::from(header.size), available: (size - at) as u64 };
                return Err(corrupt(source, position, short));
            };
            header.verify_crc(entry).map_err(|e| corrupt(source, position, e))?;
            order.check(&header).map_err(|detail| corrupt_order(source, position, &detail))?;
            if at == 0 {
                chunk.first_offset = header.base_offset;
            }
            let tombstones_expired = match header.delete_horizon_ms() {
                _ if header.magic < 2 => !keeps_legacy_tombstones,
                Some(horizon) => horizon <= self.rules.now_ms,
                None => is_planted(Defect::DropTombstonesEarly),
            };
            self.entry(&header, entry, at as u32, tombstones_expired, chunk, source)?;
            chunk.next_offset = header.next_offset();
            at += header.size as usize;
        }
        chunk.buffer = buffer;
        Ok(())
    }

    /// Offset of record `record` of an entry that was scanned.
    pub(crate) fn offset_of(&mut self, chunk: &Chunk, entry: &Entry, record: usize) -> Result<u64, DecodeError> {
        let found = self.decoder.records(chunk.entry_bytes(entry))?.nth(record);
        // invariant: it was counted a moment ago, from the same bytes.
        found.unwrap_or(Err(DecodeError::LeftOver(0))).map(|record| record.offset)
    }

    fn entry(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        start: u32,
        tombstones_expired: bool,
        chunk: &mut Chunk,
        source: &dyn Source,
    ) -> Result<()> {
        let verdict = self.verdict(header)?;
        let keeps_empty = self.rules.keeps_empty(header);
        let bodies = chunk.bodies.len() as u32;
        let compressed = header.magic == 2 && header.codec() != Ok(Codec::None);
        chunk.entries.push(Entry {
            start,
            size: header.size,
            next_offset: header.next_offset(),
            probes: chunk.probes.len() as u32,
            bodies: compressed.then_some(bodies),
            verdict,
            keeps_empty,
            has_horizon: header.delete_horizon_ms().is_some(),
            is_legacy: header.magic < 2,
        });
        match verdict {
            Verdict::Judge => {
                let position = chunk.position + start;
                self.records(header, bytes, compressed, tombstones_expired, chunk).map_err(|e| corrupt(source, position, e))?;
            }
            // Dropped unread, unless its header stays.
            Verdict::Drop if !keeps_empty => {}
            _ => chunk.counts.records_read += header.count.max(0) as u64,
        }
        Ok(())
    }

    fn verdict(&self, header: &BatchHeader) -> Result<Verdict> {
        if header.is_control() {
            if header.count == 0 {
                return Ok(Verdict::Drop);
            }
            if !self.transactions.get()?.is_discardable(header.base_offset) {
                return Ok(Verdict::Keep);
            }
            return Ok(match header.delete_horizon_ms() {
                None => Verdict::Stamp,
                Some(horizon) if horizon <= self.rules.now_ms => Verdict::Drop,
                Some(_) => Verdict::Keep,
            });
        }
        if header.is_transactional() && self.transactions.get()?.is_aborted(header) {
            return Ok(Verdict::Drop);
        }
        Ok(Verdict::Judge)
    }

    fn records(
        &mut self,
        header: &BatchHeader,
        entry: &[u8],
        compressed: bool,
        tombstones_expired: bool,
        chunk: &mut Chunk,
    ) -> Result<(), DecodeError> {
        let Chunk { probes, bodies, area, counts, .. } = chunk;
        let before = probes.len();
        let mut keyless = 0;
        let probing = Probing { rules: self.rules, hasher: self.hasher, shelf: self.shelf, tombstones_expired };
        if header.magic < 2 {
            for record in self.decoder.records(entry)? {
                probes.push(probing.probe(&record?, &mut keyless));
            }
        } else {
            self.decoder.visit(header, entry, |record| {
                probes.push(probing.probe(record, &mut keyless));
                if compressed { keep_body(record, bodies, area) } else { Ok(()) }
            })?;
        }
        counts.records_read += (probes.len() - before) as u64;
        counts.records_keyless += keyless;
        Ok(())
    }
}

/// What the records of one entry are looked at with.
struct Probing<'a> {
    rules: &'a Rules,
    hasher: &'a KeyHasher,
    shelf: Shelf,
    tombstones_expired: bool,
}

impl Probing<'_> {
    // Inlined into its loops, which then make of a record only what is looked at here.
    #[inline(always)]
    fn probe(&self, record: &RecordRef<'_>, keyless: &mut u64) -> Probe {
        let mut probe = Probe::default();
        if record.value.is_none() {
            probe.marks.set(Marks::NULL);
        }
        if record.offset >= self.rules.end {
            probe.marks.set(Marks::BEYOND);
        } else if let Some(key) = record.key {
            let place = Place::new(self.hasher.hash(key));
            // What the decision will look at has the rest of the chunk to come from memory.
            self.shelf.prefetch(place);
            (probe.tag, probe.high) = (place.tag, place.high);
            probe.marks.set(Marks::KEYED);
            if record.offset < self.rules.first_dirty {
                probe.marks.set(Marks::ASKS);
            }
            if record.value.is_none() && self.tombstones_expired {
                probe.marks.set(Marks::EXPIRED);
            }
        } else {
            *keyless += 1;
        }
        probe
    }
}

/// Keeps what it takes to write a record again.
fn keep_body(record: &RecordRef<'_>, bodies: &mut Vec<Body>, area: &mut Vec<u8>) -> Result<(), DecodeError> {
    // The area stays below the limit of one batch times the entries of a chunk: far below 4 GiB only if both are sane,
    // so it is checked.
    let start = u32::try_from(area.len()).map_err(|_| DecodeError::TooLarge { limit: u64::from(u32::MAX) })?;
    bodies.push(Body { offset: record.offset, timestamp: record.timestamp, start });
    area.extend_from_slice(record.body);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b04_the_buffer_of_a_large_batch_is_given_back_by_the_next_chunk() {
        let mut chunk = Chunk::default();
        chunk.begin(0, 64 << 10);
        assert_eq!(chunk.bytes().len(), 64 << 10);
        chunk.begin(0, BUFFER_BYTES_KEPT + 1);
        chunk.area = Vec::with_capacity(BUFFER_BYTES_KEPT + 1);
        assert!(chunk.buffer.capacity() > BUFFER_BYTES_KEPT);
        chunk.begin(0, 64 << 10);
        assert_eq!(chunk.bytes().len(), 64 << 10);
        assert!(chunk.buffer.capacity() <= BUFFER_BYTES_KEPT && chunk.area.capacity() <= BUFFER_BYTES_KEPT);
    }
}
