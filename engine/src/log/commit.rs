//! Group commit: many waiting writers share one sync.
//!
//! The first to find no sync under way becomes its leader: it takes note of what has been written, syncs it
//! (older segments first, then the directory, then the active segment), and wakes everybody whose batch was
//! covered. The rest wait. Who never asks for a sync makes small ones on the way, of the oldest segments. A failed sync
//! latches the log: what a failed sync left behind is unknown, so it is never tried again and called durable.

use std::time::Duration;

use super::{Inner, Log, Unsynced, Writer};
use crate::names::{FileKind, FileState};
use crate::planted::{Defect, is_planted};
use crate::storage::{File, OpenMode};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, wait_at_most};
use crate::{Error, ErrorKind, Result};

/// Closed segments that an append syncs which finds too many of them, if it has not closed more itself.
const SYNCED_AT_ONCE: usize = 2;

#[derive(Debug)]
pub(crate) struct SyncState {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// Everything below is on stable storage.
    synced_offset: u64,
    under_way: bool,
    /// Where the log was truncated, one after the other. A sync that a truncation overtook vouches for nothing: the
    /// offsets that it covered may stand for other records by now.
    truncations: Vec<u64>,
}

/// What one sync covers.
pub(crate) struct SyncWork {
    sealed: Vec<Unsynced>,
    /// None: only closed segments are synced.
    active: Option<Arc<dyn File>>,
    names_changed: bool,
    end_offset: u64,
    data_end: u64,
}

impl SyncState {
    pub(crate) fn new(synced_offset: u64) -> Self {
        Self { progress: Mutex::new(Progress { synced_offset, under_way: false, truncations: Vec::new() }), changed: Condvar::new() }
    }

    pub(crate) fn synced_offset(&self) -> u64 {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).synced_offset
    }

    /// How often the log was truncated so far.
    pub(crate) fn truncations(&self) -> usize {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).truncations.len()
    }

    /// The lowest offset that the log was truncated to since there were `earlier` truncations.
    pub(crate) fn lowest_truncation(&self, earlier: usize) -> Option<u64> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).lowest_truncation(earlier)
    }

    /// Before a truncation, with the offset where the last batch that stays ends; `note` is told how far things are
    /// synced then.
    pub(crate) fn lower_to(&self, offset: u64, note: impl FnOnce(u64)) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.synced_offset = progress.synced_offset.min(offset);
        progress.truncations.push(offset);
        note(progress.synced_offset);
    }
}

impl Progress {
    fn lowest_truncation(&self, earlier: usize) -> Option<u64> {
        self.truncations.get(earlier..).unwrap_or_default().iter().min().copied()
    }
}

/// How waiting for a sync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// Everything below the offset is on stable storage.
    Done,
    /// The log was truncated below it meanwhile.
    Overtaken,
}

impl Log {
    /// Makes everything appended so far durable.
    pub fn sync(&self) -> Result<()> {
        loop {
            let truncations = self.inner.sync.truncations();
            if self.inner.sync_up_to(self.end_offset(), truncations)? == Synced::Done {
                return Ok(());
            }
        }
    }

    /// As [`Log::sync`], but waits for a sync that another thread makes no longer than `at_most`. A sync that this thread
    /// makes itself takes as long as the system lets it.
    ///
    /// # Errors
    /// `TimedOut`: the sync goes on, and what was appended may yet be durable. Otherwise as [`Log::sync`].
    pub fn sync_within(&self, at_most: Duration) -> Result<()> {
        let deadline = self.inner.place.storage.monotonic().checked_add(at_most);
        loop {
            let truncations = self.inner.sync.truncations();
            if self.inner.sync_before(deadline, self.end_offset(), truncations)? == Synced::Done {
                return Ok(());
            }
        }
    }

    /// How often this log was truncated since it was opened: a moment in its life, for
    /// [`Log::lowest_truncation_since`].
    #[must_use]
    pub fn truncations(&self) -> usize {
        self.inner.sync.truncations()
    }

    /// The lowest offset that the log was truncated to since [`Log::truncations`] gave `earlier`. What was known of it
    /// then holds below that offset only.
    #[must_use]
    pub fn lowest_truncation_since(&self, earlier: usize) -> Option<u64> {
        self.inner.sync.lowest_truncation(earlier)
    }
}

impl Inner {
    /// Returns once everything below `offset` is on stable storage, or the log was truncated below it since there were
    /// `truncations` of them.
    pub(super) fn sync_up_to(&self, offset: u64, truncations: usize) -> Result<Synced> {
        self.sync_before(None, offset, truncations)
    }

    /// The same, if others get there before `deadline` on the monotonic clock.
    fn sync_before(&self, deadline: Option<Duration>, offset: u64, truncations: usize) -> Result<Synced> {
        let mut progress = self.sync.progress.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let is_cut = progress.lowest_truncation(truncations).is_some_and(|lowest| lowest < offset);
            if !is_cut && progress.synced_offset >= offset {
                return Ok(Synced::Done);
            }
            if let Some(failure) = self.failure.get() {
                return Err(self.poisoned(failure));
            }
            if is_cut {
                return Ok(Synced::Overtaken);
            }
            if progress.under_way {
                progress = self.wait_for_sync(progress, deadline)?;
                continue;
            }
            let synced;
            (progress, synced) = self.lead(progress, |writer| Some(self.take_sync_work(writer)));
            if synced?.is_some_and(|end| end < offset) {
                // `offset` was read while a truncation was under way that had been counted already.
                return Ok(Synced::Overtaken);
            }
        }
    }

    /// Syncs the oldest of the closed segments that wait for it, where more than `most` do: who never asks for a sync must not
    /// run out of files, and no append waits for all of them.
    pub(super) fn sync_oldest(&self, most: usize) -> Result<()> {
        let mut progress = self.sync.progress.lock().unwrap_or_else(PoisonError::into_inner);
        while progress.under_way {
            progress = self.wait_for_sync(progress, None)?;
        }
        if self.failure.get().is_some() {
            return Ok(()); // nothing is written any more, and what failed may not be tried again
        }
        self.lead(progress, |writer| self.take_oldest(writer, most)).1.map(drop)
    }

    /// Syncs what `take` takes; nobody else does at this moment. Gives the end of what it vouches for: none if a truncation has
    /// overtaken it, or there was nothing to take.
    fn lead<'a>(
        &'a self,
        mut progress: MutexGuard<'a, Progress>,
        take: impl FnOnce(&mut Writer) -> Option<SyncWork>,
    ) -> (MutexGuard<'a, Progress>, Result<Option<u64>>) {
        progress.under_way = true;
        let before = progress.truncations.len();
        drop(progress);
        if is_planted(Defect::RecoveryPointBeforeSync) {
            self.lease.set_recovery_point(self.end_offset.load(Ordering::Acquire));
            let _ = self.data_dir.write_checkpoints();
        }
        // On its own: the sync is made without the writer's lock.
        let work = take(&mut self.writer());
        let result = match work.as_ref().map_or(Ok(()), |work| self.run_sync_work(work)) {
            Err(_) if is_planted(Defect::SwallowSyncError) => Ok(()),
            done => done.map_err(|e| self.fail(e)),
        };
        progress = self.sync.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.under_way = false;
        self.sync.changed.notify_all();
        if let Err(error) = result {
            return (progress, Err(error));
        }
        let Some(work) = work.filter(|_| before == progress.truncations.len()) else { return (progress, Ok(None)) };
        progress.synced_offset = progress.synced_offset.max(work.end_offset);
        // Under the lock that a truncation lowers it under, so that it can't end above.
        self.lease.set_recovery_point(work.data_end);
        if self.owns_data_dir && !work.sealed.is_empty() {
            drop(progress);
            self.save_recovery_point();
            progress = self.sync.progress.lock().unwrap_or_else(PoisonError::into_inner);
        }
        (progress, Ok(Some(work.end_offset)))
    }

    fn wait_for_sync<'a>(&'a self, progress: MutexGuard<'a, Progress>, deadline: Option<Duration>) -> Result<MutexGuard<'a, Progress>> {
        let Some(deadline) = deadline else {
            return Ok(self.sync.changed.wait(progress).unwrap_or_else(PoisonError::into_inner));
        };
        let left = deadline.saturating_sub(self.place.storage.monotonic());
        if left.is_zero() {
            let detail = "another thread's sync, which covers it, has not come back yet; whether it is durable is not known";
            return Err(Error::new(ErrorKind::TimedOut, "wait for the sync of", detail).at(&self.place.dir));
        }
        Ok(wait_at_most(&self.sync.changed, &self.sync.progress, progress, left))
    }

    /// A log by itself has nobody who saves its recovery point from time to time: it does so with every segment, so that
    /// an open after a crash need not read more than that.
    fn save_recovery_point(&self) {
        if let Err(error) = self.data_dir.write_checkpoints() {
            tracing::warn!(%error, "the recovery point was not saved; an open after a crash reads more");
        }
    }

    /// Keeps everybody else from syncing, once a sync under way has ended. What it took along is known to be synced only
    /// then, or known not to be. For good: this is the end of the log.
    pub(super) fn take_over_syncs(&self) {
        let mut progress = self.sync.progress.lock().unwrap_or_else(PoisonError::into_inner);
        while progress.under_way {
            progress = self.sync.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress.under_way = true;
    }

    /// Lets those who waited for a sync see that the log is closed.
    pub(super) fn end_syncs(&self, synced_offset: Option<u64>) {
        let mut progress = self.sync.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.under_way = false;
        progress.synced_offset = synced_offset.unwrap_or(progress.synced_offset);
        self.sync.changed.notify_all();
    }

    pub(super) fn take_sync_work(&self, writer: &mut Writer) -> SyncWork {
        writer.rolls = 0;
        SyncWork {
            sealed: std::mem::take(&mut writer.unsynced),
            active: Some(Arc::clone(&writer.file)),
            names_changed: std::mem::take(&mut writer.names_changed),
            end_offset: writer.next_offset,
            data_end: writer.data_end,
        }
    }

    /// Of more than `most` closed segments, the oldest: as many as were closed since the last sync, so that they do not become
    /// more, and a few, so that they become fewer.
    fn take_oldest(&self, writer: &mut Writer, most: usize) -> Option<SyncWork> {
        let too_many = writer.unsynced.len().saturating_sub(most);
        if too_many == 0 {
            return None;
        }
        let rolls = std::mem::take(&mut writer.rolls);
        let sealed: Vec<_> = writer.unsynced.drain(..too_many.min(rolls.max(SYNCED_AT_ONCE))).collect();
        let end = writer.unsynced.first().map_or_else(|| writer.active.base_offset(), |next| next.base_offset);
        Some(SyncWork { sealed, active: None, names_changed: std::mem::take(&mut writer.names_changed), end_offset: end, data_end: end })
    }

    /// Older segments first: a batch must never be durable before one that it follows. Their indexes and
    /// snapshots go with them, since an open trusts those below the recovery point.
    pub(super) fn run_sync_work(&self, work: &SyncWork) -> Result<()> {
        for segment in &work.sealed {
            let path = self.place.path(segment.base_offset, FileKind::Log, FileState::Live);
            match &segment.file {
                Some(file) => file.sync_data().map_err(|e| Error::io("sync", &path, e))?,
                None => self.sync_if_there(&path)?,
            }
            for kind in [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex, FileKind::Snapshot] {
                self.sync_if_there(&self.place.path(segment.base_offset, kind, FileState::Live))?;
            }
        }
        if work.names_changed {
            self.place.sync_dir()?;
        }
        let Some(active) = &work.active else { return Ok(()) };
        active.sync_data().map_err(|e| Error::io("sync the active segment of", &self.place.dir, e))
    }

    fn sync_if_there(&self, path: &std::path::Path) -> Result<()> {
        match self.place.storage.open(path, OpenMode::Write) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io("open", path, e)),
            Ok(file) => file.sync_data().map_err(|e| Error::io("sync", path, e)),
        }
    }

    fn poisoned(&self, failure: &super::Failure) -> Error {
        let detail = format!("an earlier failure stopped writes, reopen the log; it was: could not {} {}", failure.op, failure.detail);
        Error::new(ErrorKind::Poisoned, "sync", detail).at(&self.place.dir)
    }
}
