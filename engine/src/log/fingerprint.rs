//! By what a log is known again, for those who keep something beside it that was made of its records.
//!
//! Nothing of this proves that two logs are the same: that takes reading them. What it does see: another length of any
//! segment, as a pass of the cleaner, a cut or a copy of another time leave it; another end of one, where each batch has its
//! offsets, its times and a checksum of its own; another leader, under whom alone brokers let histories part. A truncation
//! by this engine, after which the same bytes might come again with others before them, removes what is kept beside.

use super::Log;
use crate::checkpoint::EpochEntry;
use crate::scan::SCAN_BUFFER_BYTES;
use crate::segment::Segment;
use crate::storage::read_exact_at;
use crate::{Error, ErrorKind, Result};

/// So many bytes at the end of each segment are looked at.
const TAIL_BYTES: u64 = 4 << 10;
const HEAD_BYTES: usize = 24;
const SEGMENT_BYTES: usize = 20;
const EPOCH_BYTES: usize = 12;

/// What a log is known by, below an offset. Made by [`Log::fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    start_offset: u64,
    end_offset: u64,
    segments: Vec<SegmentMark>,
    epochs: Vec<EpochEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentMark {
    base_offset: u64,
    /// Of the last one: as far as it lies below the end offset.
    bytes: u64,
    tail_crc: u32,
}

impl Log {
    /// What the log is known by below `end_offset`, which must lie between two batches. Reads a few pages of each segment.
    ///
    /// # Errors
    /// `OutOfRange` if the log ends before `end_offset` or starts above it, and if a batch reaches across it.
    pub fn fingerprint(&self, end_offset: u64) -> Result<Fingerprint> {
        let start_offset = self.start_offset();
        self.check_readable(end_offset, self.end_offset())?;
        let set = self.segments();
        let below = set.all().partition_point(|segment| segment.base_offset() < end_offset);
        let mut segments = Vec::with_capacity(below);
        for (at, segment) in set.all()[..below].iter().enumerate() {
            let bytes = if at + 1 == below { self.position_of(segment, end_offset)? } else { segment.size_bytes() };
            segments.push(SegmentMark { base_offset: segment.base_offset(), bytes, tail_crc: tail_crc(segment, bytes)? });
        }
        let epochs = self.inner.writer().epochs.entries().iter().filter(|entry| entry.start_offset < end_offset).copied().collect();
        Ok(Fingerprint { start_offset, end_offset, segments, epochs })
    }

    /// Where in `segment` the batches end that lie below `offset`.
    fn position_of(&self, segment: &Segment, offset: u64) -> Result<u64> {
        let file = segment.file()?;
        let mut scanner = segment.scan(&*file, segment.position_for(offset.saturating_sub(1))?.into(), SCAN_BUFFER_BYTES);
        let mut position = scanner.position();
        while let Some(entry) = scanner.next() {
            let entry = entry.map_err(|e| e.in_file("read", &segment.path()))?;
            if entry.header.last_offset >= offset {
                if entry.header.base_offset < offset {
                    let detail = "a batch reaches across this offset";
                    return Err(Error::new(ErrorKind::OutOfRange, "take the fingerprint of", detail).at(self.path()).offset_at(offset));
                }
                break;
            }
            position = entry.position + u64::from(entry.header.size);
        }
        Ok(position)
    }
}

fn tail_crc(segment: &Segment, end: u64) -> Result<u32> {
    let start = end.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; (end - start) as usize];
    if end > 0 {
        read_exact_at(&*segment.file()?, &mut tail, start).map_err(|e| Error::io("read", &segment.path(), e).position_at(start))?;
    }
    Ok(crc32c::crc32c(&tail))
}

impl Fingerprint {
    /// The offset below which it was taken.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.end_offset
    }

    /// The first offset of the log when it was taken.
    #[must_use]
    pub fn start_offset(&self) -> u64 {
        self.start_offset
    }

    /// Bytes of the log below [`Fingerprint::end_offset`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// As bytes, to be kept.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { start_offset, end_offset, segments, epochs } = self;
        let mut out = Vec::with_capacity(HEAD_BYTES + segments.len() * SEGMENT_BYTES + epochs.len() * EPOCH_BYTES);
        out.extend_from_slice(&start_offset.to_be_bytes());
        out.extend_from_slice(&end_offset.to_be_bytes());
        // invariant: as many segments have names of four billion files.
        out.extend_from_slice(&(segments.len() as u32).to_be_bytes());
        out.extend_from_slice(&(epochs.len() as u32).to_be_bytes());
        for segment in segments {
            out.extend_from_slice(&segment.base_offset.to_be_bytes());
            out.extend_from_slice(&segment.bytes.to_be_bytes());
            out.extend_from_slice(&segment.tail_crc.to_be_bytes());
        }
        for epoch in epochs {
            out.extend_from_slice(&epoch.epoch.to_be_bytes());
            out.extend_from_slice(&epoch.start_offset.to_be_bytes());
        }
        out
    }

    /// What was kept; `None` if these bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let (segment_count, epoch_count) = (u64::from(u32_at(head, 16)), u64::from(u32_at(head, 20)));
        if rest.len() as u64 != segment_count * SEGMENT_BYTES as u64 + epoch_count * EPOCH_BYTES as u64 {
            return None;
        }
        let (segments, epochs) = rest.split_at(segment_count as usize * SEGMENT_BYTES);
        let segment = |b: &[u8]| SegmentMark { base_offset: u64_at(b, 0), bytes: u64_at(b, 8), tail_crc: u32_at(b, 16) };
        let epoch = |b: &[u8]| EpochEntry { epoch: u32_at(b, 0), start_offset: u64_at(b, 4) };
        Some(Self {
            start_offset: u64_at(head, 0),
            end_offset: u64_at(head, 8),
            segments: segments.chunks_exact(SEGMENT_BYTES).map(segment).collect(),
            epochs: epochs.chunks_exact(EPOCH_BYTES).map(epoch).collect(),
        })
    }

    /// The first thing in which `now` differs, in words; `None` if it is the same log.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.start_offset != now.start_offset {
            return Some(format!("the log started at offset {}, and starts at {} now", self.start_offset, now.start_offset));
        }
        if self.end_offset != now.end_offset {
            return Some(format!("it is of offset {}, not of {}", self.end_offset, now.end_offset));
        }
        if let Some((then, now)) = self.segments.iter().zip(&now.segments).find(|(then, now)| then != now) {
            let base = then.base_offset;
            return Some(if base != now.base_offset {
                format!("where segment {base} was there is segment {}", now.base_offset)
            } else if then.bytes != now.bytes {
                format!("segment {base} had {} bytes, and has {}", then.bytes, now.bytes)
            } else {
                format!("segment {base} ends otherwise than it did")
            });
        }
        if self.segments.len() != now.segments.len() {
            return Some(format!("there were {} segments, and are {}", self.segments.len(), now.segments.len()));
        }
        (self.epochs != now.epochs).then(|| "its leader epochs are others".into())
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests;
