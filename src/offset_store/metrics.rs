//! What an offset store tells of itself through the `metrics` facade, beside what the [store](crate::Store) beneath tells of its
//! logs and its cleaner.

use std::path::Path;
use std::sync::Arc;

use ::metrics::{Label, SharedString};
use keeplog_offsets::OffsetStore;

use crate::metrics::{describe, metrics};

metrics! {
    /// Every metric of an offset store.
    pub OFFSET_METRICS;
    COMMITS Counter "count" store "kafka.server.group-coordinator-metrics.offset-commit-count" ("group-coordinator-metrics: offset-commit-count")
        "offsets committed; its rate is offset-commit-rate";
    EXPIRATIONS Counter "count" store "kafka.server.group-coordinator-metrics.offset-expiration-count" ("group-coordinator-metrics: offset-expiration-count")
        "offsets removed because they had expired; its rate is offset-expiration-rate";
    DELETIONS Counter "count" store "kafka.server.group-coordinator-metrics.offset-deletion-count" ("group-coordinator-metrics: offset-deletion-count")
        "offsets deleted; its rate is offset-deletion-rate";
    LOAD_MAX Gauge "milliseconds" store "kafka.server.group-coordinator-metrics.partition-load-time-max" ("group-coordinator-metrics: partition-load-time-max")
        "longest load of a partition since the open";
    LOAD_AVG Gauge "milliseconds" store "kafka.server.group-coordinator-metrics.partition-load-time-avg" ("group-coordinator-metrics: partition-load-time-avg")
        "mean of the loads of partitions since the open";
    OFFSETS Gauge "count" store "kafka.coordinator.group.GroupMetadataManager.NumOffsets" ("GroupMetadataManager: NumOffsets")
        "committed offsets held";
    GROUPS Gauge "count" store "kafka.coordinator.group.GroupMetadataManager.NumGroups" ("GroupMetadataManager: NumGroups")
        "groups with a committed offset, or records of their own";
    BATCHES Counter "count" store "keeplog.offsets.batches-shown"
        "times that commits were shown, each with all that had become durable";
    MEMORY Gauge "bytes" store "keeplog.offsets.memory"
        "memory of the cache";
    ACTIVE Gauge "count" store "keeplog.offsets.partitions-active"
        "partitions that are served";
    LOADING Gauge "count" store "keeplog.offsets.partitions-loading"
        "partitions that are being loaded, or wait for it";
    FAILED Gauge "count" store "keeplog.offsets.partitions-failed"
        "partitions whose load failed, of which nothing is served";
}

/// The metrics of one offset store.
#[derive(Debug)]
pub(super) struct OffsetMetrics {
    directory: SharedString,
}

impl OffsetMetrics {
    pub(super) fn new(directory: &Path) -> Self {
        describe(OFFSET_METRICS);
        Self { directory: SharedString::from_shared(Arc::<str>::from(directory.display().to_string())) }
    }

    /// Sets all to what is the case now.
    pub(super) fn publish(&self, offsets: &OffsetStore) {
        let found = offsets.counters();
        let labels = || vec![Label::new("logDirectory", self.directory.clone())];
        for (name, value) in [
            (COMMITS, found.offset_commits),
            (EXPIRATIONS, found.offset_expirations),
            (DELETIONS, found.offset_deletions),
            (BATCHES, found.batches_shown),
        ] {
            ::metrics::counter!(name, labels()).absolute(value);
        }
        for (name, value) in [
            (LOAD_MAX, found.partition_load_seconds_max * 1000.0),
            (LOAD_AVG, found.partition_load_seconds * 1000.0 / found.partition_loads.max(1) as f64),
            (OFFSETS, found.num_offsets as f64),
            (GROUPS, found.num_groups as f64),
            (MEMORY, found.memory_bytes as f64),
            (ACTIVE, found.active_partitions as f64),
            (LOADING, found.loading_partitions as f64),
            (FAILED, found.failed_partitions as f64),
        ] {
            ::metrics::gauge!(name, labels()).set(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keeplog_engine::storage::{MemoryStorage, Storage};
    use keeplog_offsets::OffsetAndMetadata;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;
    use crate::{OffsetOptions, OffsetStore as Facade, StoreOptions};

    #[test]
    fn what_is_told_is_what_was_done() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        ::metrics::with_local_recorder(&recorder, || {
            let storage = MemoryStorage::new();
            let options = OffsetOptions::new().store(StoreOptions::new().background_thread(false));
            storage.create_dir(Path::new("/data")).unwrap();
            let offsets = Facade::open_with(Arc::new(storage.clone()), Path::new("/data"), options).unwrap();
            let old = OffsetAndMetadata::new(1).commit_timestamp_ms(1);
            offsets.commit("g", &[("t", 0, OffsetAndMetadata::new(1)), ("t", 1, OffsetAndMetadata::new(1)), ("t", 2, old)]).unwrap();
            offsets.delete_offsets("g", &[("t", 0)]).unwrap();
            assert_eq!(offsets.expire().unwrap().offsets, 1);
            storage.advance_ms(Duration::from_secs(1).as_millis() as u64);
            offsets.publish_metrics();
            let told: std::collections::BTreeMap<_, _> = snapshotter
                .snapshot()
                .into_vec()
                .into_iter()
                .map(|(key, _, _, value)| {
                    let number = match value {
                        DebugValue::Counter(count) => count as f64,
                        DebugValue::Gauge(value) => value.into_inner(),
                        DebugValue::Histogram(_) => f64::NAN,
                    };
                    (key.key().name().to_owned(), number)
                })
                .collect();
            for metric in OFFSET_METRICS {
                assert!(told.contains_key(metric.name), "{}", metric.name);
            }
            for (name, value) in
                [(COMMITS, 3.0), (DELETIONS, 1.0), (EXPIRATIONS, 1.0), (OFFSETS, 1.0), (GROUPS, 1.0), (ACTIVE, 4.0), (LOADING, 0.0)]
            {
                assert_eq!(told[name], value, "{name}");
            }
            assert!(told[MEMORY] > 0.0);
        });
    }
}
