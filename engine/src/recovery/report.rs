//! What recovery found and did.

use std::fmt;
use std::ops::Range;

/// Damage that was found. `file` is relative to the log's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file concerned.
    pub file: String,
    /// Byte position in it.
    pub position: u64,
    /// First offset that can't be read because of it.
    pub offset: u64,
    /// What is wrong, and whether the bytes stay.
    pub what: String,
    /// The damaged bytes are where they were.
    pub in_place: bool,
}

/// A tail that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file concerned.
    pub file: String,
    /// Where it ends now, bytes.
    pub position: u64,
    /// Bytes cut.
    pub bytes: u64,
    /// What stood there.
    pub why: String,
    /// File of the log's directory that holds the bytes now, unless they were a torn write and no more.
    pub kept_in: Option<String>,
}

/// Indexes that were made anew from their log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Base offset of the segment.
    pub segment: u64,
    /// Why.
    pub why: String,
}

/// What recovery found and did when a log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the log had been closed cleanly, so that nothing had to be scanned.
    pub clean: bool,
    /// The recovery point that was given.
    pub recovery_point: u64,
    /// First offset that can be read.
    pub log_start_offset: u64,
    /// One past the last offset.
    pub log_end_offset: u64,
    /// Base offset and bytes of every segment, ascending.
    pub segments: Vec<(u64, u64)>,
    /// Segments read from start to end.
    pub segments_scanned: usize,
    /// Bytes read for that.
    pub bytes_scanned: u64,
    /// Bytes from the recovery point on, written anew and synced before they were judged.
    pub bytes_settled: u64,
    /// Tails cut.
    pub cuts: Vec<Cut>,
    /// Indexes made anew.
    pub rebuilt: Vec<Rebuilt>,
    /// Files removed: leftovers of interrupted work, indexes and snapshots without their log.
    pub removed: Vec<String>,
    /// Interrupted swaps that were completed: the base offsets of their outputs.
    pub swaps_completed: Vec<u64>,
    /// Damage found; empty is good.
    pub damage: Vec<Damage>,
    /// Offsets that were known to be on stable storage, by the recovery point, and are behind the end now.
    pub lost: Option<Range<u64>>,
    /// Where the log ended, if that was below its start offset: then it goes on at the start offset, what it held can't be
    /// read any more, and retention removes it. After a power failure that is as it should be; else the checkpoint of
    /// start offsets is wrong.
    pub ended_below_start: Option<u64>,
    /// Worth knowing, but no damage.
    pub notes: Vec<String>,
    /// Damage at the end of the log was kept: it takes no appends.
    pub read_only: bool,
}

impl RecoveryReport {
    /// Bytes cut, in all.
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.cuts.iter().map(|c| c.bytes).sum()
    }

    /// Whether nothing is damaged, and nothing missing that should be there.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.lost.is_none() && self.ended_below_start.is_none()
    }

    pub(crate) fn has_unreadable_tail(&self) -> bool {
        self.read_only
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.clean { "closed cleanly" } else { "not closed cleanly" };
        let segments = |n: usize| if n == 1 { "1 segment".to_owned() } else { format!("{n} segments") };
        writeln!(f, "offsets {} to {}, {}, {how}", self.log_start_offset, self.log_end_offset, segments(self.segments.len()))?;
        let (scanned, bytes, point) = (segments(self.segments_scanned), self.bytes_scanned, self.recovery_point);
        writeln!(f, "scanned {scanned}, {bytes} bytes, from recovery point {point}")?;
        for base in &self.swaps_completed {
            writeln!(f, "completed the interrupted replacement of segment {base}")?;
        }
        for cut in &self.cuts {
            write!(f, "cut {} bytes from {} at byte {}: {}", cut.bytes, cut.file, cut.position, cut.why)?;
            match &cut.kept_in {
                Some(name) => writeln!(f, "; they are kept in {name}")?,
                None => writeln!(f)?,
            }
        }
        for rebuilt in &self.rebuilt {
            writeln!(f, "rebuilt the indexes of segment {}: {}", rebuilt.segment, rebuilt.why)?;
        }
        for name in &self.removed {
            writeln!(f, "removed {name}")?;
        }
        if let Some(lost) = &self.lost {
            writeln!(f, "LOST offsets {} to {}: they were known to be on stable storage", lost.start, lost.end)?;
        }
        if let Some(end) = self.ended_below_start {
            let start = self.log_start_offset;
            writeln!(f, "the log ended at {end}, below its start offset {start}: it goes on there, and retention removes the rest")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for damage in &self.damage {
            writeln!(f, "DAMAGE in {} at byte {} (offset {}): {}", damage.file, damage.position, damage.offset, damage.what)?;
        }
        Ok(())
    }
}
