use std::time::Duration;

use keeplog_engine::{Error, Result};

/// `offsets.commit.required.acks`: when a commit or a deletion is acknowledged, and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RequiredAcks {
    /// `-1`: once it is on stable storage. What a fetch answers then, no crash takes back.
    #[default]
    Synced,
    /// `1`: once it is written; the background thread syncs it soon after. A crash of the process takes nothing back, a loss
    /// of power may take what was committed last, though it was shown.
    Written,
    /// `0`: at once. It is written and synced as soon as may be, and shown then; that it failed is nowhere told but in the
    /// log of the process.
    Queued,
}

/// How an offset store commits. Methods set one value each and return the options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitOptions {
    /// `offsets.commit.required.acks`; default [`RequiredAcks::Synced`].
    pub offsets_commit_required_acks: RequiredAcks,
    /// `offsets.commit.timeout.ms`: how long a commit or a deletion waits for the sync of another thread; default 5 s. After
    /// that it is not known whether it is done (`TimedOut`). The thread that makes the sync waits for the system.
    pub offsets_commit_timeout: Duration,
    /// `group.coordinator.append.linger.ms`: how long the background thread waits for more commits to share a sync with, once
    /// one that nobody waits for has come; default 0. What comes during a sync shares the next one anyway.
    pub append_linger: Duration,
    /// `offset.metadata.max.bytes`: the longest metadata that is taken, in UTF-16 units as Kafka counts; default 4096.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`: how long offsets are kept after the last commit, or after their group became empty;
    /// default 7 days.
    pub offsets_retention: Duration,
    /// Whether a load may begin with a snapshot of the partition, and [`OffsetStore::save_snapshots`](crate::OffsetStore)
    /// writes them; default. Without them, or with one that is of no use, a load reads all of the log.
    pub snapshots: bool,
    /// How much of the logs, of all partitions together, a load may have to read behind the snapshots; default 16 MiB. It may
    /// be as much as the snapshots have bytes, so that no more is written for them than about twice what is committed.
    pub snapshot_interval_bytes: u64,
}

/// Longer ones do not fit the field of a record.
const METADATA_MAX: usize = i16::MAX as usize;

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            offsets_commit_required_acks: RequiredAcks::Synced,
            offsets_commit_timeout: Duration::from_secs(5),
            append_linger: Duration::ZERO,
            offset_metadata_max_bytes: 4096,
            offsets_retention: Duration::from_secs(7 * 24 * 60 * 60),
            snapshots: true,
            snapshot_interval_bytes: 16 << 20,
        }
    }
}

impl CommitOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`CommitOptions::offsets_commit_required_acks`](#structfield.offsets_commit_required_acks).
    #[must_use]
    pub fn offsets_commit_required_acks(mut self, acks: RequiredAcks) -> Self {
        self.offsets_commit_required_acks = acks;
        self
    }

    /// Sets [`CommitOptions::offsets_commit_timeout`](#structfield.offsets_commit_timeout).
    #[must_use]
    pub fn offsets_commit_timeout(mut self, timeout: Duration) -> Self {
        self.offsets_commit_timeout = timeout;
        self
    }

    /// Sets [`CommitOptions::append_linger`](#structfield.append_linger).
    #[must_use]
    pub fn append_linger(mut self, linger: Duration) -> Self {
        self.append_linger = linger;
        self
    }

    /// Sets [`CommitOptions::offset_metadata_max_bytes`](#structfield.offset_metadata_max_bytes).
    #[must_use]
    pub fn offset_metadata_max_bytes(mut self, units: usize) -> Self {
        self.offset_metadata_max_bytes = units;
        self
    }

    /// Sets [`CommitOptions::offsets_retention`](#structfield.offsets_retention).
    #[must_use]
    pub fn offsets_retention(mut self, retention: Duration) -> Self {
        self.offsets_retention = retention;
        self
    }

    /// Sets [`CommitOptions::snapshots`](#structfield.snapshots).
    #[must_use]
    pub fn snapshots(mut self, snapshots: bool) -> Self {
        self.snapshots = snapshots;
        self
    }

    /// Sets [`CommitOptions::snapshot_interval_bytes`](#structfield.snapshot_interval_bytes).
    #[must_use]
    pub fn snapshot_interval_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_interval_bytes = bytes;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::invalid("set the options of an offset store", why));
        if self.offset_metadata_max_bytes > METADATA_MAX {
            return refuse(format!(
                "offset_metadata_max_bytes is {}, a record takes {METADATA_MAX} at most",
                self.offset_metadata_max_bytes
            ));
        }
        if self.offsets_retention.is_zero() {
            return refuse("offsets_retention is 0: every offset would go at once".into());
        }
        Ok(())
    }
}
