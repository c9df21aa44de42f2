//! One file of a log and its indexes.
//!
//! A segment is *active* while it is appended to: its indexes live in memory and its published size grows. It is
//! *sealed* after that: nothing about it changes until it is replaced as a whole. Readers hold `Arc<Segment>`s;
//! the files of a segment that was taken out of the log are removed when the last of them lets go.

mod build;
mod sealed;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use keeplog_index::{AbortedTxn, OffsetEntry, TimeEntry};

pub(crate) use build::IndexBuilder;
use sealed::SealedIndexes;

use crate::names::{DERIVED_SUFFIX, FileKind, FileName, FileState};
use crate::room;
use crate::scan::{EntryScanner, ScanCause, ScanError};
use crate::storage::{EntryKind, File, OpenMode, Storage, read_exact_at};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use crate::{Error, ErrorKind, Result};

/// Bytes read first to see whether an index entry leads to a batch; a larger batch is read whole.
const INDEX_CHECK_BYTES: usize = 16 << 10;

/// The files that belong to a segment, in the order in which a swap renames them.
pub(crate) const SEGMENT_FILES: [FileKind; 4] = FileKind::OF_SEGMENT;

/// Where the files of a log are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) dir: Arc<Path>,
    /// The log was closed: from then on its names may stand for what another life of it, or another log, has put there.
    over: Arc<AtomicBool>,
    /// While a rewrite is under way: files that it has made superfluous. They are removed when it is over.
    superfluous: Arc<Mutex<Option<Vec<PathBuf>>>>,
}

impl Place {
    pub(crate) fn new(storage: Arc<dyn Storage>, dir: Arc<Path>) -> Self {
        Self { storage, dir, over: Arc::default(), superfluous: Arc::default() }
    }

    /// From here on nothing is opened by its name any more.
    pub(crate) fn give_up(&self) {
        self.over.store(true, Ordering::Release);
    }

    fn check_own(&self, path: &Path) -> Result<()> {
        if self.over.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "read", "the log was closed before this part of it was opened").at(path));
        }
        Ok(())
    }

    /// Path of the file of `kind` for `number`.
    pub(crate) fn path(&self, number: u64, kind: FileKind, state: FileState) -> PathBuf {
        self.dir.join(FileName { number, kind, state }.to_string())
    }

    /// Whole contents of a small file of the log.
    pub(crate) fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>> {
        let op = "read";
        let file = self.storage.open(path, OpenMode::Read).map_err(|e| Error::io(op, path, e))?;
        let len = file.len().map_err(|e| Error::io(op, path, e))?;
        if len > limit {
            return Err(Error::corrupt(op, path, 0, format!("{len} bytes, at most {limit} can be right")));
        }
        let read = || {
            let mut bytes = room::zeroed(len as usize)?;
            read_exact_at(&*file, &mut bytes, 0).map(|()| bytes)
        };
        read().map_err(|e| Error::io(op, path, e))
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.storage.metadata(path).is_ok()
    }

    pub(crate) fn sync_dir(&self) -> Result<()> {
        self.storage.sync_dir(&self.dir).map_err(|e| Error::io("sync the directory", &self.dir, e))
    }

    /// Removes a file; that it is gone already is fine.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match self.storage.remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
            _ => Ok(()),
        }
    }

    /// Removes what others have made of the log's records and keep beside it, durably.
    pub(crate) fn remove_derived(&self) -> Result<()> {
        let mut any = false;
        for entry in self.storage.list(&self.dir).map_err(|e| Error::io("list", &self.dir, e))? {
            if entry.kind == EntryKind::File && entry.name.ends_with(DERIVED_SUFFIX) {
                self.remove(&self.dir.join(entry.name))?;
                any = true;
            }
        }
        if any { self.sync_dir() } else { Ok(()) }
    }

    /// From here on [`Place::remove_replaced`] only gathers.
    pub(crate) fn gather(&self) {
        self.superfluous().get_or_insert_default();
    }

    /// What was gathered so far.
    pub(crate) fn gathered(&self) -> Vec<PathBuf> {
        self.superfluous().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was gathered. From here on nothing is gathered any more.
    pub(crate) fn stop_gathering(&self) -> Vec<PathBuf> {
        self.superfluous().take().unwrap_or_default()
    }

    /// Removes a file of a replaced segment, now or when that is to be done.
    pub(crate) fn remove_replaced(&self, path: PathBuf) {
        if let Some(gathered) = &mut *self.superfluous() {
            return gathered.push(path);
        }
        self.remove_now(&path);
    }

    /// Removes a file of a replaced segment.
    pub(crate) fn remove_now(&self, path: &Path) {
        if let Err(error) = self.remove(path) {
            tracing::warn!(%error, "a replaced segment's file stays until the next pass, or until the log is opened again");
        }
    }

    fn superfluous(&self) -> MutexGuard<'_, Option<Vec<PathBuf>>> {
        self.superfluous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renames a file of a segment; a file that is not there (an index that was never made) is skipped.
    pub(crate) fn rename_state(&self, number: u64, kind: FileKind, from: FileState, to: FileState) -> Result<()> {
        let (old, new) = (self.path(number, kind, from), self.path(number, kind, to));
        match self.storage.rename(&old, &new) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && kind != FileKind::Log => Ok(()),
            other => other.map_err(|e| Error::io("rename", &old, e)),
        }
    }
}

/// One segment of a log.
#[derive(Debug)]
pub struct Segment {
    base_offset: u64,
    place: Place,
    /// Set while active, and once its names may go.
    file: OnceLock<Arc<dyn File>>,
    mapped: OnceLock<Bytes>,
    /// Bytes that readers may look at.
    size: AtomicU64,
    indexes: Indexes,
    /// Its files are named `.deleted`; the last holder removes them.
    retired: AtomicBool,
}

#[derive(Debug)]
enum Indexes {
    Active(RwLock<IndexBuilder>),
    Sealed(SealedIndexes),
}

/// What is known of a sealed segment without reading it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealedFacts {
    pub(crate) size: u64,
    pub(crate) offset_bytes: u32,
    pub(crate) time_bytes: u32,
    pub(crate) largest_timestamp: i64,
}

impl Segment {
    pub(crate) fn active(place: Place, base_offset: u64, file: Arc<dyn File>, size: u64, indexes: IndexBuilder) -> Self {
        Self {
            base_offset,
            place,
            file: OnceLock::from(file),
            mapped: OnceLock::new(),
            size: AtomicU64::new(size),
            indexes: Indexes::Active(RwLock::new(indexes)),
            retired: AtomicBool::new(false),
        }
    }

    pub(crate) fn sealed(place: Place, base_offset: u64, facts: SealedFacts) -> Self {
        let indexes = SealedIndexes::new(place.clone(), base_offset, facts);
        Self {
            base_offset,
            place,
            file: OnceLock::new(),
            mapped: OnceLock::new(),
            size: AtomicU64::new(facts.size),
            indexes: Indexes::Sealed(indexes),
            retired: AtomicBool::new(false),
        }
    }

    /// Offset that the segment is named after; no record in it has a smaller one.
    #[must_use]
    pub fn base_offset(&self) -> u64 {
        self.base_offset
    }

    /// Bytes of whole batches in its `.log` file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Path of its `.log` file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.place.path(self.base_offset, FileKind::Log, FileState::Live)
    }

    /// Largest timestamp of its records, ms; -1 if none has one.
    #[must_use]
    pub fn largest_timestamp(&self) -> i64 {
        match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).largest_timestamp(),
            Indexes::Sealed(sealed) => sealed.facts.largest_timestamp,
        }
    }

    /// Bytes of entries in its offset index.
    #[must_use]
    pub fn offset_index_bytes(&self) -> u32 {
        match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).offset.as_bytes().len() as u32,
            Indexes::Sealed(sealed) => sealed.facts.offset_bytes,
        }
    }

    /// Bytes of entries in its time index.
    #[must_use]
    pub fn time_index_bytes(&self) -> u32 {
        match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).time.as_bytes().len() as u32,
            Indexes::Sealed(sealed) => sealed.facts.time_bytes,
        }
    }

    /// Modification time of its `.log` file, ms.
    pub fn modified_ms(&self) -> Result<i64> {
        let path = self.path();
        Ok(self.place.storage.metadata(&path).map_err(|e| Error::io("look at", &path, e))?.modified_ms)
    }

    /// Its largest timestamp, or the modification time where no record has one: what age is judged by.
    pub fn age_timestamp(&self) -> Result<i64> {
        match self.largest_timestamp() {
            -1 => self.modified_ms(),
            timestamp => Ok(timestamp),
        }
    }

    /// Its `.log` file, open for reading. A sealed segment keeps no file open of its own: a log may have thousands.
    pub fn file(&self) -> Result<Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let path = self.path();
        let opened = self.place.storage.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e));
        // If the segment was replaced meanwhile, its name is gone or another file's; its own is held since before that.
        match self.file.get() {
            Some(file) => Ok(Arc::clone(file)),
            None => self.place.check_own(&path).and(opened),
        }
    }

    /// Walks its batches from `position` (the start of one), reading `buffer_bytes` at a time. `file` is [`Segment::file`].
    #[must_use]
    pub fn scan<'f>(&self, file: &'f dyn File, position: u64, buffer_bytes: usize) -> EntryScanner<'f> {
        EntryScanner::new(file, position, self.size_bytes(), buffer_bytes)
    }

    /// All bytes of a sealed segment, mapped; `None` for the active one.
    pub(crate) fn bytes(&self) -> Result<Option<Bytes>> {
        if matches!(self.indexes, Indexes::Active(_)) {
            return Ok(None);
        }
        if let Some(bytes) = self.mapped.get() {
            return Ok(Some(bytes.clone()));
        }
        let file = self.file()?;
        let bytes = file.map(self.size_bytes()).map_err(|e| Error::io("map", &self.path(), e))?;
        Ok(Some(self.mapped.get_or_init(|| bytes).clone()))
    }

    /// Where to start scanning for `offset`: every batch before that position ends below it. The index is asked, and
    /// believed if a sound batch stands where it says: an index that was damaged behind a clean mark makes reading slow,
    /// never wrong.
    pub fn position_for(&self, offset: u64) -> Result<u32> {
        let entry = match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).offset.lookup(offset),
            Indexes::Sealed(sealed) => sealed.lookup_offset(offset)?,
        };
        if entry.position == 0 || self.leads_to_a_batch(entry)? {
            return Ok(entry.position);
        }
        tracing::warn!(path = %self.path().display(), ?entry, "the offset index is wrong: reading from the start of the segment");
        Ok(0)
    }

    /// Whether a whole batch stands at the entry's position and starts no later than its offset.
    fn leads_to_a_batch(&self, entry: OffsetEntry) -> Result<bool> {
        let file = self.file()?;
        let mut scanner = self.scan(&*file, u64::from(entry.position), INDEX_CHECK_BYTES);
        Ok(match scanner.next() {
            Some(Ok(found)) => found.header.base_offset <= entry.offset && found.header.verify_crc(found.bytes).is_ok(),
            Some(Err(ScanError { cause: ScanCause::Io(cause), .. })) => return Err(Error::io("read", &self.path(), cause)),
            Some(Err(_)) | None => false,
        })
    }

    /// The entries of its offset index, as of now.
    pub fn offset_entries(&self) -> Result<Vec<OffsetEntry>> {
        Ok(match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).offset.iter().collect(),
            Indexes::Sealed(sealed) => sealed.offset_entries()?,
        })
    }

    /// The time-index entry to start from when looking for `timestamp`.
    pub(crate) fn time_for(&self, timestamp: i64) -> Result<TimeEntry> {
        Ok(match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).time.lookup(timestamp),
            Indexes::Sealed(sealed) => sealed.lookup_time(timestamp)?,
        })
    }

    /// Adds to `out` the aborted transactions that concern `from..upper`; whether later segments need no look.
    pub(crate) fn aborted_in(&self, from: u64, upper: u64, out: &mut Vec<AbortedTxn>) -> Result<bool> {
        let result = match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).txn.collect(from, upper, out),
            Indexes::Sealed(sealed) => sealed.txn()?.collect(from, upper, out),
        };
        result.map_err(|e| self.index_error(FileKind::TxnIndex, e))
    }

    /// The aborted transactions whose markers lie below `offset`.
    pub(crate) fn aborted_below(&self, offset: u64) -> Result<Vec<AbortedTxn>> {
        let all: std::result::Result<Vec<_>, _> = match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).txn.iter().collect(),
            Indexes::Sealed(sealed) => sealed.txn()?.iter().collect(),
        };
        let mut all = all.map_err(|e| self.index_error(FileKind::TxnIndex, e))?;
        all.retain(|t| t.last_offset < offset);
        Ok(all)
    }

    /// Takes in a batch that was written at `position`, and publishes it to readers.
    pub(crate) fn publish(&self, batches: &[(BatchPlace, Option<AbortedTxn>)], size: u64) -> Result<()> {
        let Indexes::Active(indexes) = &self.indexes else {
            return Err(Error::invalid("append to", "the segment is sealed").at(&self.path()));
        };
        {
            let mut indexes = indexes.write().unwrap_or_else(PoisonError::into_inner);
            for (batch, aborted) in batches {
                indexes.batch(&batch.header, batch.position).map_err(|e| self.index_error(FileKind::OffsetIndex, e))?;
                if let Some(txn) = aborted {
                    indexes.aborted(*txn).map_err(|e| self.index_error(FileKind::TxnIndex, e))?;
                }
            }
        }
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Whether an index has no room for another entry.
    pub(crate) fn index_is_full(&self) -> bool {
        match &self.indexes {
            Indexes::Active(indexes) => read_lock(indexes).is_full(),
            Indexes::Sealed(_) => true,
        }
    }

    /// Writes the index files of the active segment, closed and at their exact length, and returns the sealed
    /// segment that takes its place. Nothing is synced here.
    pub(crate) fn seal(&self) -> Result<Self> {
        let Indexes::Active(indexes) = &self.indexes else {
            return Err(Error::invalid("seal", "the segment is sealed").at(&self.path()));
        };
        let mut indexes = indexes.write().unwrap_or_else(PoisonError::into_inner);
        indexes.close().map_err(|e| self.index_error(FileKind::TimeIndex, e))?;
        write_index_files(&self.place, self.base_offset, FileState::Live, &indexes)?;
        let facts = SealedFacts {
            size: self.size_bytes(),
            offset_bytes: indexes.offset.as_bytes().len() as u32,
            time_bytes: indexes.time.as_bytes().len() as u32,
            largest_timestamp: indexes.largest_timestamp(),
        };
        Ok(Self::sealed(self.place.clone(), self.base_offset, facts))
    }

    /// Opens everything that a reader may still ask for, so that its files can be renamed under it.
    pub(crate) fn hold_open(&self) -> Result<()> {
        let file = self.file()?;
        self.file.get_or_init(|| file);
        if let Indexes::Sealed(sealed) = &self.indexes {
            sealed.hold_open()?;
        }
        Ok(())
    }

    /// Renames its files to `.deleted`. They are removed when the last holder drops the segment. The log goes last: if
    /// this is interrupted, a log without indexes is left, and not indexes whose log seems to have been lost.
    pub(crate) fn retire(&self) -> Result<()> {
        for kind in SEGMENT_FILES.into_iter().rev() {
            self.place.rename_state(self.base_offset, kind, FileState::Live, FileState::Deleted)?;
        }
        self.retired.store(true, Ordering::Release);
        Ok(())
    }

    fn index_error(&self, kind: FileKind, cause: keeplog_index::IndexError) -> Error {
        Error::corrupt("use the index", &self.place.path(self.base_offset, kind, FileState::Live), 0, cause.to_string()).caused_by(cause)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            for kind in SEGMENT_FILES {
                self.place.remove_replaced(self.place.path(self.base_offset, kind, FileState::Deleted));
            }
        }
    }
}

/// A batch and where it stands in its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchPlace {
    pub(crate) header: crate::record::BatchHeader,
    pub(crate) position: u32,
}

/// Writes the index files of a segment at their exact length; no transaction index is made where it would have no entry.
pub(crate) fn write_index_files(place: &Place, base_offset: u64, state: FileState, indexes: &IndexBuilder) -> Result<Vec<Arc<dyn File>>> {
    let contents = [
        (FileKind::OffsetIndex, indexes.offset.as_bytes()),
        (FileKind::TimeIndex, indexes.time.as_bytes()),
        (FileKind::TxnIndex, indexes.txn.as_bytes()),
    ];
    let mut files = Vec::with_capacity(contents.len());
    for (kind, bytes) in contents {
        let path = place.path(base_offset, kind, state);
        if kind == FileKind::TxnIndex && bytes.is_empty() && !place.exists(&path) {
            continue;
        }
        files.push(write_file(place, &path, bytes)?);
    }
    Ok(files)
}

/// Writes a whole small file under its name as a new file, so that a map of an older one stays whole.
pub(crate) fn write_file(place: &Place, path: &Path, bytes: &[u8]) -> Result<Arc<dyn File>> {
    place.remove(path)?;
    let file = place.storage.open(path, OpenMode::CreateNew).map_err(|e| Error::io("create", path, e))?;
    crate::storage::write_all_at(&*file, bytes, 0).map_err(|e| Error::io("write", path, e))?;
    Ok(file)
}

fn read_lock<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    // A panic while holding it can't leave the indexes half changed in a way that matters: they are only hints.
    lock.read().unwrap_or_else(PoisonError::into_inner)
}
