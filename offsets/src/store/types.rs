//! What goes in and out of the store.

use std::fmt;
use std::sync::Arc;

use crate::cache::CommittedOffset;

/// What a group commits for one partition, and what a fetch answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffsetAndMetadata {
    /// The offset to read next.
    pub offset: u64,
    /// Epoch of the leader that the last record came from, where it is known.
    pub leader_epoch: Option<i32>,
    /// Whatever the group wants to remember.
    pub metadata: Arc<str>,
    /// Id of the topic, where it is known: one made anew under an old name has another.
    pub topic_id: Option<[u8; 16]>,
    /// When it is to count as committed, ms since the Unix epoch; `None` is now. A fetch leaves it out.
    pub commit_timestamp_ms: Option<i64>,
}

impl OffsetAndMetadata {
    /// An offset, with nothing else to remember.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self { offset, ..Self::default() }
    }

    /// Sets the metadata.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<Arc<str>>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Sets the leader epoch.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: i32) -> Self {
        self.leader_epoch = Some(leader_epoch);
        self
    }

    /// Sets the id of the topic.
    #[must_use]
    pub fn topic_id(mut self, topic_id: [u8; 16]) -> Self {
        self.topic_id = Some(topic_id);
        self
    }

    /// Sets when it counts as committed, in ms since the Unix epoch: for what was committed elsewhere.
    #[must_use]
    pub fn commit_timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.commit_timestamp_ms = Some(timestamp_ms);
        self
    }
}

impl From<CommittedOffset> for OffsetAndMetadata {
    fn from(committed: CommittedOffset) -> Self {
        let CommittedOffset { offset, leader_epoch, metadata, topic_id, .. } = committed;
        Self { offset, leader_epoch, metadata, topic_id, commit_timestamp_ms: None }
    }
}

/// An entry of a commit that was refused, while the others of the call were committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its metadata is longer than `offset_metadata_max_bytes` allows.
    #[error("the metadata has {units} UTF-16 units, offset_metadata_max_bytes allows {limit}")]
    MetadataTooLarge {
        /// Its length.
        units: usize,
        /// The longest that is taken.
        limit: usize,
    },
}

/// A commit for the partition waits for the end of its transaction: what is committed may change at any moment, so whoever
/// must not read anything twice asks again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a transactional commit for it is open: ask again")]
pub struct Unstable;

/// Whose transaction a commit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Producer {
    /// Its id, not negative.
    pub id: i64,
    /// Its epoch: of two with one id, the one with the lower epoch is refused.
    pub epoch: i16,
}

/// One committed offset with all that it belongs to. Displayed as `group topic partition offset leader_epoch metadata`
/// with tabs between them: `-` stands for no leader epoch, and what would break a line is [`Escaped`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedOffset {
    /// The group.
    pub group: Arc<str>,
    /// The topic.
    pub topic: Arc<str>,
    /// The partition of it.
    pub partition: i32,
    /// What is committed there.
    pub committed: CommittedOffset,
}

impl fmt::Display for ListedOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, topic, partition, committed } = self;
        write!(f, "{}\t{}\t{partition}\t{}\t", Escaped(group), Escaped(topic), committed.offset)?;
        match committed.leader_epoch {
            Some(epoch) => write!(f, "{epoch}")?,
            None => f.write_str("-")?,
        }
        write!(f, "\t{}", Escaped(&committed.metadata))
    }
}

/// A text that displays in one line: one with control characters has these, and its backslashes, written as in Rust
/// (`\t`, `\u{1b}`, `\\`). Any other is displayed as it is, as a broker's tools do.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.contains(char::is_control) {
            return f.write_str(self.0);
        }
        self.0.chars().try_for_each(|c| if c.is_control() || c == '\\' { write!(f, "{}", c.escape_default()) } else { write!(f, "{c}") })
    }
}

/// What loading a store has met and taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Records read from the log, those of control batches left out.
    pub records: u64,
    /// Bytes of the batches read.
    pub bytes: u64,
    /// Committed offsets.
    pub entries: u64,
    /// Committed offsets that came from a snapshot, before the end of the log was read.
    pub from_snapshot: u64,
    /// Bytes of the snapshots read.
    pub snapshot_bytes: u64,
    /// Groups with a committed offset.
    pub groups: u64,
    /// Tombstones of commits read from the log.
    pub tombstones: u64,
    /// Records whose type is not known here.
    pub unknown_types: u64,
    /// Commits written in a version above the known ones.
    pub newer_values: u64,
    /// Transactions with commits that have not ended.
    pub open_transactions: u64,
    /// Groups in another partition than the one that the number of partitions gives them: they are listed, but a fetch
    /// looks elsewhere. The number of partitions was changed, or not all of them were given to the store.
    pub misplaced_groups: u64,
    /// Time from start to end.
    pub seconds: f64,
}

impl LoadReport {
    /// Of two parts of one load; the time is set by whoever knows the whole.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            entries: self.entries + other.entries,
            from_snapshot: self.from_snapshot + other.from_snapshot,
            snapshot_bytes: self.snapshot_bytes + other.snapshot_bytes,
            groups: self.groups + other.groups,
            tombstones: self.tombstones + other.tombstones,
            unknown_types: self.unknown_types + other.unknown_types,
            newer_values: self.newer_values + other.newer_values,
            open_transactions: self.open_transactions + other.open_transactions,
            misplaced_groups: self.misplaced_groups + other.misplaced_groups,
            seconds: self.seconds.max(other.seconds),
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, bytes, entries, groups, tombstones, open_transactions, from_snapshot, snapshot_bytes, seconds, .. } = self;
        write!(
            f,
            "{entries} offsets of {groups} groups from {records} records ({tombstones} tombstones, {bytes} bytes) in {seconds:.3} s"
        )?;
        if *snapshot_bytes > 0 {
            write!(f, ", {from_snapshot} of them from snapshots ({snapshot_bytes} bytes)")?;
        }
        for (count, what) in [
            (*open_transactions, "open transactions"),
            (self.unknown_types, "records of unknown types"),
            (self.newer_values, "commits in a newer version"),
            (self.misplaced_groups, "groups in the wrong partition"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}
