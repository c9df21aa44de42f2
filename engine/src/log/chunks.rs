//! Pieces of a log that can be read side by side: for those who go over all of it and need not do so in its order.
//!
//! A piece is cut where the offset index says that a batch begins. Nothing vouches for an index, so the trust is checked:
//! a piece must end exactly where a batch ends. Pieces that fit are a chain of batches from the start of each segment to
//! its end, as [`Batches`](super::Batches) would have found it.

use std::ops::Range;
use std::sync::Arc;

use super::Log;
use super::iter::{check_inside, damage, goes_back};
use crate::record::{BatchHeader, DecodeError};
use crate::room;
use crate::scan::SCAN_BUFFER_BYTES;
use crate::segment::Segment;
use crate::segment_set::SegmentSet;
use crate::storage::{File, read_exact_at};
use crate::{Error, Result};

/// Reading into memory at a multiple of this is several times faster on some processors.
const BUFFER_ALIGN: usize = 64;
/// Buffers beyond this are given back by the next piece that needs less.
const BUFFER_BYTES_KEPT: usize = 8 << 20;
/// Where the index leaves a gap of more pieces than this, batches say where to cut.
const SPARSE: u32 = 4;

impl Log {
    /// Where the batches lie from the one that holds `offset` to what is the end offset now, in pieces of about `piece_bytes`
    /// (more where one batch is larger), the newest first. Never waits for a writer or the cleaner.
    ///
    /// # Errors
    /// `OutOfRange` if `offset` is below the start offset or above the end offset.
    pub fn chunks_from(&self, offset: u64, piece_bytes: u32) -> Result<Chunks> {
        let limit = self.end_offset();
        self.check_readable(offset, limit)?;
        let set = self.segments();
        let first = set.position_of(offset);
        let first_position = set.all()[first].position_for(offset)?;
        let left = set.all().len();
        Ok(Chunks { set, first, first_position, left, at_hand: None, from: offset, limit, piece_bytes: piece_bytes.max(1) })
    }
}

/// The pieces of a log, from the newest to the oldest. Made by [`Log::chunks_from`]. Ends after an error.
#[derive(Debug)]
pub struct Chunks {
    set: Arc<SegmentSet>,
    /// The oldest segment that is asked for, and where to begin there.
    first: usize,
    first_position: u32,
    /// Segments from here on are done, or at hand.
    left: usize,
    at_hand: Option<AtHand>,
    from: u64,
    limit: u64,
    piece_bytes: u32,
}

#[derive(Debug)]
struct AtHand {
    segment: Arc<Segment>,
    file: Arc<dyn File>,
    /// Where its pieces that are left begin and end, ascending.
    cuts: Vec<u32>,
}

impl Chunks {
    fn step(&mut self) -> Result<Option<Chunk>> {
        loop {
            if let Some(AtHand { segment, file, cuts }) = &mut self.at_hand
                && let [.., start, end] = cuts[..]
            {
                cuts.pop();
                let (set, segment, file) = (Arc::clone(&self.set), Arc::clone(segment), Arc::clone(file));
                return Ok(Some(Chunk { set, segment, file, start, end, from: self.from, limit: self.limit }));
            }
            self.at_hand = None;
            if self.left == self.first {
                return Ok(None);
            }
            self.left -= 1;
            self.at_hand = Some(self.begin(self.left)?);
        }
    }

    fn begin(&self, at: usize) -> Result<AtHand> {
        let segment = Arc::clone(&self.set.all()[at]);
        let file = segment.file()?;
        // invariant: positions of batches have 31 bits.
        let size = u32::try_from(segment.size_bytes()).map_err(|_| Error::corrupt("read", &segment.path(), 0, "it is too large"))?;
        let start = if at == self.first { self.first_position.min(size) } else { 0 };
        let cuts = self.cut(&segment, &*file, start, size)?;
        Ok(AtHand { segment, file, cuts })
    }

    /// Ascending positions from `start` to `size`, where the index says that batches begin.
    fn cut(&self, segment: &Segment, file: &dyn File, start: u32, size: u32) -> Result<Vec<u32>> {
        let mut cuts = vec![start];
        let mut known = Vec::new();
        if size - start > self.piece_bytes {
            known.extend(segment.offset_entries()?.into_iter().map(|entry| entry.position).filter(|p| (start + 1..size).contains(p)));
            if !known.is_sorted() {
                known.clear();
            }
        }
        known.push(size);
        for position in known {
            let last = cuts[cuts.len() - 1];
            if position - last > self.piece_bytes.saturating_mul(SPARSE) {
                self.cut_by_headers(segment, file, position, &mut cuts)?;
            }
            if position - last >= self.piece_bytes || (position == size && size > last) {
                cuts.push(position);
            }
        }
        Ok(cuts)
    }

    /// Cuts from the last of `cuts` to `to` by the batches themselves.
    fn cut_by_headers(&self, segment: &Segment, file: &dyn File, to: u32, cuts: &mut Vec<u32>) -> Result<()> {
        let mut last = cuts[cuts.len() - 1];
        let mut scanner = segment.scan(file, last.into(), SCAN_BUFFER_BYTES);
        while scanner.position() < u64::from(to) {
            let Some(entry) = scanner.next() else { break };
            let entry = entry.map_err(|e| e.in_file("read", &segment.path()))?;
            let position = entry.position as u32;
            if position - last >= self.piece_bytes {
                cuts.push(position);
                last = position;
            }
        }
        Ok(())
    }
}

impl Iterator for Chunks {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.step().transpose();
        if !matches!(result, Some(Ok(_))) {
            (self.left, self.at_hand) = (self.first, None);
        }
        result
    }
}

/// Where a piece of a log lies: whole batches of one segment.
#[derive(Debug)]
pub struct Chunk {
    set: Arc<SegmentSet>,
    segment: Arc<Segment>,
    file: Arc<dyn File>,
    start: u32,
    end: u32,
    from: u64,
    limit: u64,
}

impl Chunk {
    /// Reads it into `buffer`: its batches, as far as they are asked for, their checksums verified and their offsets rising.
    pub fn read(&self, buffer: &mut ChunkBuffer) -> Result<()> {
        let io = |e| Error::io("read", &self.segment.path(), e).position_at(self.start.into());
        let room = buffer.begin((self.end - self.start) as usize).map_err(io)?;
        read_exact_at(&*self.file, room, self.start.into()).map_err(io)?;
        let bytes = buffer.bytes();
        let segments = self.set.all();
        let next = segments.get(self.set.position_of(self.segment.base_offset()) + 1).map(|next| next.base_offset());
        let (mut at, mut start, mut offsets, mut after) = (0, 0, None::<Range<u64>>, 0);
        let mut end = None;
        while at < bytes.len() {
            let rest = &bytes[at..];
            // No checksum covers offsets: also those of what is not asked for must rise, or it is not known to be that.
            let within = self.segment.base_offset().max(after)..next.unwrap_or(u64::MAX);
            let Entry { base_offset, last_offset, size } = match self.sound_entry(rest, &within) {
                Some(entry) => entry,
                None => self.entry(rest, u64::from(self.start) + at as u64, next, after)?,
            };
            after = last_offset + 1;
            let from = at;
            at += size;
            if last_offset >= self.limit {
                end.get_or_insert(from);
            } else if last_offset < self.from {
                start = at;
            } else {
                offsets.get_or_insert(base_offset..base_offset).end = after;
            }
        }
        buffer.reaches_limit = end.is_some();
        (buffer.start, buffer.end, buffer.offsets) = (buffer.pad + start, buffer.pad + end.unwrap_or(at), offsets);
        Ok(())
    }

    /// The v2 batch that `rest` begins with, if nothing is wrong with it: [`Chunk::entry`] without reasons, for the loop over
    /// all of them, and inlined there, so that its header stays in registers.
    #[inline(always)]
    fn sound_entry(&self, rest: &[u8], within: &Range<u64>) -> Option<Entry> {
        let header = BatchHeader::parse_v2(rest)?;
        let entry = rest.get(..header.size as usize)?;
        let is_within = header.base_offset >= within.start && header.last_offset < within.end;
        let is_sound = is_within && (!self.asks_for(header.last_offset) || header.verify_crc(entry).is_ok());
        is_sound.then_some(Entry { base_offset: header.base_offset, last_offset: header.last_offset, size: entry.len() })
    }

    /// The entry of any format that `rest`, which is at `position` of its segment, begins with.
    #[cold]
    fn entry(&self, rest: &[u8], position: u64, next: Option<u64>, after: u64) -> Result<Entry> {
        let broken = |cause| damage(&self.set, &self.segment, position, cause);
        let header = BatchHeader::parse(rest).map_err(broken)?;
        let BatchHeader { base_offset, last_offset, size, .. } = header;
        let truncated = || broken(DecodeError::Truncated { needed: size.into(), available: rest.len() as u64 });
        let entry = rest.get(..size as usize).ok_or_else(truncated)?;
        check_inside(&self.set, &self.segment, next, (&header, entry), position)?;
        if base_offset < after {
            return Err(goes_back(&self.segment, position, base_offset, after));
        }
        if self.asks_for(last_offset) {
            header.verify_crc(entry).map_err(broken)?;
        }
        Ok(Entry { base_offset, last_offset, size: entry.len() })
    }

    /// Whether the batch that ends with this offset is asked for.
    #[inline]
    fn asks_for(&self, last_offset: u64) -> bool {
        (self.from..self.limit).contains(&last_offset)
    }
}

/// An entry, as far as a piece has to know it.
struct Entry {
    base_offset: u64,
    last_offset: u64,
    size: usize,
}

/// The bytes of a piece. Its memory is reused for the next one.
#[derive(Debug, Default)]
pub struct ChunkBuffer {
    buffer: Vec<u8>,
    /// Where in `buffer` aligned memory starts.
    pad: usize,
    /// Where in `buffer` the batches lie that are asked for.
    start: usize,
    end: usize,
    offsets: Option<Range<u64>>,
    reaches_limit: bool,
}

impl ChunkBuffer {
    /// The batches, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// From the first offset of the first batch to the one after the last; `None` without batches. That pieces do not overlap
    /// is for those to check who see them in their order.
    #[must_use]
    pub fn offsets(&self) -> Option<Range<u64>> {
        self.offsets.clone()
    }

    /// Whether it ends before a batch that is not below what was the end of the log: nothing that is newer can be.
    #[must_use]
    pub fn reaches_limit(&self) -> bool {
        self.reaches_limit
    }

    /// Makes room for `size` bytes.
    fn begin(&mut self, size: usize) -> std::io::Result<&mut [u8]> {
        if self.buffer.capacity() > BUFFER_BYTES_KEPT && size + BUFFER_ALIGN <= BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        room::resize(&mut self.buffer, size + BUFFER_ALIGN)?;
        self.pad = self.buffer.as_ptr().align_offset(BUFFER_ALIGN).min(BUFFER_ALIGN);
        (self.start, self.end, self.offsets) = (self.pad, self.pad + size, None);
        Ok(&mut self.buffer[self.pad..self.pad + size])
    }
}
