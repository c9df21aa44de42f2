//! Which log to clean next, and how much of it: pure rules over what is known of each log, for a thread that only
//! asks, cleans, and asks again. Nothing is counted along: every question is answered from the segments as they
//! are, so no total can drift. What an answer was is remembered as long as neither the log nor the time has changed it
//! ([`Queue`]), so that a choice among thousands of logs looks only at those that changed.
//!
//! ```text
//!   clean section      dirty section                  left alone
//! |------------------|------------------------------|-----------------|
//!                    first dirty offset             first uncleanable offset
//! ```
//! The first dirty offset may lie inside a segment; the bytes of that segment count on both sides, as in Kafka.
//! The first uncleanable offset is the base of a segment: of the active one, of the one that holds an open
//! transaction, or of the first that is younger than the compaction lag.
//!
//! **Times in the future.** A record dated decades ahead would keep its segment younger than any lag for ever,
//! and never overdue. So a timestamp after now counts as the modification time of the segment's file.

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::{BatchHeader, HEADER_V2_BYTES};
use keeplog_engine::storage::read_full_at;
use keeplog_engine::{Error, ErrorKind, Log, LogOptions, Result, Segment};

use crate::walk::OP;

mod agenda;
mod queue;

pub use agenda::Agenda;
pub use queue::Queue;

/// What scheduling knows of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its base offset.
    pub base_offset: u64,
    /// Bytes of its `.log` file.
    pub size_bytes: u64,
    /// Largest timestamp in it, ms; -1 if no record has one.
    pub largest_timestamp_ms: i64,
    /// Timestamp of its first batch, ms; `None` if it has none, or if nobody needs to know.
    pub first_timestamp_ms: Option<i64>,
    /// Modification time of its file, ms; `None` if nobody needs to know.
    pub modified_ms: Option<i64>,
}

impl SegmentFacts {
    /// `timestamp_ms`, or the file's time where there is none or it can't be.
    pub(crate) fn credible(&self, timestamp_ms: i64, now_ms: i64) -> i64 {
        if (0..=now_ms).contains(&timestamp_ms) { timestamp_ms } else { self.modified_ms.unwrap_or(timestamp_ms).min(now_ms) }
    }
}

/// What scheduling knows of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// First offset that can be read.
    pub start_offset: u64,
    /// One past the last offset.
    pub end_offset: u64,
    /// First offset of the oldest open transaction, or the end offset.
    pub last_stable_offset: u64,
    /// First dirty offset as the last pass left it; `None` if there was none.
    pub checkpoint: Option<u64>,
    /// Ascending; the last one is the active segment.
    pub segments: Vec<SegmentFacts>,
}

/// The rules of one log, under Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// A log is cleaned when more than this share of its bytes is dirty.
    pub min_cleanable_dirty_ratio: f64,
    /// Segments with a record younger than this are left alone, ms.
    pub min_compaction_lag_ms: i64,
    /// A log is due, whatever its ratio, when a dirty segment began longer ago than this, ms.
    pub max_compaction_lag_ms: i64,
}

impl From<&LogOptions> for Rules {
    fn from(options: &LogOptions) -> Self {
        Self {
            min_cleanable_dirty_ratio: options.min_cleanable_dirty_ratio,
            min_compaction_lag_ms: options.min_compaction_lag_ms.max(0),
            max_compaction_lag_ms: options.max_compaction_lag_ms.max(0),
        }
    }
}

/// Why the checkpoint of a log could not be taken as it was. It is to be corrected to [`Dirtiness::first_dirty`] at
/// once, also if the log is not cleaned now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointFault {
    /// Below the log's start: usual after old segments were deleted.
    BelowStart,
    /// Above the log's end: the log was truncated, or is another one under the same name.
    AboveEnd,
}

/// How much of a log is to be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirtiness {
    /// Where the dirty section begins.
    pub first_dirty: u64,
    /// Where it ends: a segment's base.
    pub first_uncleanable: u64,
    /// Bytes of segments that begin in the clean section.
    pub clean_bytes: u64,
    /// Bytes of segments with a part in the dirty section.
    pub cleanable_bytes: u64,
    /// Since when the log has been due by `max_compaction_lag_ms`, ms; 0 if it is not.
    pub overdue_ms: i64,
    /// Set if the checkpoint must be corrected.
    pub checkpoint_fault: Option<CheckpointFault>,
}

impl LogFacts {
    /// Looks at `log`, whose cleaner checkpoint is `checkpoint`. File times and first batches are read only where
    /// `rules` ask for them.
    pub fn read(log: &Log, checkpoint: Option<u64>, rules: &Rules) -> Result<Self> {
        let now_ms = log.storage().now_ms();
        let set = log.segments();
        let mut facts = Self {
            start_offset: log.start_offset(),
            end_offset: log.end_offset(),
            last_stable_offset: if is_planted(Defect::CleanOpenTransactions) { u64::MAX } else { log.last_stable_offset() },
            checkpoint,
            segments: set.all().iter().map(|segment| brief(segment)).collect(),
        };
        let (first_dirty, _) = facts.first_dirty();
        let from = facts.place_of(first_dirty);
        for (segment, known) in set.sealed().iter().zip(&mut facts.segments).skip(from) {
            if rules.max_compaction_lag_ms < i64::MAX {
                known.first_timestamp_ms = first_timestamp(segment)?;
            }
            let lags = rules.min_compaction_lag_ms > 0 || rules.max_compaction_lag_ms < i64::MAX;
            let doubtful = [known.largest_timestamp_ms, known.first_timestamp_ms.unwrap_or(0)];
            if lags && doubtful.iter().any(|timestamp| !(0..=now_ms).contains(timestamp)) {
                known.modified_ms = Some(segment.modified_ms()?);
            }
        }
        Ok(facts)
    }

    /// Where the dirty section begins, and what is wrong with the checkpoint.
    fn first_dirty(&self) -> (u64, Option<CheckpointFault>) {
        match self.checkpoint {
            None => (self.start_offset, None),
            Some(checkpoint) if checkpoint < self.start_offset => (self.start_offset, Some(CheckpointFault::BelowStart)),
            Some(checkpoint) if checkpoint > self.end_offset => (self.start_offset, Some(CheckpointFault::AboveEnd)),
            Some(checkpoint) => (checkpoint, None),
        }
    }

    /// Place of the segment that holds `offset`: the last that begins at or below it, else the first.
    fn place_of(&self, offset: u64) -> usize {
        self.segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
    }

    fn sealed(&self) -> &[SegmentFacts] {
        self.segments.split_last().map_or(&[], |(_, sealed)| sealed)
    }

    /// Until when [`Dirtiness::of`] gives what it gives at `now_ms`, as long as the clock does not go back: the first moment,
    /// ms, at which it may give something else. `i64::MAX` if no later one does; `None` if time does not matter at all.
    #[must_use]
    pub fn holds_until_ms(&self, rules: &Rules, now_ms: i64) -> Option<i64> {
        if rules.min_compaction_lag_ms == 0 && rules.max_compaction_lag_ms == i64::MAX {
            return None;
        }
        let (first_dirty, _) = self.first_dirty();
        let dirty_sealed = self.sealed().get(self.place_of(first_dirty)..).unwrap_or_default();
        let stamps = |segment: &SegmentFacts| [Some(segment.largest_timestamp_ms), segment.first_timestamp_ms, segment.modified_ms];
        // A stamp counts for something else when it is no longer in the future, when it is no longer younger than the one
        // lag, and when it gets older than the other.
        let moments = |stamp: i64| {
            let overdue = stamp.saturating_add(rules.max_compaction_lag_ms).saturating_add(1);
            [stamp, stamp.saturating_add(rules.min_compaction_lag_ms), overdue]
        };
        let later = dirty_sealed.iter().flat_map(stamps).flatten().flat_map(moments).filter(|moment| *moment > now_ms);
        Some(later.min().unwrap_or(i64::MAX))
    }

    /// The sealed segments with a part in the dirty section.
    fn dirty_sealed(&self) -> &[SegmentFacts] {
        self.sealed().get(self.place_of(self.first_dirty().0)..).unwrap_or_default()
    }

    /// The first dirty segment that is younger than the compaction lag: no pass goes beyond.
    pub(crate) fn first_young(&self, rules: &Rules, now_ms: i64) -> Option<&SegmentFacts> {
        let young = |segment: &&SegmentFacts| {
            segment.credible(segment.largest_timestamp_ms, now_ms) > now_ms.saturating_sub(rules.min_compaction_lag_ms)
        };
        if rules.min_compaction_lag_ms > 0 { self.dirty_sealed().iter().find(young) } else { None }
    }
}

impl Dirtiness {
    /// How much of the log is to be cleaned at `now_ms`.
    #[must_use]
    pub fn of(log: &LogFacts, rules: &Rules, now_ms: i64) -> Self {
        let (first_dirty, checkpoint_fault) = log.first_dirty();
        let Some(active) = log.segments.last() else {
            let nothing =
                Self { first_dirty, first_uncleanable: first_dirty, clean_bytes: 0, cleanable_bytes: 0, overdue_ms: 0, checkpoint_fault };
            return nothing;
        };
        let lag_bound = log.first_young(rules, now_ms);
        let bound = lag_bound.map_or(u64::MAX, |segment| segment.base_offset).min(log.last_stable_offset).min(active.base_offset);
        let first_uncleanable = log.segments[log.place_of(bound.max(first_dirty).min(active.base_offset))].base_offset;

        let from = log.place_of(first_dirty.min(first_uncleanable));
        let cleanable = log.segments[from..].iter().take_while(|segment| segment.base_offset < first_uncleanable);
        let clean = log.segments.iter().take_while(|segment| segment.base_offset < first_dirty);
        Self {
            first_dirty,
            first_uncleanable,
            clean_bytes: clean.map(|segment| segment.size_bytes).sum(),
            cleanable_bytes: cleanable.map(|segment| segment.size_bytes).sum(),
            overdue_ms: overdue_ms(log.dirty_sealed(), rules, now_ms),
            checkpoint_fault,
        }
    }

    /// Share of dirty bytes in all that a pass would read; 0 for a log without such bytes.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        if total == 0 { 0.0 } else { self.cleanable_bytes as f64 / total as f64 }
    }

    /// Whether the log is worth a pass.
    #[must_use]
    pub fn is_eligible(&self, rules: &Rules) -> bool {
        self.cleanable_bytes > 0 && (self.ratio() > rules.min_cleanable_dirty_ratio || self.overdue_ms > 0)
    }
}

/// How long ago the oldest of the dirty segments became due.
fn overdue_ms(dirty_sealed: &[SegmentFacts], rules: &Rules, now_ms: i64) -> i64 {
    let first = |segment: &SegmentFacts| {
        let timestamp = segment.first_timestamp_ms.filter(|timestamp| *timestamp > 0)?;
        Some(segment.credible(timestamp, now_ms))
    };
    let due_before = now_ms.saturating_sub(rules.max_compaction_lag_ms);
    dirty_sealed.iter().filter_map(first).min().map_or(0, |earliest| due_before.saturating_sub(earliest).max(0))
}

/// How many passes over dirtier logs a log that is worth one lets go first.
pub const PASSES_WAITED_MAX: u32 = 3;

/// A log that may be cleaned next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// How dirty it is.
    pub dirtiness: Dirtiness,
    /// Its rules.
    pub rules: Rules,
    /// How often another log was chosen since it has been worth a pass.
    pub passes_waited: u32,
}

impl Candidate {
    /// Whether it is worth a pass.
    #[must_use]
    pub fn is_eligible(&self) -> bool {
        self.dirtiness.is_eligible(&self.rules)
    }

    /// The larger, the sooner: those that have waited long enough by how long, the others by how dirty they are.
    fn urgency(&self) -> (u32, f64) {
        let waited = if self.passes_waited < PASSES_WAITED_MAX { 0 } else { self.passes_waited };
        (waited, self.dirtiness.ratio())
    }
}

/// The place, among `logs`, of the one to clean next: the dirtiest of those that are worth a pass, the first of
/// equals. One that has let others go first [`PASSES_WAITED_MAX`] times comes before that: a log that is dirty again after
/// each pass must not keep the others from theirs. Logs that are being cleaned, paused, or could not be cleaned are left
/// out by the caller.
#[must_use]
pub fn choose(logs: &[Candidate]) -> Option<usize> {
    let worth = logs.iter().enumerate().filter(|(_, candidate)| candidate.is_eligible());
    let sooner = |best: (usize, (u32, f64)), next: (usize, (u32, f64))| if next.1 > best.1 { next } else { best };
    worth.map(|(i, candidate)| (i, candidate.urgency())).reduce(sooner).map(|(i, _)| i)
}

/// What a failed pass means for its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Nothing: try again at some later time.
    TryLater,
    /// The log can't be cleaned as it is. It is left out, and not deleted from either, until it is opened again.
    Uncleanable,
    /// The log is closed, gone, or takes no more writes.
    LeaveAlone,
}

impl AfterFailure {
    /// From the error of a pass.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Locked | ErrorKind::StorageFull => Self::TryLater,
            ErrorKind::Closed | ErrorKind::Poisoned | ErrorKind::NotFound | ErrorKind::Io => Self::LeaveAlone,
            _ => Self::Uncleanable,
        }
    }
}

fn brief(segment: &Segment) -> SegmentFacts {
    SegmentFacts {
        base_offset: segment.base_offset(),
        size_bytes: segment.size_bytes(),
        largest_timestamp_ms: segment.largest_timestamp(),
        first_timestamp_ms: None,
        modified_ms: None,
    }
}

/// Largest timestamp of the first batch, ms; `None` for an empty segment, or one whose start is no batch.
fn first_timestamp(segment: &Segment) -> Result<Option<i64>> {
    let mut start = [0; HEADER_V2_BYTES];
    let read = read_full_at(&*segment.file()?, &mut start, 0).map_err(|e| Error::io(OP, &segment.path(), e))?;
    Ok(BatchHeader::parse(&start[..read]).ok().map(|header| header.max_timestamp))
}

#[cfg(test)]
mod tests;
