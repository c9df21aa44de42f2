//! Replacing sealed segments by rewritten ones, crash-safely.
//!
//! The order on disk, for one group of sources and its output (all four files of a segment each time):
//! 1. the output is written as `.cleaned`, and synced at some time before the next step;
//! 2. its files are renamed to `.swap`, and the directory is synced: from here on a crash completes the swap;
//! 3. the sources are renamed to `.deleted`, and the directory is synced: no source may outlast the last `.swap`;
//! 4. the output gets its final names, and the directory is synced.
//!
//! What does not fit one output is several. In step 2 the lowest is renamed last, when the names of the others are
//! durable: as long as it is `.cleaned`, none of them counts. In step 4 each is durable before the next, from the
//! lowest up: the range of those that are still `.swap` holds no finished one, which would be taken for a source.
//!
//! Groups are swapped in ascending order, or at least so that no output with a lower base offset is unfinished: a `.swap`
//! above a `.cleaned` is taken for one of several outputs that are not all there yet, and thrown away.
//!
//! An open that finds `.cleaned` files forgets them; one that finds `.swap` files finishes (see `recovery`). A
//! stale `.cleaned` of an earlier failure would make a later `.swap` look unfinished, so all are purged first.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use keeplog_index::AbortedTxn;

use super::{Inner, Log};
use crate::names::{FileKind, FileState};
use crate::planted::{Defect, is_planted};
use crate::record::BatchHeader;
use crate::recovery;
use crate::segment::{IndexBuilder, Place, SEGMENT_FILES, SealedFacts, Segment, write_index_files};
use crate::segment_set::SegmentSet;
use crate::storage::{File, OpenMode, write_all_at};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::{Error, ErrorKind, Result};

/// The right to replace sealed segments of a log; one at a time. Dropped, it removes what is unfinished.
#[derive(Debug)]
pub struct Rewrite {
    log: Log,
    sources: Arc<SegmentSet>,
    /// Base offsets of the outputs that were begun and are not in their places. Held by each swap: none begins meanwhile.
    unfinished: Mutex<BTreeSet<u64>>,
}

/// Files of segments that a rewrite has replaced and that nobody reads any more.
///
/// Removing a large file takes its time with the device, and truncations and a close wait for a rewrite: so it is done when
/// that is over. Files that are not removed here are by the next rewrite, or when the log is opened again.
#[derive(Debug)]
pub struct Replaced {
    place: Place,
    files: Mutex<Vec<PathBuf>>,
}

impl Replaced {
    /// Removes them. Several threads may do so at a time.
    pub fn remove(&self) {
        loop {
            let next = self.files.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(path) = next else { return };
            self.place.remove_now(&path);
        }
    }
}

/// An output being written.
#[derive(Debug)]
pub struct OutputSegment {
    log: Log,
    base_offset: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    /// With what is pending.
    size: u64,
    /// Not written yet: small pieces are written together.
    pending: Vec<u8>,
    last_offset: Option<u64>,
    indexes: IndexBuilder,
}

/// An output is written in pieces of about this many bytes.
const WRITE_BYTES: usize = 256 << 10;

/// A finished output, under its `.cleaned` names.
#[derive(Debug)]
pub struct SealedOutput {
    base_offset: u64,
    last_offset: Option<u64>,
    facts: SealedFacts,
    path: PathBuf,
    /// Those of its files that are not known to be on stable storage.
    unsynced: Vec<Arc<dyn File>>,
}

impl SealedOutput {
    /// Bytes of its `.log` file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.facts.size
    }

    /// Puts it on stable storage, if that is not done yet. A swap does so too; for many outputs it takes less time to write
    /// them all before the first of them is synced.
    ///
    /// # Errors
    /// `StorageFull` and `Io`. A sync that failed proves nothing when it is tried again: the output is to be dropped.
    pub fn sync(&mut self) -> Result<()> {
        self.unsynced.iter().try_for_each(|file| file.sync_data()).map_err(|e| Error::io("sync a file of", &self.path, e))?;
        self.unsynced.clear();
        Ok(())
    }
}

impl Log {
    /// Starts a rewrite of sealed segments.
    ///
    /// # Errors
    /// `Locked` while another rewrite, a truncation or a deletion of segments is under way.
    pub fn begin_rewrite(&self) -> Result<Rewrite> {
        self.inner.check_writable("rewrite segments of")?;
        if !self.inner.rewriting.try_take() {
            return Err(
                Error::new(ErrorKind::Locked, "rewrite segments of", "another rewrite or truncation of it is under way").at(self.path())
            );
        }
        // From here on the guard gives the turn back, also on failure.
        let rewrite = Rewrite { log: self.clone(), sources: self.segments(), unfinished: Mutex::default() };
        // Once more, now that it can't be closed any more.
        self.inner.check_writable("rewrite segments of")?;
        recovery::purge_leftovers(&self.inner.place)?;
        self.inner.place.gather();
        Ok(rewrite)
    }

    /// Whether somebody (a truncation, a close) waits for a rewrite under way to be dropped.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.inner.rewriting.is_wanted()
    }
}

impl Rewrite {
    /// The segments as they were when the rewrite began. All but the last may be replaced.
    #[must_use]
    pub fn sources(&self) -> &Arc<SegmentSet> {
        &self.sources
    }

    /// The segments, of which the rewrite lets go: those that are swapped can be closed, if nobody else holds them.
    #[must_use]
    pub fn release_sources(&mut self) -> Arc<SegmentSet> {
        let rest = Arc::new(SegmentSet::new(vec![Arc::clone(self.sources.active())]));
        std::mem::replace(&mut self.sources, rest)
    }

    /// The files of the segments that were swapped so far, as far as nobody reads them any more.
    #[must_use]
    pub fn replaced(&self) -> Replaced {
        let place = self.log.inner.place.clone();
        let files = Mutex::new(place.gathered());
        Replaced { place, files }
    }

    /// Whether somebody (a truncation, a close) waits for this rewrite to be dropped.
    #[must_use]
    pub fn is_unwanted(&self) -> bool {
        self.log.inner.rewriting.is_wanted()
    }

    /// Starts an output that will take the place of segments from `base_offset` on.
    pub fn create_output(&self, base_offset: u64) -> Result<OutputSegment> {
        let inner = &self.log.inner;
        self.unfinished().insert(base_offset);
        let path = inner.place.path(base_offset, FileKind::Log, FileState::Cleaned);
        let file = inner.place.storage.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
        let indexes = IndexBuilder::new(base_offset, inner.options.index_interval_bytes, inner.options.segment_index_bytes);
        Ok(OutputSegment { log: self.log.clone(), base_offset, path, file, size: 0, pending: Vec::new(), last_offset: None, indexes })
    }

    /// Puts `outputs` in the place of `sources` (adjacent sealed segments, ascending; the first output has the base offset
    /// of the first source, and the offsets of each are below the base of the next).
    ///
    /// Groups are swapped in ascending order: a tombstone must never vanish while older data that it covers can still come
    /// back after a crash. A group that lost nothing which covers older data may come before an older one, as long as no output for
    /// that is begun.
    pub fn swap(&self, sources: &[Arc<Segment>], mut outputs: Vec<SealedOutput>) -> Result<()> {
        let inner = &self.log.inner;
        inner.check_writable("swap segments of")?;
        self.check_swap(sources, &outputs)?;
        let mut unfinished = self.unfinished();
        if unfinished.first() != outputs.first().map(|output| &output.base_offset) {
            return Err(
                Error::invalid("swap segments of", "an output below is unfinished: a crash would lose the sources").at(self.log.path())
            );
        }
        outputs.iter_mut().try_for_each(SealedOutput::sync)?;
        // Before anything is renamed: where there are too few files to open, nothing has happened yet.
        sources.iter().try_for_each(|source| source.hold_open())?;
        inner.swap(sources, &outputs).map_err(|e| inner.fail(e))?;
        unfinished.retain(|base_offset| outputs.iter().all(|output| output.base_offset != *base_offset));
        Ok(())
    }

    fn unfinished(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) // a swap that panics leaves its outputs unfinished
    }

    fn check_swap(&self, sources: &[Arc<Segment>], outputs: &[SealedOutput]) -> Result<()> {
        let set = self.log.segments();
        let sealed = set.sealed();
        let refuse = |why: &str| Err(Error::invalid("swap segments of", why).at(self.log.path()));
        let Some(first) = sources.first() else { return refuse("there is no source") };
        if outputs.first().is_none_or(|output| output.base_offset != first.base_offset()) {
            return refuse("no output starts where the first source does");
        }
        let Some(at) = sealed.iter().position(|s| Arc::ptr_eq(s, first)) else { return refuse("a source is not part of the log any more") };
        let adjacent = sealed[at..].iter().zip(sources).filter(|(a, b)| Arc::ptr_eq(a, b)).count() == sources.len();
        if !adjacent {
            return refuse("the sources are not adjacent sealed segments of the log");
        }
        // A sealed segment has another one after it.
        let ends = outputs[1..].iter().map(|next| next.base_offset).chain([set.all()[at + sources.len()].base_offset()]);
        let in_order = outputs.iter().zip(ends).all(|(o, end)| o.base_offset < end && o.last_offset.is_none_or(|last| last < end));
        if in_order { Ok(()) } else { refuse("an output reaches into the next one, or into the segment after its sources") }
    }
}

impl Drop for Rewrite {
    fn drop(&mut self) {
        let place = &self.log.inner.place;
        place.stop_gathering().iter().for_each(|path| place.remove_now(path));
        // After a failure some files may be `.swap` already: only with the rest of them does the next open know what to do.
        if self.log.inner.failure.get().is_none()
            && let Err(error) = recovery::purge_cleaned(&self.log.inner.place)
        {
            tracing::warn!(%error, "unfinished outputs of a rewrite stay until the next one or until the log is opened again");
        }
        self.log.inner.rewriting.leave();
    }
}

impl OutputSegment {
    /// Appends whole entries, their offsets rising above all that came before.
    pub fn append(&mut self, entries: &[u8]) -> Result<()> {
        let mut position = 0;
        while position < entries.len() {
            let at = self.size + position as u64;
            let bad = |why: String| Error::invalid("write to", why).at(&self.path).position_at(at);
            let header = BatchHeader::parse(&entries[position..]).map_err(|e| bad(e.to_string()))?;
            if entries.len() - position < header.size as usize {
                return Err(bad("the last entry is not whole".into()));
            }
            if self.last_offset.is_some_and(|last| header.base_offset <= last) || header.base_offset < self.base_offset {
                return Err(bad(format!("offset {} does not rise", header.base_offset)));
            }
            let place = u32::try_from(at).ok().filter(|_| at + u64::from(header.size) <= i32::MAX as u64);
            let place = place.ok_or_else(|| bad("a segment holds at most 2147483647 bytes".into()))?;
            self.indexes.batch(&header, place).map_err(|e| bad(e.to_string()))?;
            self.last_offset = Some(header.last_offset);
            position += header.size as usize;
        }
        self.size += entries.len() as u64;
        if self.pending.is_empty() && entries.len() >= WRITE_BYTES {
            return self.write(entries);
        }
        self.pending.extend_from_slice(entries);
        if self.pending.len() >= WRITE_BYTES { self.write_pending() } else { Ok(()) }
    }

    fn write_pending(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        self.write(&pending)?;
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    /// Writes `last`, which ends where the output ends so far.
    fn write(&self, last: &[u8]) -> Result<()> {
        write_all_at(&*self.file, last, self.size - last.len() as u64).map_err(|e| Error::io("write to", &self.path, e))
    }

    /// Adds an aborted transaction whose marker is in this output, in order of markers.
    pub fn append_aborted(&mut self, txn: AbortedTxn) -> Result<()> {
        self.indexes.aborted(txn).map_err(|e| Error::invalid("write the transaction index of", e.to_string()).at(&self.path))
    }

    /// Bytes added so far.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Finishes the output: indexes at their exact length, modification time `modified_ms` (which stands for the age of
    /// records without timestamps). Its bytes are on their way to stable storage; [`SealedOutput::sync`] waits for them.
    pub fn seal(mut self, modified_ms: i64) -> Result<SealedOutput> {
        self.write_pending()?;
        let place = &self.log.inner.place;
        self.indexes.close().map_err(|e| Error::invalid("close the time index of", e.to_string()).at(&self.path))?;
        let mut files = write_index_files(place, self.base_offset, FileState::Cleaned, &self.indexes)?;
        self.file.start_write_back();
        files.push(Arc::clone(&self.file));
        for kind in [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex] {
            let path = place.path(self.base_offset, kind, FileState::Cleaned);
            place.storage.set_modified(&path, modified_ms).map_err(|e| Error::io("set the time of", &path, e))?;
        }
        let facts = SealedFacts {
            size: self.size,
            offset_bytes: self.indexes.offset.as_bytes().len() as u32,
            time_bytes: self.indexes.time.as_bytes().len() as u32,
            largest_timestamp: self.indexes.largest_timestamp(),
        };
        Ok(SealedOutput { base_offset: self.base_offset, last_offset: self.last_offset, facts, path: self.path, unsynced: files })
    }
}

impl Inner {
    fn swap(&self, sources: &[Arc<Segment>], outputs: &[SealedOutput]) -> Result<()> {
        if is_planted(Defect::SourcesBeforeOutputs) {
            sources.iter().try_for_each(|source| source.retire())?;
            self.place.sync_dir()?;
        }
        for (i, output) in outputs.iter().enumerate().rev() {
            if i == 0 && outputs.len() > 1 {
                self.place.sync_dir()?;
            }
            self.rename_output(output, FileState::Cleaned, FileState::Swap)?;
        }
        self.place.sync_dir()?;
        for source in sources.iter().filter(|_| !is_planted(Defect::SourcesBeforeOutputs)) {
            source.retire()?;
        }
        self.place.sync_dir()?;
        for output in outputs {
            self.rename_output(output, FileState::Swap, FileState::Live)?;
            self.place.sync_dir()?;
        }
        let is_output = |base| outputs.iter().any(|output| output.base_offset == base);
        for source in sources.iter().filter(|source| !is_output(source.base_offset())) {
            self.place.remove(&self.place.path(source.base_offset(), FileKind::Snapshot, FileState::Live))?;
        }
        let (first, last) = (sources[0].base_offset(), sources[sources.len() - 1].base_offset());
        // A source that was never synced is covered by its outputs, which are.
        self.writer().unsynced.retain(|s| s.base_offset < first || s.base_offset > last);
        self.segments.replace(|now| {
            let before = now.iter().take_while(|s| s.base_offset() < first).cloned();
            let segments = outputs.iter().map(|output| Arc::new(Segment::sealed(self.place.clone(), output.base_offset, output.facts)));
            let after = now.iter().skip_while(|s| s.base_offset() <= last).cloned();
            before.chain(segments).chain(after).collect()
        });
        self.note_change();
        Ok(())
    }

    fn rename_output(&self, output: &SealedOutput, from: FileState, to: FileState) -> Result<()> {
        SEGMENT_FILES.into_iter().try_for_each(|kind| self.place.rename_state(output.base_offset, kind, from, to))
    }
}
