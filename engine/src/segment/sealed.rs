//! The indexes of a sealed segment, read where they are asked: a lookup reads a few pages. They are not mapped, so that one
//! that is cut or lost under an open log makes reading slow, and does not end the process by a signal.

use crate::sync::{Arc, OnceLock};
use std::io;
use std::path::PathBuf;

use keeplog_index::{IndexError, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex, TxnIndex};

use super::{Place, SealedFacts};
use crate::names::{FileKind, FileState};
use crate::room;
use crate::storage::{File, OpenMode, read_exact_at};
use crate::{Error, Result};

/// Bytes read at a time: a page.
const BLOCK_BYTES: usize = 4096;
/// Bytes at the end of an index that are looked at first: reads of a live log stay near its end.
const WARM_BYTES: usize = 2 * BLOCK_BYTES;

/// The indexes of one sealed segment.
#[derive(Debug)]
pub(super) struct SealedIndexes {
    place: Place,
    base_offset: u64,
    pub(super) facts: SealedFacts,
    /// The files of offset and time index, as far as they are there, once their names may go.
    held: OnceLock<[Option<Arc<dyn File>>; 2]>,
    /// Few segments have one, and it is small.
    txn: OnceLock<TxnIndex<Vec<u8>>>,
}

impl SealedIndexes {
    pub(super) fn new(place: Place, base_offset: u64, facts: SealedFacts) -> Self {
        Self { place, base_offset, facts, held: OnceLock::new(), txn: OnceLock::new() }
    }

    /// See [`OffsetIndex::lookup`].
    pub(super) fn lookup_offset(&self, target: u64) -> Result<OffsetEntry> {
        let is_before =
            |entry: &[u8]| OffsetIndex::new(self.base_offset, entry).is_ok_and(|one| one.entry(0).is_some_and(|e| e.offset <= target));
        let block = self.block(FileKind::OffsetIndex, OffsetIndex::<Vec<u8>>::ENTRY_BYTES, is_before)?;
        Ok(OffsetIndex::new(self.base_offset, block).map_err(|e| self.damaged(FileKind::OffsetIndex, e))?.lookup(target))
    }

    /// See [`TimeIndex::lookup`].
    pub(super) fn lookup_time(&self, timestamp: i64) -> Result<TimeEntry> {
        let is_before =
            |entry: &[u8]| TimeIndex::new(self.base_offset, entry).is_ok_and(|one| one.entry(0).is_some_and(|e| e.timestamp <= timestamp));
        let block = self.block(FileKind::TimeIndex, TimeIndex::<Vec<u8>>::ENTRY_BYTES, is_before)?;
        Ok(TimeIndex::new(self.base_offset, block).map_err(|e| self.damaged(FileKind::TimeIndex, e))?.lookup(timestamp))
    }

    /// All entries of the offset index.
    pub(super) fn offset_entries(&self) -> Result<Vec<OffsetEntry>> {
        let read = |file: &dyn File| read_range(file, 0, self.facts.offset_bytes as usize);
        let bytes = self.read(FileKind::OffsetIndex, read)?;
        Ok(OffsetIndex::new(self.base_offset, bytes).map_err(|e| self.damaged(FileKind::OffsetIndex, e))?.iter().collect())
    }

    /// The transaction index.
    pub(super) fn txn(&self) -> Result<&TxnIndex<Vec<u8>>> {
        if let Some(index) = self.txn.get() {
            return Ok(index);
        }
        let bytes = match self.open(FileKind::TxnIndex) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            opened => opened.and_then(|file| read_range(&*file, 0, usize::try_from(file.len()?).map_err(io::Error::other)?)),
        };
        // As in `read`.
        if let Some(index) = self.txn.get() {
            return Ok(index);
        }
        let path = self.path(FileKind::TxnIndex);
        self.place.check_own(&path)?;
        let index = TxnIndex::new(bytes.map_err(|e| Error::io("read", &path, e))?);
        Ok(self.txn.get_or_init(|| index))
    }

    /// Opens everything that may still be asked for when the names are gone.
    pub(super) fn hold_open(&self) -> Result<()> {
        let open = |kind| match self.open(kind) {
            Err(e) if is_lost(&e) => Ok(None),
            other => other.map(Some).map_err(|e| Error::io("open", &self.path(kind), e)),
        };
        let files = [open(FileKind::OffsetIndex)?, open(FileKind::TimeIndex)?];
        self.held.get_or_init(|| files);
        self.txn().map(drop)
    }

    /// The block of an index in which a search for the last entry that `is_before` ends: the last that begins with such an
    /// entry, else the first.
    fn block(&self, kind: FileKind, entry_bytes: usize, is_before: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
        let len = self.len(kind);
        let block_bytes = BLOCK_BYTES / entry_bytes * entry_bytes;
        self.read(kind, |file| {
            let warm = len.saturating_sub(WARM_BYTES / entry_bytes * entry_bytes);
            let bytes = read_range(file, warm, len)?;
            if warm == 0 || is_before(&bytes[..entry_bytes]) {
                return Ok(bytes);
            }
            let (mut low, mut high) = (0, warm.div_ceil(block_bytes));
            while high - low > 1 {
                let middle = low.midpoint(high);
                let at = middle * block_bytes;
                if is_before(&read_range(file, at, at + entry_bytes)?) { low = middle } else { high = middle }
            }
            read_range(file, low * block_bytes, ((low + 1) * block_bytes).min(len))
        })
    }

    /// What `read` reads of an index file; nothing if it is cut or lost.
    fn read(&self, kind: FileKind, read: impl FnOnce(&dyn File) -> io::Result<Vec<u8>>) -> Result<Vec<u8>> {
        if self.len(kind) == 0 {
            return Ok(Vec::new());
        }
        let opened = if self.held.get().is_some() { Err(io::ErrorKind::NotFound.into()) } else { self.open(kind) };
        // If the segment was replaced meanwhile, its name is gone or another file's; its own is held since before that.
        let file = match self.held.get() {
            Some(held) => held[usize::from(kind == FileKind::TimeIndex)].clone().ok_or_else(|| io::ErrorKind::NotFound.into()),
            None => {
                self.place.check_own(&self.path(kind))?;
                opened
            }
        };
        match file.and_then(|file| read(&*file)) {
            Err(e) if is_lost(&e) => {
                let path = self.path(kind);
                tracing::warn!(path = %path.display(), error = %e, "the index was cut or removed: reading from the start of the segment");
                Ok(Vec::new())
            }
            other => other.map_err(|e| Error::io("read", &self.path(kind), e)),
        }
    }

    fn open(&self, kind: FileKind) -> io::Result<Arc<dyn File>> {
        self.place.storage.open(&self.path(kind), OpenMode::Read)
    }

    fn path(&self, kind: FileKind) -> PathBuf {
        self.place.path(self.base_offset, kind, FileState::Live)
    }

    /// Bytes of offset or time index.
    fn len(&self, kind: FileKind) -> usize {
        if kind == FileKind::TimeIndex { self.facts.time_bytes as usize } else { self.facts.offset_bytes as usize }
    }

    pub(super) fn damaged(&self, kind: FileKind, cause: IndexError) -> Error {
        Error::corrupt("use the index", &self.path(kind), 0, cause.to_string()).caused_by(cause)
    }
}

fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

fn read_range(file: &dyn File, from: usize, to: usize) -> io::Result<Vec<u8>> {
    let mut bytes = room::zeroed(to.saturating_sub(from))?;
    read_exact_at(file, &mut bytes, from as u64)?;
    Ok(bytes)
}
