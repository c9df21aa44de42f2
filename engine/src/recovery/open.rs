//! The way from a directory to an open log.

use std::collections::BTreeSet;
use std::sync::Arc;

use keeplog_index::{OffsetIndex, TimeIndex, TxnIndex};

use super::aside;
use super::cases::{Action, Location, Zone, decide};
use super::indexes::{indexes_reach, read_index, replace_index_files};
use super::leftovers;
use super::report::{Cut, Damage, Rebuilt, RecoveryReport};
use super::scan_segment::{self, BrokenAt, Context, Jump, Scanned};
use super::settle;
use super::state;
use crate::checkpoint::LeaderEpochs;
use crate::config::{LogOptions, RecoveryMode};
use crate::log::{Unsynced, Writer};
use crate::names::{FileKind, FileState, file_name};
use crate::planted::{Defect, is_planted};
use crate::producers::ProducerStates;
use crate::scan::SCAN_BUFFER_BYTES;
use crate::segment::{IndexBuilder, Place, SEGMENT_FILES, SealedFacts, Segment};
use crate::segment_set::SegmentSet;
use crate::storage::{File, OpenMode};
use crate::{Error, ErrorKind, Result};

mod damage;
mod restart;

pub(super) const OP: &str = "open the log";

/// What the data directory knows of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) clean: bool,
    pub(crate) recovery_point: u64,
    pub(crate) start_offset: u64,
}

/// A log as it was opened.
pub(crate) struct Opened {
    pub(crate) segments: SegmentSet,
    pub(crate) writer: Writer,
    pub(crate) start_offset: u64,
    /// Everything below is known to be on stable storage.
    pub(crate) synced_offset: u64,
    pub(crate) report: RecoveryReport,
}

/// Opens the log in `place`, mending what has to be mended.
pub(crate) fn open(place: &Place, options: &LogOptions, input: Input) -> Result<Opened> {
    let report = RecoveryReport { clean: input.clean, recovery_point: input.recovery_point, ..RecoveryReport::default() };
    let epochs = LeaderEpochs::read(&*place.storage, &place.dir)?.or_empty();
    // Before any is found to be damaged or out of place: a log that had snapshots has producers.
    let without_snapshots = state::list_snapshots(place)?.is_empty();
    let mut recovery = Recovery {
        place,
        options,
        input,
        report,
        epochs,
        without_snapshots,
        segments: Vec::new(),
        next_offset: 0,
        indexed: None,
        first_timestamp: None,
        trusted_snapshot: u64::MAX,
    };
    leftovers::tidy(place, &mut recovery.report)?;
    recovery.load()?;
    recovery.settle()?;
    recovery.recover()?;
    recovery.finish()
}

pub(super) struct Recovery<'a> {
    pub(super) place: &'a Place,
    pub(super) options: &'a LogOptions,
    pub(super) input: Input,
    pub(super) report: RecoveryReport,
    pub(super) epochs: LeaderEpochs,
    /// There was no producer snapshot when it was opened.
    pub(super) without_snapshots: bool,
    /// Ascending; the last one is turned into the active segment at the end.
    pub(super) segments: Vec<Loaded>,
    /// One past the last batch so far.
    pub(super) next_offset: u64,
    /// Indexes of the last segment.
    pub(super) indexed: Option<IndexBuilder>,
    pub(super) first_timestamp: Option<i64>,
    /// Snapshots above were never synced, as far as is known: they may speak of batches that the log has lost.
    pub(super) trusted_snapshot: u64,
}

pub(super) struct Loaded {
    pub(super) segment: Arc<Segment>,
    /// Why its indexes must be made anew.
    pub(super) distrust: Option<String>,
}

impl Recovery<'_> {
    /// Makes what is about to be judged as durable as it looks.
    fn settle(&mut self) -> Result<()> {
        let Input { clean: false, recovery_point, .. } = self.input else { return Ok(()) };
        for at in 0..self.segments.len() {
            let reaches_above = self.segments.get(at + 1).is_none_or(|next| next.segment.base_offset() > recovery_point);
            if reaches_above {
                self.report.bytes_settled += settle::settle(&*self.place.storage, &self.segments[at].segment, recovery_point)?;
            }
        }
        Ok(())
    }

    /// Reads what must be read: everything from the recovery point on, and segments whose indexes can't be trusted.
    fn recover(&mut self) -> Result<()> {
        let Some(last) = self.segments.len().checked_sub(1) else { return Ok(()) };
        if self.options.recovery_full_scan {
            state::drop_damaged(self.place, &mut self.report)?;
        }
        if self.input.clean && !self.options.recovery_full_scan && self.segments[last].distrust.is_none() {
            self.resume_last(last)?;
        }
        // Also the segment that ends at the recovery point: its data was synced, its indexes were made after that.
        let unsynced = self.segments.partition_point(|l| l.segment.base_offset() < self.input.recovery_point).saturating_sub(1);
        if !self.input.clean {
            // What they speak of lies below the recovery point, and a truncation takes all later ones away for good.
            self.trusted_snapshot = self.segments[unsynced].segment.base_offset().max(self.input.recovery_point);
        }
        let from = match self.indexed {
            _ if is_planted(Defect::RecoverLastSegmentOnly) => last,
            Some(_) => last + 1,
            None if self.options.recovery_full_scan => 0,
            None if self.input.clean => last,
            None => unsynced,
        };
        for at in 0..from.min(self.segments.len()) {
            if let Some(why) = self.segments[at].distrust.take() {
                let base = self.segments[at].segment.base_offset();
                let mut producers = self.producers_at(base)?;
                self.report.rebuilt.push(Rebuilt { segment: base, why });
                let next_offset = self.scan(at, &mut producers, base)?;
                if self.segments.len() <= last {
                    // All later segments were dropped: this one is the last.
                    self.next_offset = next_offset;
                    return Ok(());
                }
            }
        }
        if from > last {
            return Ok(());
        }
        let base = self.segments[from].segment.base_offset();
        let mut producers = self.producers_at(base)?;
        let mut next_offset = base;
        let mut at = from;
        while at < self.segments.len() {
            let base = self.segments[at].segment.base_offset();
            if at > from && (at == unsynced || (base <= self.trusted_snapshot && self.has_snapshot(base))) {
                // Of producers whose batches are gone, only the snapshots know.
                producers = self.producers_at(base)?;
            }
            // The last segment of a log that was not closed has no index files, or unfinished ones: nothing to report.
            if let Some(why) = self.segments[at].distrust.take().filter(|_| self.input.clean || at < last) {
                self.report.rebuilt.push(Rebuilt { segment: base, why });
            }
            next_offset = self.scan(at, &mut producers, next_offset)?;
            at += 1;
        }
        self.next_offset = next_offset;
        Ok(())
    }

    fn has_snapshot(&self, number: u64) -> bool {
        self.place.exists(&self.place.path(number, FileKind::Snapshot, FileState::Live))
    }

    fn producers_at(&mut self, offset: u64) -> Result<ProducerStates> {
        let segments: Vec<_> = self.segments.iter().map(|l| Arc::clone(&l.segment)).collect();
        state::replay(self.place, self.options, &segments, offset, self.trusted_snapshot, &self.snapshot_bases(), &mut self.report)
    }

    /// Where snapshots should be: at the last two segments, as far as they lie above the start.
    fn snapshot_bases(&self) -> Vec<u64> {
        let skip = self.segments.len().saturating_sub(2);
        self.segments.iter().skip(skip).map(|l| l.segment.base_offset()).filter(|&b| b > self.input.start_offset).collect()
    }

    /// After a clean close the last segment is continued with the indexes that it was closed with.
    fn resume_last(&mut self, last: usize) -> Result<()> {
        let segment = Arc::clone(&self.segments[last].segment);
        let base = segment.base_offset();
        let whole = |kind| read_index(self.place, self.options, base, kind, segment.size_bytes());
        let read = || -> Result<_, String> {
            let offset = OffsetIndex::new(base, whole(FileKind::OffsetIndex)?).map_err(|e| e.to_string())?;
            let time = TimeIndex::new(base, whole(FileKind::TimeIndex)?).map_err(|e| e.to_string())?;
            let txn = whole(FileKind::TxnIndex).unwrap_or_default();
            Ok((offset, time, TxnIndex::new(txn)))
        };
        let Ok((offset, time, txn)) = read() else { return Ok(()) };
        let file = segment.file()?;
        let start = offset.last().map_or(0, |e| u64::from(e.position));
        let mut scanner = segment.scan(&*file, start, SCAN_BUFFER_BYTES);
        let mut next_offset = base;
        while let Some(entry) = scanner.next() {
            // Something is wrong behind a clean mark: fall back to a scan of the segment.
            let Ok(entry) = entry else { return Ok(()) };
            if entry.header.base_offset < next_offset {
                return Ok(());
            }
            next_offset = entry.header.next_offset();
        }
        // Only now is it known where the segment ends, and with it what its indexes may hold.
        if offset.check(segment.size_bytes() as u32, next_offset).is_err()
            || time.check(next_offset).is_err()
            || txn.check(base, next_offset).is_err()
        {
            self.segments[last].distrust = Some("an index goes beyond the end of the log".into());
            return Ok(());
        }
        let mut indexes = IndexBuilder::new(base, self.options.index_interval_bytes, self.options.segment_index_bytes);
        indexes.resume(offset, time, txn);
        self.first_timestamp = first_timestamp(&segment)?;
        self.indexed = Some(indexes);
        self.next_offset = next_offset;
        Ok(())
    }

    /// Scans the segment at `at`, does what the table says about damage, and writes its indexes. Returns the next offset.
    fn scan(&mut self, at: usize, producers: &mut ProducerStates, next_offset: u64) -> Result<u64> {
        let last = at + 1 == self.segments.len();
        let segment = Arc::clone(&self.segments[at].segment);
        let base = segment.base_offset();
        if base > self.trusted_snapshot && self.has_snapshot(base) {
            state::replace(self.place, base, producers)?;
        } else if self.snapshot_bases().contains(&base) {
            state::save(self.place, base, producers)?;
        }
        let limit = self.segments.get(at + 1).map_or(u64::MAX, |l| l.segment.base_offset());
        let file = segment.file()?;
        // Where the log would be cut at the first damage, nothing behind it counts.
        let may_be_cut = last || (self.options.recovery_mode == RecoveryMode::Salvage && limit > self.input.recovery_point);
        let before = last.then(|| (producers.clone(), self.epochs.clone()));
        let scan = |epochs: &mut LeaderEpochs, producers: &mut ProducerStates, wrong| {
            let next_offset = next_offset.max(base);
            let context = Context { options: self.options, limit, next_offset, producers, epochs, go_on: !may_be_cut, wrong };
            scan_segment::scan(&*file, base, segment.size_bytes(), context).map_err(|e| Error::io("read", &segment.path(), e))
        };
        let mut scanned = scan(&mut self.epochs, producers, None)?;
        if let (Some(wrong), Some((producers_before, epochs_before))) = (scanned.wrong_jump(), before) {
            (*producers, self.epochs) = (producers_before, epochs_before);
            scanned = scan(&mut self.epochs, producers, Some(wrong))?;
        }
        self.report.segments_scanned += 1;
        self.report.bytes_scanned += segment.size_bytes();
        let mut size = segment.size_bytes();
        for broken in &scanned.broken {
            // What lies behind a cut went with it.
            if broken.position < size {
                size = self.act(at, broken, size)?;
            }
        }
        if let Some(Jump { from, to, position }) = scanned.jump.filter(|_| last && !self.options.cleanup_policy.compacts()) {
            let what = "of a log that is not compacted only a follower's may, or a flipped bit: no checksum covers them";
            let file = file_name(base, FileKind::Log);
            self.report.notes.push(format!("{file}: at byte {position} offsets jump from {from} to {to}: {what}"));
        }
        let next_offset = scanned.next_offset;
        if scanned.broken.is_empty() && !last {
            self.compare_end(base, size, next_offset, limit)?;
        }
        self.replace(at, size, scanned)?;
        Ok(next_offset)
    }

    /// Cuts the segment to `size` if it is longer, and puts its rebuilt indexes in place.
    fn replace(&mut self, at: usize, size: u64, scanned: Scanned) -> Result<()> {
        let last = at + 1 == self.segments.len();
        let old = Arc::clone(&self.segments[at].segment);
        let path = old.path();
        self.note_txn_index(old.base_offset(), size, &scanned.indexes);
        if size < old.size_bytes() && !is_planted(Defect::KeepTornTail) {
            if scanned.next_offset < self.input.recovery_point {
                self.place.remove_derived()?;
            }
            let file = self.place.storage.open(&path, OpenMode::Write).map_err(|e| Error::io("open", &path, e))?;
            file.set_len(size).map_err(|e| Error::io("cut", &path, e))?;
            file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        }
        if last {
            // Read-only damage at the end: readers stop before it.
            let readable = scanned.valid_bytes.min(size);
            self.first_timestamp = scanned.first_timestamp;
            self.indexed = Some(scanned.indexes);
            let facts = SealedFacts { size: readable, offset_bytes: 0, time_bytes: 0, largest_timestamp: -1 };
            self.segments[at].segment = Arc::new(Segment::sealed(self.place.clone(), old.base_offset(), facts));
            return Ok(());
        }
        self.segments[at].segment = self.seal(&old, size, scanned.indexes)?;
        Ok(())
    }

    /// Puts the rebuilt indexes of a segment in place.
    fn seal(&self, old: &Segment, size: u64, mut indexes: IndexBuilder) -> Result<Arc<Segment>> {
        let base = old.base_offset();
        indexes.close().map_err(|e| Error::invalid("rebuild the time index of", e.to_string()).at(&old.path()))?;
        replace_index_files(self.place, base, &indexes)?;
        let facts = SealedFacts {
            size,
            offset_bytes: indexes.offset.as_bytes().len() as u32,
            time_bytes: indexes.time.as_bytes().len() as u32,
            largest_timestamp: indexes.largest_timestamp(),
        };
        Ok(Arc::new(Segment::sealed(self.place.clone(), base, facts)))
    }

    fn finish(mut self) -> Result<Opened> {
        let start = self.input.start_offset;
        // Before it is moved up to the start offset.
        let end = self.next_offset;
        if !self.segments.is_empty() && self.next_offset < start {
            self.restart_at(start)?;
        }
        if self.segments.is_empty() {
            // What was safe once is gone with its files. Its offsets were given, and must not be given again.
            let known = self.input.recovery_point.max(start);
            self.note_lost(start, known)?;
            self.next_offset = known;
            self.drop_snapshots(known)?;
            return self.open_empty(known);
        }
        // invariant: `recover` has set the indexes of the last segment, or of the one that was made last.
        let indexes = self.indexed.take().ok_or_else(|| Error::invalid(OP, "the last segment was not recovered").at(&self.place.dir))?;
        let mut all: Vec<_> = self.segments.iter().map(|l| Arc::clone(&l.segment)).collect();
        let start_offset = start.max(all[0].base_offset());
        let last = &all[all.len() - 1];
        let (base, size) = (last.base_offset(), last.size_bytes());
        let path = last.path();
        let file = self.place.storage.open(&path, OpenMode::Write).map_err(|e| Error::io("open", &path, e))?;
        let on_disk = file.len().map_err(|e| Error::io(OP, &path, e))?;
        if on_disk != size && !self.report.read_only {
            let detail = format!("the file has {on_disk} bytes, and recovery left {size}: somebody else writes to it");
            return Err(Error::corrupt(OP, &path, size, detail));
        }
        let active = Arc::new(Segment::active(self.place.clone(), base, Arc::clone(&file), size, indexes));
        let at = all.len() - 1;
        all[at] = Arc::clone(&active);
        let recovery_point = if self.input.clean { self.next_offset } else { self.input.recovery_point.min(self.next_offset) };
        // Of what lies below the start offset nothing is missed; nor of what is there, and only can't be read.
        if !self.report.read_only {
            self.note_lost(end.max(start), self.input.recovery_point)?;
        }
        let cut = self.epochs.truncate_tail(self.next_offset) | self.epochs.truncate_head(start_offset);
        if cut || self.report.segments_scanned > 0 {
            self.epochs.write(&*self.place.storage, &self.place.dir)?;
        }
        // A clean log without any snapshot has no producers.
        let no_producers = self.input.clean && self.without_snapshots;
        self.drop_snapshots(start_offset)?;
        let producers = if no_producers { ProducerStates::default() } else { self.final_producers(&all)? };
        let unsynced = all[..at].iter().filter(|s| !self.input.clean && next_base(&all, s) >= recovery_point);
        let unsynced = unsynced.map(|s| Unsynced { base_offset: s.base_offset(), file: None }).collect();
        let mut writer = self.writer(active, file, size, producers, unsynced)?;
        writer.snapshot_offset = if self.has_snapshot(self.next_offset) { self.next_offset } else { u64::MAX };
        self.complete_report(&all, start_offset);
        Ok(Opened { segments: SegmentSet::new(all), writer, start_offset, synced_offset: recovery_point, report: self.report })
    }

    /// What the recovery point vouched for, and is not there.
    fn note_lost(&mut self, end: u64, recovery_point: u64) -> Result<()> {
        if recovery_point <= end {
            return Ok(());
        }
        if self.options.recovery_mode == RecoveryMode::Strict {
            let detail = format!("it ends at {end}, and was known to be on stable storage up to {recovery_point}");
            return Err(Error::new(ErrorKind::Corrupt, OP, detail).at(&self.place.dir));
        }
        self.report.lost = Some(end..recovery_point);
        Ok(())
    }

    fn final_producers(&mut self, all: &[Arc<Segment>]) -> Result<ProducerStates> {
        // What was scanned has its snapshots anew: the newest of them is right up to the last segment.
        let last_base = all.last().map_or(0, |s| s.base_offset());
        // A cut makes a snapshot behind the last segment's base one of another end, whatever mark and recovery point say.
        let as_closed = self.input.clean && self.report.cuts.is_empty();
        let trusted = match (self.report.cuts.is_empty(), self.input.clean) {
            (false, _) => last_base,
            (true, true) => u64::MAX,
            (true, false) => self.trusted_snapshot.max(last_base),
        };
        let mut producers =
            state::replay(self.place, self.options, all, self.next_offset, trusted, &self.snapshot_bases(), &mut self.report)?;
        producers.expire(self.place.storage.now_ms(), self.options.producer_id_expiration_ms);
        if !as_closed {
            state::replace(self.place, self.next_offset, &producers)?;
        }
        Ok(producers)
    }

    /// Snapshots past the end or below the start are wrong; of those at no segment's base only the newest is of use.
    fn drop_snapshots(&mut self, start_offset: u64) -> Result<()> {
        let bases: BTreeSet<u64> = self.segments.iter().map(|l| l.segment.base_offset()).collect();
        let last_base = bases.last().copied().unwrap_or(0);
        let snapshots = state::list_snapshots(self.place)?;
        let mut any = false;
        let newest_stray = snapshots.iter().copied().filter(|n| !bases.contains(n) && *n <= self.next_offset && *n >= last_base).max();
        for number in snapshots {
            let wrong = number > self.next_offset || (start_offset > 0 && number <= start_offset);
            let stray = !bases.contains(&number) && Some(number) != newest_stray;
            if number > self.next_offset {
                let end = self.next_offset;
                self.report.notes.push(format!("the log had reached offset {number} once, says a snapshot: what came after {end} is gone"));
            }
            if (wrong || stray) && !is_planted(Defect::KeepSnapshotsOnTruncate) {
                self.report.removed.push(file_name(number, FileKind::Snapshot));
                self.place.remove(&self.place.path(number, FileKind::Snapshot, FileState::Live))?;
                any = true;
            }
        }
        // A snapshot past the end must not be found again when the log has grown beyond it in another way.
        if any { self.place.sync_dir() } else { Ok(()) }
    }

    fn open_empty(mut self, start: u64) -> Result<Opened> {
        let path = self.place.path(start, FileKind::Log, FileState::Live);
        let file = self.place.storage.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
        let indexes = IndexBuilder::new(start, self.options.index_interval_bytes, self.options.segment_index_bytes);
        let active = Arc::new(Segment::active(self.place.clone(), start, Arc::clone(&file), 0, indexes));
        self.epochs.clear();
        let writer = self.writer(Arc::clone(&active), file, 0, ProducerStates::default(), Vec::new())?;
        let all = vec![active];
        self.complete_report(&all, start);
        Ok(Opened { segments: SegmentSet::new(all), writer, start_offset: start, synced_offset: start, report: self.report })
    }

    fn writer(
        &mut self,
        active: Arc<Segment>,
        file: Arc<dyn File>,
        position: u64,
        producers: ProducerStates,
        unsynced: Vec<Unsynced>,
    ) -> Result<Writer> {
        Ok(Writer {
            active,
            file,
            position,
            next_offset: self.next_offset,
            data_end: self.next_offset,
            first_timestamp: self.first_timestamp,
            created_ms: self.place.storage.now_ms(),
            producers,
            epochs: std::mem::take(&mut self.epochs),
            unsynced,
            rolls: 0,
            names_changed: true,
            snapshot_offset: u64::MAX,
        })
    }

    fn complete_report(&mut self, all: &[Arc<Segment>], start_offset: u64) {
        self.report.log_start_offset = start_offset;
        self.report.log_end_offset = self.next_offset;
        self.report.segments = all
            .iter()
            .map(|s| {
                let on_disk = self.place.storage.metadata(&s.path()).map_or(s.size_bytes(), |m| m.len);
                (s.base_offset(), on_disk)
            })
            .collect();
    }
}

/// One past the last offset that `segment` may hold.
fn next_base(all: &[Arc<Segment>], segment: &Arc<Segment>) -> u64 {
    all.iter().map(|s| s.base_offset()).find(|&b| b > segment.base_offset()).unwrap_or(u64::MAX)
}

/// Largest timestamp of the first batch of a segment.
pub(crate) fn first_timestamp(segment: &Segment) -> Result<Option<i64>> {
    let file = segment.file()?;
    let first = segment.scan(&*file, 0, 4096).next().and_then(|e| e.ok().map(|e| e.header.max_timestamp));
    Ok(first)
}
