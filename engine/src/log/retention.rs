//! Giving up data: old segments at the front, a suffix at the end.

use super::{Inner, Log, Writer};
use crate::names::{FileKind, FileState};
use crate::planted::{Defect, is_planted};
use crate::recovery;
use crate::scan::SCAN_BUFFER_BYTES;
use crate::segment::{SEGMENT_FILES, Segment};
use crate::storage::{OpenMode, read_exact_at, write_all_at};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, PoisonError};
use crate::{Error, ErrorKind, Result};

/// What retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Whole segments removed.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Log {
    /// Removes whole old segments: those below the start offset always, and by age (`retention_ms`) and size
    /// (`retention_bytes`) where the cleanup policy deletes. Does nothing while a rewrite is under way.
    pub fn apply_retention(&self) -> Result<RetentionReport> {
        let inner = &*self.inner;
        inner.check_writable("apply retention to")?;
        let Some(_turn) = inner.rewriting.try_enter() else {
            inner.note_change(); // what is due now is still to be done then
            return Ok(RetentionReport::default());
        };
        // Once more, now that it can't be closed any more.
        inner.check_writable("apply retention to")?;
        inner.apply_retention()
    }

    /// Raises the start offset to `offset`: earlier records can't be read any more, and segments wholly below it go
    /// with the next [`Log::apply_retention`]. Durable when it returns.
    ///
    /// # Errors
    /// `OutOfRange` if `offset` is above the end offset. An offset at or below the start changes nothing.
    pub fn advance_start(&self, offset: u64) -> Result<()> {
        self.inner.raise_start(offset)
    }

    /// Cuts the log at `offset`: the batch that holds it and all after it go, and the end offset becomes `offset`.
    /// Waits for a rewrite under way to give up. Nothing happens if `offset` is at or above the end.
    pub fn truncate_to(&self, offset: u64) -> Result<()> {
        let inner = &*self.inner;
        inner.check_writable("truncate")?;
        let _turn = inner.rewriting.enter();
        let _starting = inner.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = inner.writer();
        // Once more, now that it can't be closed any more.
        inner.check_writable("truncate")?;
        if offset >= writer.next_offset {
            return Ok(());
        }
        let done = inner.truncate(&mut writer, offset).map_err(|e| inner.fail(e));
        inner.note_change();
        done
    }
}

impl Inner {
    fn apply_retention(&self) -> Result<RetentionReport> {
        let mut doomed = self.doomed_segments()?;
        let Some(last) = doomed.last().map(|last| last.base_offset()) else { return Ok(RetentionReport::default()) };
        // The active one at the end: it takes a new file first, for which the others may have to make room.
        let active = self.writer().active.base_offset();
        let of_active = doomed.split_off(doomed.len() - usize::from(last == active));
        let mut report = self.remove_oldest(doomed)?;
        if !of_active.is_empty() {
            let mut writer = self.writer();
            if last == writer.active.base_offset() {
                let base_offset = writer.next_offset;
                self.roll_to(&mut writer, base_offset).map_err(|e| self.fail(e))?;
            }
            drop(writer);
            let of_active = self.remove_oldest(of_active)?;
            report = RetentionReport { segments: report.segments + of_active.segments, bytes: report.bytes + of_active.bytes };
        }
        Ok(report)
    }

    /// Takes the oldest segments out of the log. None of them is the active one.
    fn remove_oldest(&self, doomed: Vec<Arc<Segment>>) -> Result<RetentionReport> {
        let Some(last) = doomed.last() else { return Ok(RetentionReport::default()) };
        let after = self.segments.snapshot().all().iter().map(|s| s.base_offset()).find(|&base| base > last.base_offset());
        let Some(start) = after else { return Ok(RetentionReport::default()) };
        let report = RetentionReport { segments: doomed.len(), bytes: doomed.iter().map(|s| s.size_bytes()).sum() };
        match self.raise_start(start) {
            // There is no space to write down where the log starts. The names of its files say so as well, if they go one
            // after the other.
            Err(error) if error.kind() == ErrorKind::StorageFull => self.raise_start_by_removal(doomed, start)?,
            raised => {
                raised?;
                doomed.into_iter().try_for_each(|segment| self.remove_segment(&segment))?;
            }
        }
        // They must not come back beside what a truncation may put in their place.
        self.place.sync_dir()?;
        Ok(report)
    }

    /// Takes a segment out of the log, and whatever is older.
    fn remove_segment(&self, segment: &Segment) -> Result<()> {
        let base_offset = segment.base_offset();
        segment.hold_open()?;
        segment.retire()?;
        // One by one: after a failure the next attempt does not meet it again, and what nobody reads is closed at once.
        self.writer().unsynced.retain(|s| s.base_offset > base_offset);
        self.segments.replace(|now| now.iter().filter(|s| s.base_offset() > base_offset).cloned().collect());
        self.note_change();
        self.place.remove(&self.place.path(base_offset, FileKind::Snapshot, FileState::Live))
    }

    fn raise_start_by_removal(&self, doomed: Vec<Arc<Segment>>, start: u64) -> Result<()> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        for segment in doomed {
            self.remove_segment(&segment)?;
            self.place.sync_dir()?;
        }
        self.start_offset.fetch_max(start, Ordering::AcqRel);
        self.note_change();
        // An open drops from the file what lies below the start.
        self.writer().epochs.truncate_head(start);
        Ok(())
    }

    /// The oldest segments that one of the rules gives up, ascending.
    fn doomed_segments(&self) -> Result<Vec<Arc<Segment>>> {
        let set = self.segments.snapshot();
        let start = self.start_offset.load(Ordering::Acquire);
        let now_ms = self.place.storage.now_ms();
        let options = self.live.options();
        let deletes = options.cleanup_policy.deletes();
        let mut excess = match options.retention_bytes {
            Some(limit) if deletes => set.all().iter().map(|s| s.size_bytes()).sum::<u64>().saturating_sub(limit),
            _ => 0,
        };
        let mut doomed = Vec::new();
        for (at, segment) in set.all().iter().enumerate() {
            let size = segment.size_bytes();
            let next_base = set.all().get(at + 1).map(|s| s.base_offset());
            let below_start = next_base.is_some_and(|next| next <= start);
            // A pass or a truncation may leave it without a batch: it has neither size nor age, and must not protect others.
            let is_hollow = deletes && size == 0 && next_base.is_some();
            let too_big = size > 0 && excess >= size;
            let too_old = deletes && size > 0 && is_too_old(segment, options.retention_ms, now_ms)?;
            if !(below_start || is_hollow || too_big || too_old) {
                break;
            }
            excess = excess.saturating_sub(size);
            doomed.push(Arc::clone(segment));
        }
        Ok(doomed)
    }

    fn raise_start(&self, offset: u64) -> Result<()> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable("advance the start of")?;
        let end = self.end_offset.load(Ordering::Acquire);
        if offset > end {
            let detail = format!("the log ends at {end}");
            return Err(Error::new(ErrorKind::OutOfRange, "advance the start of", detail).at(&self.place.dir).offset_at(offset));
        }
        if offset <= self.start_offset.load(Ordering::Acquire) {
            return Ok(());
        }
        if !is_planted(Defect::ForgetStart) {
            self.lease.set_log_start(Some(offset));
            self.data_dir.write_checkpoints()?;
        }
        self.start_offset.fetch_max(offset, Ordering::AcqRel);
        self.note_change();
        let mut writer = self.writer();
        if writer.epochs.truncate_head(offset) {
            writer.epochs.write(&*self.place.storage, &self.place.dir)?;
        }
        Ok(())
    }

    /// Later segments go first, newest first, so that a crash in between leaves a log without a hole.
    fn truncate(&self, writer: &mut Writer, offset: u64) -> Result<()> {
        let set = self.segments.snapshot();
        let keep = if offset < set.all()[0].base_offset() { 0 } else { set.position_of(offset) + 1 };
        let cut = set.all()[..keep].last().map(|last| find_cut(last, offset)).transpose()?;
        let data_end = cut.map_or(offset, |cut| cut.data_end);
        self.place.remove_derived()?;
        let keeps_point = is_planted(Defect::KeepRecoveryPointOnTruncate);
        self.sync.lower_to(data_end, |synced| {
            if !keeps_point {
                self.lease.set_recovery_point(synced);
            }
        });
        let active_base = set.all()[..keep].last().map_or(offset, |s| s.base_offset());
        if !is_planted(Defect::KeepCleanerOffsetOnTruncate)
            && self.data_dir.cleaner_offset(&self.topic_partition).is_some_and(|dirty| dirty > active_base)
        {
            self.lease.set_cleaner_offset(active_base);
        }
        if keep == 0 {
            // Between the last old segment and the new one there is none that could say where the log starts.
            self.lease.set_log_start(Some(self.start_offset.load(Ordering::Acquire)));
        }
        self.data_dir.write_checkpoints()?;
        for segment in set.all()[keep..].iter().rev() {
            segment.hold_open()?;
            segment.retire()?;
        }
        let active = match (set.all()[..keep].last(), cut) {
            (Some(last), Some(cut)) => self.cut_segment(last, offset, cut.position)?,
            _ => self.create_segment(offset)?,
        };
        writer.unsynced.retain(|s| s.base_offset < active.base_offset());
        let kept: Vec<_> = set.all()[..keep.saturating_sub(1)].to_vec();
        self.segments.replace(|_| kept.into_iter().chain([Arc::clone(&active)]).collect());
        self.start_offset.fetch_min(offset, Ordering::AcqRel);
        self.restart_writer(writer, active, offset, data_end)?;
        if data_end < offset {
            // In a gap that the cleaner made, or inside a batch: no batch says where the log ends, so the name of a segment
            // does. Else the next open would give offsets a second time.
            self.go_on_at(writer, offset, false)?;
        }
        self.publish_end(writer);
        self.place.sync_dir()?;
        self.lower_start(offset)
    }

    /// After a truncation below the start offset: one that stayed would take what is appended next for deleted. Only when
    /// the truncation is durable, so that nothing deleted can be read again.
    fn lower_start(&self, offset: u64) -> Result<()> {
        if self.data_dir.log_start(&self.topic_partition) <= offset {
            return Ok(());
        }
        self.lease.set_log_start(Some(offset));
        self.data_dir.write_checkpoints()
    }

    /// Copies what stays into a new file and renames it over: readers of the old one are not disturbed.
    fn cut_segment(&self, segment: &Arc<Segment>, offset: u64, keep: u64) -> Result<Arc<Segment>> {
        let old = segment.file()?;
        let path = segment.path();
        segment.hold_open()?;
        let temporary = self.place.path(segment.base_offset(), FileKind::Log, FileState::Cleaned);
        let file = self.place.storage.open(&temporary, OpenMode::Truncate).map_err(|e| Error::io("create", &temporary, e))?;
        let mut buffer = vec![0; SCAN_BUFFER_BYTES];
        let mut position = 0;
        while position < keep {
            let take = (keep - position).min(buffer.len() as u64) as usize;
            read_exact_at(&*old, &mut buffer[..take], position).map_err(|e| Error::io("read", &path, e))?;
            write_all_at(&*file, &buffer[..take], position).map_err(|e| Error::io("write", &temporary, e))?;
            position += take as u64;
        }
        file.sync_data().map_err(|e| Error::io("sync", &temporary, e))?;
        let txn = segment.aborted_below(offset)?;
        // Without their log's data the old indexes would run ahead of it.
        for kind in &SEGMENT_FILES[1..] {
            self.place.remove(&self.place.path(segment.base_offset(), *kind, FileState::Live))?;
        }
        self.place.storage.rename(&temporary, &path).map_err(|e| Error::io("rename", &temporary, e))?;
        let rebuilt = recovery::rebuild_indexes(&self.place, &self.options, segment.base_offset(), &*file, keep, txn)?;
        Ok(Arc::new(Segment::active(self.place.clone(), segment.base_offset(), file, keep, rebuilt)))
    }

    fn restart_writer(&self, writer: &mut Writer, active: Arc<Segment>, offset: u64, data_end: u64) -> Result<()> {
        let snapshots = recovery::list_snapshots(&self.place)?;
        for snapshot in snapshots.into_iter().filter(|&n| n > offset && !is_planted(Defect::KeepSnapshotsOnTruncate)) {
            self.place.remove(&self.place.path(snapshot, FileKind::Snapshot, FileState::Live))?;
        }
        let set = self.segments.snapshot();
        writer.producers = recovery::producers_at(&self.place, &self.options, set.all(), offset)?;
        if writer.epochs.truncate_tail(offset) {
            writer.epochs.write(&*self.place.storage, &self.place.dir)?;
        }
        writer.file = active.file()?;
        writer.position = active.size_bytes();
        writer.next_offset = offset;
        writer.data_end = data_end;
        writer.first_timestamp = recovery::first_timestamp(&active)?;
        writer.created_ms = self.place.storage.now_ms();
        writer.names_changed = true;
        writer.snapshot_offset = u64::MAX;
        writer.active = active;
        Ok(())
    }
}

fn is_too_old(segment: &Segment, retention_ms: Option<i64>, now_ms: i64) -> Result<bool> {
    let Some(retention_ms) = retention_ms else { return Ok(false) };
    // A record from the future must not keep a segment for ever: its age is then judged by the file's.
    let stamp = segment.age_timestamp()?;
    let stamp = if stamp > now_ms { segment.modified_ms()? } else { stamp };
    Ok(now_ms.saturating_sub(stamp) > retention_ms)
}

/// Where a segment is cut.
#[derive(Clone, Copy)]
struct CutPoint {
    position: u64,
    /// Where the last batch that stays ends. Below the offset of the truncation if that lies inside a batch.
    data_end: u64,
}

fn find_cut(segment: &Segment, offset: u64) -> Result<CutPoint> {
    let file = segment.file()?;
    let mut cut = CutPoint { position: 0, data_end: segment.base_offset() };
    // From one offset below: the batch that the index then names stays, so it is known where it ends.
    let start = u64::from(segment.position_for(offset.saturating_sub(1))?);
    let mut scanner = segment.scan(&*file, start, SCAN_BUFFER_BYTES);
    while let Some(entry) = scanner.next() {
        let entry = entry.map_err(|e| e.in_file("truncate", &segment.path()))?;
        if entry.header.last_offset >= offset {
            break;
        }
        cut = CutPoint { position: entry.position + u64::from(entry.header.size), data_end: entry.header.next_offset() };
    }
    Ok(cut)
}
