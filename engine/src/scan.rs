//! Walks the entries of a `.log` file in order, a buffer at a time.
//!
//! The scanner judges structure only: entries that are there as a whole, with a header that can be. Checksums
//! and records are the caller's business. It stops at the first thing that is no whole entry, and says why; what
//! that means (a torn tail, damage) depends on where it is and is decided by the caller.

use std::fmt;
use std::io;

use crate::record::{BatchHeader, DecodeError, HEADER_V2_BYTES, SCAN_PEEK_BYTES};
use crate::room;
use crate::storage::{File, read_full_at};

/// Reads positioned at a multiple of this many bytes in memory are several times faster on some processors.
const BUFFER_ALIGN: usize = 64;
const BUFFER_BYTES_MIN: usize = 4096;

/// A sensible buffer for walking whole files, in bytes.
pub const SCAN_BUFFER_BYTES: usize = 1 << 20;

/// One whole entry of a `.log` file.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Byte position of its first byte in the file.
    pub position: u64,
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
}

/// Where and why a scan ended before the end of its range.
#[derive(Debug)]
pub struct ScanError {
    /// Position of the entry that could not be read.
    pub position: u64,
    /// What is wrong there.
    pub cause: ScanCause,
}

/// What ends a scan early.
#[derive(Debug)]
pub enum ScanCause {
    /// The bytes are no whole entry; [`DecodeError::Truncated`] where the range ends inside one.
    Decode(DecodeError),
    /// The file could not be read.
    Io(io::Error),
}

impl ScanError {
    /// The engine's error for this, once the file is known.
    #[must_use]
    pub fn in_file(self, op: &'static str, path: &std::path::Path) -> crate::Error {
        match self.cause {
            ScanCause::Decode(cause) => crate::Error::corrupt(op, path, self.position, cause.to_string()).caused_by(cause),
            ScanCause::Io(cause) => crate::Error::io(op, path, cause).position_at(self.position),
        }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            ScanCause::Decode(cause) => write!(f, "at byte {}: {cause}", self.position),
            ScanCause::Io(cause) => write!(f, "at byte {}: {cause}", self.position),
        }
    }
}

/// Lends the entries of `file[start..end]` one after the other.
#[derive(Debug)]
pub struct EntryScanner<'f> {
    file: &'f dyn File,
    /// Position of the next entry.
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where in `buffer` aligned memory starts.
    pad: usize,
    /// The next entry starts at `pad + from`; valid bytes reach to `pad + filled`.
    from: usize,
    filled: usize,
    failed: bool,
}

impl<'f> EntryScanner<'f> {
    /// A scanner over `start..end` (bytes; `start` must be the start of an entry) that reads about
    /// `buffer_bytes` at a time. A larger entry grows the buffer, but never beyond what the range holds.
    #[must_use]
    pub fn new(file: &'f dyn File, start: u64, end: u64, buffer_bytes: usize) -> Self {
        let span = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let capacity = buffer_bytes.min(span).max(BUFFER_BYTES_MIN);
        let mut scanner = Self { file, position: start, end, buffer: Vec::new(), pad: 0, from: 0, filled: 0, failed: false };
        // Where there is no memory for it, the first entry says so.
        let _ = scanner.grow(capacity);
        scanner
    }

    /// Position of the next entry, or of what ended the scan.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next entry; `None` at the end of the range and after an error.
    #[allow(clippy::should_implement_trait)] // lends from its buffer, which `Iterator` can't express
    pub fn next(&mut self) -> Option<Result<Entry<'_>, ScanError>> {
        if self.failed || self.position >= self.end {
            return None;
        }
        match self.advance() {
            Ok((header, range)) => {
                let position = self.position;
                self.position += u64::from(header.size);
                Some(Ok(Entry { position, header, bytes: &self.buffer[range] }))
            }
            Err(cause) => {
                self.failed = true;
                Some(Err(ScanError { position: self.position, cause }))
            }
        }
    }

    fn advance(&mut self) -> Result<(BatchHeader, std::ops::Range<usize>), ScanCause> {
        let left = self.end - self.position;
        self.fill(HEADER_V2_BYTES)?;
        let window = &self.buffer[self.pad + self.from..self.pad + self.filled];
        let header = BatchHeader::parse(window).map_err(|e| match e {
            // The window is as long as the file allows: what is missing is missing from the range.
            DecodeError::Truncated { .. } if window.len() < SCAN_PEEK_BYTES => {
                DecodeError::Truncated { needed: SCAN_PEEK_BYTES as u64, available: left }
            }
            other => other,
        });
        let header = header.map_err(ScanCause::Decode)?;
        if u64::from(header.size) > left {
            return Err(ScanCause::Decode(DecodeError::Truncated { needed: u64::from(header.size), available: left }));
        }
        let size = header.size as usize;
        self.fill(size)?;
        if self.filled - self.from < size {
            // The file is shorter than the range: it was cut while we read.
            let available = (self.filled - self.from) as u64;
            return Err(ScanCause::Decode(DecodeError::Truncated { needed: u64::from(header.size), available }));
        }
        let start = self.pad + self.from;
        self.from += size;
        Ok((header, start..start + size))
    }

    /// Has at least `wanted` bytes of the next entry in the buffer, or all that the range holds.
    fn fill(&mut self, wanted: usize) -> Result<(), ScanCause> {
        let have = self.filled - self.from;
        let left = self.end - self.position;
        if have >= wanted || have as u64 >= left {
            return Ok(());
        }
        self.buffer.copy_within(self.pad + self.from..self.pad + self.filled, self.pad);
        self.from = 0;
        self.filled = have;
        let capacity = self.buffer.len() - self.pad;
        if wanted > capacity {
            self.grow(wanted.max(capacity * 2).min(usize::try_from(left).unwrap_or(usize::MAX))).map_err(ScanCause::Io)?;
        }
        let room = self.buffer.len() - self.pad - have;
        let take = room.min(usize::try_from(left - have as u64).unwrap_or(usize::MAX));
        let target = &mut self.buffer[self.pad + have..self.pad + have + take];
        self.filled += read_full_at(self.file, target, self.position + have as u64).map_err(ScanCause::Io)?;
        Ok(())
    }

    fn grow(&mut self, capacity: usize) -> io::Result<()> {
        let mut buffer = room::zeroed(capacity + BUFFER_ALIGN)?;
        let pad = buffer.as_ptr().align_offset(BUFFER_ALIGN).min(BUFFER_ALIGN);
        buffer.truncate(pad + capacity);
        buffer[pad..pad + self.filled].copy_from_slice(&self.buffer[self.pad..self.pad + self.filled]);
        self.buffer = buffer;
        self.pad = pad;
        Ok(())
    }
}
