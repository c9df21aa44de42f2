//! Why the next pass over a log would come, or not, and what it would have to stop at: for people who look.
//!
//! The rules are those of [`crate::schedule`]; nothing here decides anything.

use keeplog_engine::{Log, Result};

use crate::schedule::{Dirtiness, LogFacts, Rules};

/// What is known of the next pass over a log.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// How much of the log is dirty, and where the dirty section begins and ends.
    pub dirtiness: Dirtiness,
    /// Bytes of the segments from the first uncleanable offset on.
    pub uncleanable_bytes: u64,
    /// Whether a pass is due, and why.
    pub due: Due,
    /// What no pass goes beyond, ascending by offset: the first is the one that counts now, and the active segment is always
    /// there.
    pub obstacles: Vec<Obstacle>,
}

/// Whether a background cleaner would take the log now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// More of it is dirty than `min_cleanable_dirty_ratio` says.
    Dirty,
    /// A dirty segment is older than `max_compaction_lag_ms` allows.
    Overdue,
    /// Too little of it is dirty.
    NotYet,
    /// No dirty segment may be cleaned.
    NothingCleanable,
    /// All below the active segment is clean.
    Clean,
}

/// Something that no pass goes beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A transaction that has not ended. Nobody knows yet whether its records count.
    OpenTransaction {
        /// Its producer.
        producer_id: i64,
        /// The producer's epoch.
        producer_epoch: i16,
        /// Its first offset.
        first_offset: u64,
        /// Time of its first batch, ms since the Unix epoch; `None` if that batch is gone or has none.
        since_ms: Option<i64>,
    },
    /// A segment with a record younger than `min_compaction_lag_ms`.
    CompactionLag {
        /// The segment's base offset.
        base_offset: u64,
        /// When it will be old enough, ms since the Unix epoch.
        until_ms: i64,
    },
    /// The segment that is appended to.
    ActiveSegment {
        /// Its base offset.
        base_offset: u64,
    },
}

impl Obstacle {
    /// The first offset that it keeps from being cleaned; the rest of the segment with that offset waits too.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::OpenTransaction { first_offset, .. } => *first_offset,
            Self::CompactionLag { base_offset, .. } | Self::ActiveSegment { base_offset } => *base_offset,
        }
    }
}

impl Explanation {
    /// Looks at `log`, whose cleaner checkpoint is `checkpoint`, by `rules` at `now_ms`.
    ///
    /// # Errors
    /// Those of reading the headers and times of its segments.
    pub fn of(log: &Log, checkpoint: Option<u64>, rules: &Rules, now_ms: i64) -> Result<Self> {
        let facts = LogFacts::read(log, checkpoint, rules)?;
        let dirtiness = Dirtiness::of(&facts, rules, now_ms);
        let uncleanable = facts.segments.iter().filter(|segment| segment.base_offset >= dirtiness.first_uncleanable);
        let mut obstacles = open_transactions(log);
        obstacles.extend(facts.first_young(rules, now_ms).map(|segment| Obstacle::CompactionLag {
            base_offset: segment.base_offset,
            until_ms: segment.credible(segment.largest_timestamp_ms, now_ms).saturating_add(rules.min_compaction_lag_ms),
        }));
        obstacles.extend(facts.segments.last().map(|active| Obstacle::ActiveSegment { base_offset: active.base_offset }));
        obstacles.sort_by_key(Obstacle::offset);
        let uncleanable_bytes = uncleanable.map(|segment| segment.size_bytes).sum();
        let active = facts.segments.last().map_or(0, |active| active.base_offset);
        let is_clean = dirtiness.first_dirty >= active;
        let due = if is_clean { Due::Clean } else { Due::of(&dirtiness, rules) };
        Ok(Self { due, dirtiness, uncleanable_bytes, obstacles })
    }
}

impl Due {
    fn of(dirtiness: &Dirtiness, rules: &Rules) -> Self {
        if dirtiness.cleanable_bytes == 0 {
            Self::NothingCleanable
        } else if !dirtiness.is_eligible(rules) {
            Self::NotYet
        } else if dirtiness.ratio() > rules.min_cleanable_dirty_ratio {
            Self::Dirty
        } else {
            Self::Overdue
        }
    }
}

fn open_transactions(log: &Log) -> Vec<Obstacle> {
    let open = log.active_producers().into_iter().filter_map(|producer| {
        let first_offset = producer.open_txn_first_offset?;
        let (producer_id, producer_epoch) = (producer.id, producer.epoch);
        Some(Obstacle::OpenTransaction { producer_id, producer_epoch, first_offset, since_ms: began_ms(log, first_offset, producer_id) })
    });
    open.collect()
}

/// When the batch at `offset` was written, if it is still there. What can't be read is for a pass to complain about.
fn began_ms(log: &Log, offset: u64, producer_id: i64) -> Option<i64> {
    let batch = log.batches_from(offset).ok()?.next()?.ok()?;
    let header = batch.header;
    (header.base_offset == offset && header.producer_id == producer_id && header.max_timestamp >= 0).then_some(header.max_timestamp)
}
