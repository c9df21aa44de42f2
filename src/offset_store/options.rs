//! Settings of an [`OffsetStore`](super::OffsetStore).

use std::time::Duration;

use keeplog_engine::LogOptions;
use keeplog_offsets::{CommitOptions, RequiredAcks};

use crate::StoreOptions;

/// Partitions of a new store where none are asked for. A broker makes 50, to spread them over a cluster; within one
/// process fewer of them share more of their syncs.
pub(super) const NUM_PARTITIONS: u32 = 4;
/// A broker makes segments of 100 MiB. Smaller ones are cleaned sooner and leave less to load.
const SEGMENT_BYTES: u32 = 10 << 20;
/// `min.cleanable.dirty.ratio` by default.
const DIRTY_RATIO: f64 = 0.2;

/// Settings of an [`OffsetStore`](super::OffsetStore). Methods set one value each and return the options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OffsetOptions {
    /// `offsets.topic.num.partitions`: partitions of a new store; default 4. An existing store keeps its number, since
    /// another one would look for every group in the wrong place; asking for another one is an error.
    pub offsets_topic_num_partitions: Option<u32>,
    /// Settings of the logs: by default `offsets.topic.segment.bytes` is 10 MiB, and `min.cleanable.dirty.ratio` 0.2, so that
    /// the files stay at about three times what is live, also while commits come at full speed.
    pub log: LogOptions,
    /// How commits are made.
    pub commit: CommitOptions,
    /// Whether the store leads all of its partitions from the open on; default. Otherwise it leads those that it is told to,
    /// see [`OffsetStore::lead`](super::OffsetStore::lead).
    pub lead_all: bool,
    /// `offsets.retention.check.interval.ms`: how often offsets are looked for that have expired; default 10 minutes. The
    /// first time is one interval after the open.
    pub offsets_retention_check_interval: Duration,
    /// Settings of the store beneath, such as the cleaner's. For the logs of `__consumer_offsets`, [`log`](#structfield.log)
    /// counts in place of those here.
    pub store: StoreOptions,
}

impl Default for OffsetOptions {
    fn default() -> Self {
        Self {
            offsets_topic_num_partitions: None,
            log: LogOptions::new().segment_bytes(SEGMENT_BYTES).min_cleanable_dirty_ratio(DIRTY_RATIO),
            commit: CommitOptions::new(),
            lead_all: true,
            offsets_retention_check_interval: Duration::from_secs(10 * 60),
            store: StoreOptions::new(),
        }
    }
}

impl OffsetOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`OffsetOptions::offsets_topic_num_partitions`](#structfield.offsets_topic_num_partitions).
    #[must_use]
    pub fn offsets_topic_num_partitions(mut self, partitions: u32) -> Self {
        self.offsets_topic_num_partitions = Some(partitions);
        self
    }

    /// Sets `offsets.topic.segment.bytes`: 10 MiB by default.
    #[must_use]
    pub fn offsets_topic_segment_bytes(mut self, bytes: u32) -> Self {
        self.log = self.log.segment_bytes(bytes);
        self
    }

    /// Sets the settings of the logs.
    #[must_use]
    pub fn log(mut self, options: LogOptions) -> Self {
        self.log = options;
        self
    }

    /// Sets how commits are made.
    #[must_use]
    pub fn commit(mut self, options: CommitOptions) -> Self {
        self.commit = options;
        self
    }

    /// Sets `offsets.commit.required.acks`: synced by default.
    #[must_use]
    pub fn offsets_commit_required_acks(mut self, acks: RequiredAcks) -> Self {
        self.commit = self.commit.offsets_commit_required_acks(acks);
        self
    }

    /// Sets `offsets.retention.minutes`, as a duration: 7 days by default.
    #[must_use]
    pub fn offsets_retention(mut self, retention: Duration) -> Self {
        self.commit = self.commit.offsets_retention(retention);
        self
    }

    /// Sets [`OffsetOptions::offsets_retention_check_interval`](#structfield.offsets_retention_check_interval).
    #[must_use]
    pub fn offsets_retention_check_interval(mut self, interval: Duration) -> Self {
        self.offsets_retention_check_interval = interval;
        self
    }

    /// Whether snapshots of the partitions are saved and used, so that an open need not read all of the logs; default.
    #[must_use]
    pub fn snapshots(mut self, snapshots: bool) -> Self {
        self.commit = self.commit.snapshots(snapshots);
        self
    }

    /// Sets [`OffsetOptions::lead_all`](#structfield.lead_all).
    #[must_use]
    pub fn lead_all(mut self, lead: bool) -> Self {
        self.lead_all = lead;
        self
    }

    /// Sets the settings of the store beneath; those of its own logs are [`OffsetOptions::log`](#structfield.log).
    #[must_use]
    pub fn store(mut self, store: StoreOptions) -> Self {
        self.store = store;
        self
    }
}
