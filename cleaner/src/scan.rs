//! How a chunk is filled: read, verified, decoded and hashed. Needs nothing that depends on newer chunks, so any number of
//! chunks may be at this stage at once.
//!
//! There are two loops, the one over headers and checksums, the other over records and keys: small ones that a processor
//! has several turns of under way at the same time. What they go over is in its cache.

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::{BatchHeader, DecodeError, Decoder, RecordRef};
use keeplog_engine::storage::{File, read_exact_at};
use keeplog_engine::{Error, Result};

use crate::chunk::{Body, Chunk, Entry, Marks, Probe, Traits, Verdict};
use crate::dedup::{Place, Shelf};
use crate::hash::KeyHasher;
use crate::plan::Rules;
use crate::source::Source;
use crate::transactions::LazyTransactions;
use crate::walk::{OP, Order, corrupt, corrupt_order};

/// About so much of a chunk is kept as it was decompressed, so that it need not be decompressed again. A chunk of zeros is
/// small, and decompresses to gigabytes.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 4 << 10 } else { 8 << 20 };

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
        order: Order,
        chunk: &mut Chunk,
    ) -> Result<()> {
        let io = |e| Error::io(OP, source.path(), e).position_at(u64::from(start));
        chunk.begin(start, (end - start) as usize).map_err(io)?;
        let pad = chunk.pad;
        read_exact_at(file, &mut chunk.buffer[pad..], u64::from(start)).map_err(io)?;
        self.entries(source, order, chunk)?;
        self.records(source, chunk)
    }

    /// Offset of record `record` of an entry that was scanned.
    pub(crate) fn offset_of(&mut self, chunk: &Chunk, entry: &Entry, record: usize) -> Result<u64, DecodeError> {
        let found = self.decoder.records(chunk.entry_bytes(entry))?.nth(record);
        // invariant: it was counted a moment ago, from the same bytes.
        found.unwrap_or(Err(DecodeError::LeftOver(0))).map(|record| record.offset)
    }

    /// The entries of the chunk that was read: where they are, that they are sound, and what becomes of their records.
    fn entries(&self, source: &dyn Source, mut order: Order, chunk: &mut Chunk) -> Result<()> {
        let Chunk { buffer, pad, position, entries, first_offset, next_offset, .. } = chunk;
        let bytes = &buffer[*pad..];
        let legacy_expired = !self.rules.keeps_legacy_tombstones(source.modified_ms());
        let mut at = 0;
        while at < bytes.len() {
            let (rest, position) = (&bytes[at..], *position + at as u32);
            let header = match BatchHeader::parse_v2(rest) {
                Some(header) => header,
                None => BatchHeader::parse(rest).map_err(|e| corrupt(source, position, e))?,
            };
            let Some(entry) = rest.get(..header.size as usize) else {
                let short = DecodeError::Truncated { needed: u64::from(header.size), available: rest.len() as u64 };
                return Err(corrupt(source, position, short));
            };
            header.verify_crc(entry).map_err(|e| corrupt(source, position, e))?;
            order.check(&header).map_err(|detail| corrupt_order(source, position, &detail))?;
            if at == 0 {
                *first_offset = header.base_offset;
            }
            *next_offset = header.next_offset();
            let verdict = self.verdict(&header)?;
            let traits = self.traits(&header, legacy_expired);
            entries.push(Entry { start: at as u32, size: header.size, probes: 0, bodies: 0, verdict, traits });
            at += entry.len();
        }
        Ok(())
    }

    #[inline]
    fn traits(&self, header: &BatchHeader, legacy_expired: bool) -> Traits {
        let horizon = header.delete_horizon_ms();
        let expired = match horizon {
            _ if header.magic < 2 => legacy_expired,
            Some(horizon) => horizon <= self.rules.now_ms,
            None => is_planted(Defect::DropTombstonesEarly),
        };
        Traits::default()
            .with(Traits::KEEPS_EMPTY, self.rules.keeps_empty(header))
            .with(Traits::HAS_HORIZON, horizon.is_some())
            .with(Traits::LEGACY, header.magic < 2)
            .with(Traits::COMPRESSED, header.magic == 2 && !header.is_plain())
            .with(Traits::TOMBSTONES_EXPIRED, expired)
    }

    #[inline]
    fn verdict(&self, header: &BatchHeader) -> Result<Verdict> {
        if header.is_control() || header.is_transactional() { self.verdict_in_transaction(header) } else { Ok(Verdict::Judge) }
    }

    fn verdict_in_transaction(&self, header: &BatchHeader) -> Result<Verdict> {
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
        Ok(if self.transactions.get()?.is_aborted(header) { Verdict::Drop } else { Verdict::Judge })
    }

    /// The records of the entries that are judged by their keys, and how many there are in the others.
    fn records(&mut self, source: &dyn Source, chunk: &mut Chunk) -> Result<()> {
        let Chunk { buffer, pad, position, entries, probes, bodies, area, counts, first_offset, .. } = chunk;
        let bytes = &buffer[*pad..];
        // What an earlier chunk has left there that could not be read to its end.
        self.decoder.exchange_kept(area);
        if entries.iter().any(|entry| entry.traits.has(Traits::LEGACY)) {
            *first_offset = self.first_offsets(source, bytes, *position, entries)?;
        }
        for entry in entries {
            (entry.probes, entry.bodies) = (probes.len() as u32, bodies.len() as u32);
            let own = &bytes[entry.start as usize..][..entry.size as usize];
            let done = match entry.verdict {
                Verdict::Judge => self.judge(&mut entry.traits, own, probes, bodies),
                // Dropped unread, unless its header stays.
                Verdict::Drop if !entry.traits.has(Traits::KEEPS_EMPTY) => Ok(()),
                _ => BatchHeader::parse(own).map(|header| counts.records_read += header.count.max(0) as u64),
            };
            done.map_err(|e| corrupt(source, *position + entry.start, e))?;
        }
        self.decoder.exchange_kept(area);
        counts.records_read += probes.len() as u64;
        counts.records_keyless = probes.iter().filter(|probe| probe.marks.is_keyless()).count() as u64;
        Ok(())
    }

    /// The first offset of the entries of a chunk with some of an old format, whose wrappers do not say where they begin: that
    /// each begins behind the one before it only shows here.
    #[cold]
    fn first_offsets(&mut self, source: &dyn Source, bytes: &[u8], position: u32, entries: &[Entry]) -> Result<u64> {
        let (mut first, mut next) = (None, source.base_offset());
        for entry in entries {
            let (own, at) = (&bytes[entry.start as usize..][..entry.size as usize], position + entry.start);
            let header = BatchHeader::parse(own).map_err(|e| corrupt(source, at, e))?;
            let begins = self.decoder.base_offset(own).map_err(|e| corrupt(source, at, e))?;
            if begins < next {
                let format = header.magic;
                let why = format!(
                    "the entry of format v{format} has offsets from {begins} on, but those below {next} were there before: \
                     it was written twice, or with wrong offsets, and what it holds can't be told from what it repeats"
                );
                return Err(corrupt_order(source, at, &why));
            }
            first.get_or_insert(begins);
            next = header.next_offset();
        }
        Ok(first.unwrap_or(next))
    }

    /// The probes of one entry, and its bodies, if it is compressed and there is room to keep them.
    #[inline]
    fn judge(&mut self, traits: &mut Traits, entry: &[u8], probes: &mut Vec<Probe>, bodies: &mut Vec<Body>) -> Result<(), DecodeError> {
        let expired = traits.has(Traits::TOMBSTONES_EXPIRED);
        let probing = Probing { rules: self.rules, hasher: self.hasher, shelf: self.shelf, expired };
        let Some(header) = BatchHeader::parse_v2(entry) else {
            for record in self.decoder.records(entry)? {
                probes.push(probing.probe(&record?));
            }
            return Ok(());
        };
        if traits.has(Traits::COMPRESSED) && self.decoder.kept_bytes() < KEPT_BYTES_MAX {
            *traits = traits.with(Traits::KEPT, true);
            return self.decoder.visit_kept(&header, entry, |record, at| {
                probes.push(probing.probe(record));
                bodies.push(body(record, at)?);
                Ok(())
            });
        }
        self.decoder.visit(&header, entry, |record| {
            probes.push(probing.probe(record));
            Ok(())
        })
    }
}

/// What it takes to write a record again whose body is at `at` of the chunk's area.
fn body(record: &RecordRef<'_>, at: usize) -> Result<Body, DecodeError> {
    // One batch is kept beyond the bound, whatever its limit is, so it is checked.
    let within = |bytes: usize| u32::try_from(bytes).map_err(|_| DecodeError::TooLarge { limit: u64::from(u32::MAX) });
    Ok(Body { offset: record.offset, timestamp: record.timestamp, start: within(at)?, size: within(record.body.len())? })
}

/// What the records of one entry are looked at with.
struct Probing<'a> {
    rules: &'a Rules,
    hasher: &'a KeyHasher,
    shelf: Shelf,
    /// Nobody needs its tombstones any more.
    expired: bool,
}

impl Probing<'_> {
    // Inlined into its loops, which then make of a record only what is looked at here.
    #[inline(always)]
    fn probe(&self, record: &RecordRef<'_>) -> Probe {
        let mut marks = Marks::default();
        let mut place = Place::default();
        if record.value.is_none() {
            marks.set(Marks::NULL);
        }
        if record.offset >= self.rules.end {
            marks.set(Marks::BEYOND);
        } else if let Some(key) = record.key {
            place = Place::new(self.hasher.hash(key));
            // What the decision will look at has the rest of the chunk to come from memory.
            self.shelf.prefetch(place);
            marks.set(Marks::KEYED);
            if record.offset < self.rules.first_dirty {
                marks.set(Marks::ASKS);
            }
            if record.value.is_none() && self.expired {
                marks.set(Marks::EXPIRED);
            }
        }
        Probe::new(place, marks)
    }
}
