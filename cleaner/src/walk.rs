//! Ascending over the headers of a segment, without reading what is between them where it can be helped.

use keeplog_engine::record::{BatchHeader, DecodeError, HEADER_V2_BYTES};
use keeplog_engine::room;
use keeplog_engine::storage::{File, read_full_at};
use keeplog_engine::{Error, ErrorKind, Result};

use crate::source::Source;

/// What errors say was being done.
pub(crate) const OP: &str = "clean";

const WINDOW_BYTES: usize = 64 << 10;
/// Behind an entry that a window can't hold, only as much as headers are likely to need.
const PEEK_BYTES: usize = 4 << 10;

/// Checks that offsets rise from entry to entry and stay in their segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// No offset below this may follow.
    next: u64,
    /// All offsets are below this.
    limit: u64,
}

impl Order {
    /// For entries of offsets `next..limit`.
    pub(crate) fn new(next: u64, limit: u64) -> Self {
        Self { next, limit }
    }

    /// No offset below this may follow.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Takes the next entry; says what is wrong with its offsets.
    #[inline]
    pub(crate) fn check(&mut self, header: &BatchHeader) -> Result<(), String> {
        // The first offset of a v0 or v1 wrapper is not known from its header.
        if header.base_offset < self.next || header.last_offset >= self.limit {
            return Err(self.fault(header.base_offset, header.last_offset));
        }
        self.next = header.next_offset();
        Ok(())
    }

    #[cold]
    fn fault(&self, base_offset: u64, last_offset: u64) -> String {
        if base_offset < self.next {
            format!("offset {base_offset} follows, but offsets from {} on are expected", self.next)
        } else {
            format!("offset {last_offset} is not below {}, where the next segment begins", self.limit)
        }
    }
}

/// Walks the headers of the entries in a byte range of one file.
pub(crate) struct HeaderWalk<'a> {
    source: &'a dyn Source,
    file: &'a dyn File,
    position: u32,
    end: u32,
    window: Vec<u8>,
    /// Where `window` begins in the file.
    window_position: u32,
    jumped: bool,
}

impl<'a> HeaderWalk<'a> {
    /// A walk over `start..end`; `start` is the start of an entry.
    pub(crate) fn new(source: &'a dyn Source, file: &'a dyn File, start: u32, end: u32) -> Self {
        Self { source, file, position: start, end, window: Vec::new(), window_position: start, jumped: false }
    }

    /// Position and header of the next entry, which lies in the range as a whole; `None` at the end of the range.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, BatchHeader)>> {
        // Nearly always it is in the window, and of v2.
        let at = self.position.wrapping_sub(self.window_position) as usize;
        if let Some(header) = self.window.get(at..).and_then(BatchHeader::parse_v2)
            && header.size <= self.end - self.position
        {
            return Ok(Some(self.step(header)));
        }
        self.next_anywhere()
    }

    fn next_anywhere(&mut self) -> Result<Option<(u32, BatchHeader)>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let position = self.position;
        let left = self.end - position;
        let bytes = self.bytes(position, left.min(HEADER_V2_BYTES as u32))?;
        let header = BatchHeader::parse(bytes).map_err(|e| corrupt(self.source, position, e))?;
        if header.size > left {
            let short = DecodeError::Truncated { needed: u64::from(header.size), available: u64::from(left) };
            return Err(corrupt(self.source, position, short));
        }
        Ok(Some(self.step(header)))
    }

    /// Goes over the entry at hand.
    #[inline]
    fn step(&mut self, header: BatchHeader) -> (u32, BatchHeader) {
        let position = self.position;
        self.jumped = header.size as usize >= WINDOW_BYTES;
        self.position = position + header.size;
        (position, header)
    }

    /// The bytes of an entry that the walk has met.
    pub(crate) fn entry(&mut self, position: u32, header: &BatchHeader) -> Result<&[u8]> {
        self.bytes(position, header.size)
    }

    /// `size` bytes of the file, through the window.
    fn bytes(&mut self, position: u32, size: u32) -> Result<&[u8]> {
        let size = size as usize;
        let at = position.checked_sub(self.window_position).map_or(usize::MAX, |at| at as usize);
        if at <= self.window.len() && self.window.len() - at >= size {
            return Ok(&self.window[at..at + size]);
        }
        let usual = if self.jumped { PEEK_BYTES } else { WINDOW_BYTES };
        let wanted = usual.max(size).min((self.end - position) as usize);
        let io = |e| Error::io(OP, self.source.path(), e).position_at(u64::from(position));
        room::resize(&mut self.window, wanted).map_err(io)?;
        self.window_position = position;
        let read = read_full_at(self.file, &mut self.window, u64::from(position)).map_err(io)?;
        self.window.truncate(read);
        if read < size {
            let short = DecodeError::Truncated { needed: size as u64, available: read as u64 };
            return Err(corrupt(self.source, position, short));
        }
        Ok(&self.window[..size])
    }
}

/// Damage in the file of `source`.
pub(crate) fn corrupt(source: &dyn Source, position: u32, cause: DecodeError) -> Error {
    if let DecodeError::OutOfMemory { .. } = cause {
        return Error::new(ErrorKind::OutOfMemory, OP, cause.to_string()).at(source.path()).position_at(position.into()).caused_by(cause);
    }
    Error::corrupt(OP, source.path(), u64::from(position), format!("{cause}; run verify")).caused_by(cause)
}

/// Damage in the file of `source` that is not in one entry alone.
pub(crate) fn corrupt_order(source: &dyn Source, position: u32, detail: &str) -> Error {
    Error::corrupt(OP, source.path(), u64::from(position), format!("{detail}; run verify"))
}
