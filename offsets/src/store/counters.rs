//! What a store has done since it was opened.

use std::time::Duration;

use keeplog_engine::sync::atomic::{AtomicU64, Ordering};

use super::OffsetStore;
use super::leading::PartitionState;

/// What an offset store has done since it was opened, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct OffsetCounters {
    /// Offsets committed and shown, those of transactions when they were durable.
    pub offset_commits: u64,
    /// Offsets removed because they had expired.
    pub offset_expirations: u64,
    /// Offsets deleted.
    pub offset_deletions: u64,
    /// Syncs that commits have shared, or more: how many times something was shown.
    pub batches_shown: u64,
    /// Loads of partitions that came to their end.
    pub partition_loads: u64,
    /// The longest of them, seconds.
    pub partition_load_seconds_max: f64,
    /// All of them together, seconds.
    pub partition_load_seconds: f64,
    /// Committed offsets held now.
    pub num_offsets: u64,
    /// Groups with a committed offset, or records of their own, now.
    pub num_groups: u64,
    /// Memory that the cache takes, bytes.
    pub memory_bytes: u64,
    /// Partitions that are served now.
    pub active_partitions: u64,
    /// Partitions that are being loaded, or wait for that.
    pub loading_partitions: u64,
    /// Partitions whose load failed.
    pub failed_partitions: u64,
}

/// Those that are counted along.
#[derive(Debug, Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    expirations: AtomicU64,
    deletions: AtomicU64,
    batches: AtomicU64,
    loads: AtomicU64,
    load_nanos: AtomicU64,
    load_nanos_max: AtomicU64,
}

impl Counters {
    pub(super) fn shown(&self, commits: u64) {
        self.commits.fetch_add(commits, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn expired(&self, offsets: u64) {
        self.expirations.fetch_add(offsets, Ordering::Relaxed);
    }

    pub(super) fn deleted(&self, offsets: u64) {
        self.deletions.fetch_add(offsets, Ordering::Relaxed);
    }

    pub(super) fn loaded(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.load_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.load_nanos_max.fetch_max(nanos, Ordering::Relaxed);
    }
}

impl OffsetStore {
    /// What it has done, and what it holds now.
    #[must_use]
    pub fn counters(&self) -> OffsetCounters {
        let counters = &*self.inner.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |nanos: &AtomicU64| count(nanos) as f64 / 1e9;
        let mut found = OffsetCounters {
            offset_commits: count(&counters.commits),
            offset_expirations: count(&counters.expirations),
            offset_deletions: count(&counters.deletions),
            batches_shown: count(&counters.batches),
            partition_loads: count(&counters.loads),
            partition_load_seconds_max: seconds(&counters.load_nanos_max),
            partition_load_seconds: seconds(&counters.load_nanos),
            ..OffsetCounters::default()
        };
        for shard in self.led_shards() {
            match shard.served().state() {
                PartitionState::NotLed => {}
                PartitionState::Active => found.active_partitions += 1,
                PartitionState::Loading { .. } => found.loading_partitions += 1,
                PartitionState::Failed { .. } => found.failed_partitions += 1,
            }
            // One that is not served holds nothing.
            let _ = shard.replay(|replay| {
                let (cache, groups) = (replay.cache(), replay.groups());
                found.num_offsets += cache.len() as u64;
                let has_no_offset = |name: &&str| !cache.has_group(name);
                found.num_groups += (cache.group_count() + groups.names().filter(has_no_offset).count()) as u64;
                found.memory_bytes += (cache.memory_bytes() + groups.memory_bytes()) as u64;
            });
        }
        found
    }
}
