//! What a store tells of itself through the `metrics` facade: nothing is kept or sent unless the application installs a
//! recorder. What each metric means is in [`METRICS`] and, for people, in `docs/METRICS.md`.
//!
//! What Kafka has too has Kafka's name, its JMX domain and type before it. Every metric has the label `logDirectory`, the
//! directory of the store; those of one log have `topic` and `partition` as well.

use std::sync::Arc;
use std::time::Duration;

use keeplog_cleaner::CleanReport;
use keeplog_engine::sync::{Mutex, PoisonError};
use keeplog_engine::{Log, TopicPartition};
use metrics::{Label, SharedString};

use super::{CleanerStatus, Inner};

use crate::metrics::{MetricKind, describe, metrics};

metrics! {
    /// Every metric of a store.
    pub METRICS;
    RECOPY Gauge "percent" store "kafka.log.LogCleaner.cleaner-recopy-percent" ("LogCleaner: cleaner-recopy-percent")
        "of the bytes that the last pass read, those that stay";
    CLEAN_TIME Gauge "seconds" store "kafka.log.LogCleaner.max-clean-time-secs" ("LogCleaner: max-clean-time-secs")
        "how long the last pass took";
    BUFFER_USE Gauge "percent" store "kafka.log.LogCleaner.max-buffer-utilization-percent" ("LogCleaner: max-buffer-utilization-percent")
        "keys of the last pass, of those that log_cleaner_dedupe_buffer_size has room for";
    COMPACTION_DELAY Gauge "seconds" store "kafka.log.LogCleaner.max-compaction-delay-secs" ("LogCleaner: max-compaction-delay-secs")
        "how long the log of the last pass had been overdue by max_compaction_lag_ms; 0 if it was not";
    DEAD_THREADS Gauge "count" store "kafka.log.LogCleaner.DeadThreadCount" ("LogCleaner: DeadThreadCount")
        "1 if the cleaner thread has died: nothing is cleaned until the store is opened again";
    IO Counter "bytes" store "kafka.utils.Throttler.cleaner-io" ("Throttler: cleaner-io")
        "bytes that passes have read and written, told while they are under way; its rate is what log_cleaner_io_max_bytes_per_second bounds";
    THREADS Gauge "count" store "keeplog.cleaner.threads"
        "threads that work on a pass: log_cleaner_threads, or 0 where log_cleaner_enable is off, the cleaner thread has died, or the store is closed";
    PAUSED_LOGS Gauge "count" store "keeplog.cleaner.paused-logs"
        "logs whose cleaning is paused";
    RESTED Gauge "seconds" store "keeplog.cleaner.rested-seconds"
        "how long passes have rested since the open so as not to disturb appends: see yield_to_appends";
    UNCLEANABLE_LOGS Gauge "count" store "kafka.log.LogCleanerManager.uncleanable-partitions-count" ("LogCleanerManager: uncleanable-partitions-count")
        "logs whose last pass failed and that are left alone";
    UNCLEANABLE_BYTES Gauge "bytes" store "kafka.log.LogCleanerManager.uncleanable-bytes" ("LogCleanerManager: uncleanable-bytes")
        "dirty bytes of those logs";
    MAX_DIRTY Gauge "percent" store "kafka.log.LogCleanerManager.max-dirty-percent" ("LogCleanerManager: max-dirty-percent")
        "dirty ratio of the dirtiest log when the cleaner last chose one";
    SINCE_LAST_RUN Gauge "milliseconds" store "kafka.log.LogCleanerManager.time-since-last-run-ms" ("LogCleanerManager: time-since-last-run-ms")
        "how long ago the cleaner last looked for a log to clean";
    PASSES Counter "count" store "keeplog.cleaner.passes"
        "passes that cleaned something, of the background and those that the application asked for";
    REREADING_PASSES Counter "count" store "keeplog.cleaner.rereading-passes"
        "those of them that read their log several times, since log_cleaner_dedupe_buffer_size takes only a part of its keys";
    FAILED_PASSES Counter "count" store "keeplog.cleaner.failed-passes"
        "passes that ended with an error";
    BYTES_READ Counter "bytes" store "keeplog.cleaner.bytes-read"
        "bytes of the segments that passes cleaned, before";
    BYTES_DROPPED Counter "bytes" store "keeplog.cleaner.bytes-dropped"
        "bytes that passes dropped";
    BYTES_WRITTEN Counter "bytes" store "keeplog.cleaner.bytes-written"
        "bytes of new segments; over keeplog.cleaner.bytes-dropped it is the write amplification";
    PASS_SECONDS Histogram "seconds" store "keeplog.cleaner.pass-seconds"
        "how long each pass took";
    LOGS Gauge "count" store "keeplog.logs"
        "open logs";
    ALL_BYTES Gauge "bytes" store "keeplog.size"
        "bytes of the segments of all open logs";
    ALL_SEGMENTS Gauge "count" store "keeplog.segments"
        "segments of all open logs";
    LOG_START Gauge "offset" log "kafka.log.Log.LogStartOffset" ("Log: LogStartOffset")
        "first offset that can be read";
    LOG_END Gauge "offset" log "kafka.log.Log.LogEndOffset" ("Log: LogEndOffset")
        "one past the last offset";
    LOG_SIZE Gauge "bytes" log "kafka.log.Log.Size" ("Log: Size")
        "bytes of its segments";
    LOG_SEGMENTS Gauge "count" log "kafka.log.Log.NumLogSegments" ("Log: NumLogSegments")
        "its segments";
    LOG_PASSES Counter "count" log "keeplog.log.passes"
        "passes that cleaned it";
    LOG_BYTES_READ Counter "bytes" log "keeplog.log.bytes-read"
        "bytes that they read";
    LOG_BYTES_DROPPED Counter "bytes" log "keeplog.log.bytes-dropped"
        "bytes that they dropped";
    LOG_BYTES_WRITTEN Counter "bytes" log "keeplog.log.bytes-written"
        "bytes that they wrote";
}

/// The metrics of one store.
pub(super) struct StoreMetrics {
    directory: SharedString,
    selection: Mutex<Selection>,
}

/// What the cleaner found when it last chose a log.
#[derive(Clone, Copy, Debug, Default)]
struct Selection {
    /// When, on the monotonic clock.
    at: Option<Duration>,
    /// Dirty ratio of the dirtiest log.
    ratio_max: f64,
}

impl StoreMetrics {
    /// Describes all metrics to the recorder, if there is one, and gives those of the whole store a value: one that is missing
    /// until it happens can't be told from one that is not there.
    pub(super) fn new(directory: &std::path::Path) -> Self {
        describe(METRICS);
        let directory = Arc::<str>::from(directory.display().to_string());
        let this = Self { directory: SharedString::from_shared(directory), selection: Mutex::default() };
        for metric in METRICS.iter().filter(|metric| !metric.per_log) {
            match metric.kind {
                MetricKind::Gauge => this.set(metric.name, 0.0),
                MetricKind::Counter => this.count(metric.name, 0),
                MetricKind::Histogram => drop(metrics::histogram!(metric.name, this.labels())),
            }
        }
        this
    }

    /// A pass is about to read or write so much.
    pub(super) fn charged(&self, bytes: u64) {
        self.count(IO, bytes);
    }

    /// The cleaner has looked for a log to clean, at `now` of the monotonic clock; the dirtiest has this dirty ratio.
    pub(super) fn selected(&self, now: Duration, ratio_max: f64) {
        *self.selection.lock().unwrap_or_else(PoisonError::into_inner) = Selection { at: Some(now), ratio_max };
    }

    /// A pass over `log` has ended; it was overdue by `overdue_ms` when it began.
    pub(super) fn pass_ended(&self, log: &Log, report: &CleanReport, overdue_ms: i64) {
        let kept = if report.bytes_read == 0 { 1.0 } else { report.bytes_kept as f64 / report.bytes_read as f64 };
        self.set(RECOPY, kept * 100.0);
        self.set(CLEAN_TIME, report.seconds);
        self.set(BUFFER_USE, report.map_use() * 100.0);
        self.set(COMPACTION_DELAY, overdue_ms as f64 / 1000.0);
        metrics::histogram!(PASS_SECONDS, self.labels()).record(report.seconds);
        self.count(REREADING_PASSES, u64::from(report.readings > 1));
        let (all, its_own) = (self.labels(), self.labels_of(log.topic_partition()));
        for (total, of_log, count) in [
            (PASSES, LOG_PASSES, 1),
            (BYTES_READ, LOG_BYTES_READ, report.bytes_read),
            (BYTES_DROPPED, LOG_BYTES_DROPPED, report.bytes_dropped()),
            (BYTES_WRITTEN, LOG_BYTES_WRITTEN, report.bytes_written),
        ] {
            metrics::counter!(total, all.clone()).increment(count);
            metrics::counter!(of_log, its_own.clone()).increment(count);
        }
        self.publish_log(log);
    }

    /// A pass has failed.
    pub(super) fn pass_failed(&self) {
        self.count(FAILED_PASSES, 1);
    }

    /// Sets all gauges that tell what is the case now.
    pub(super) fn publish(&self, inner: &Inner, status: &CleanerStatus) {
        let (logs, is_closed): (Vec<Log>, bool) = {
            let logs = inner.logs();
            (logs.open.values().cloned().collect(), logs.closed)
        };
        let threads = {
            let options = inner.options();
            let works = options.log_cleaner_enable && status.dead.is_none() && !is_closed;
            if works { options.log_cleaner_threads } else { 0 }
        };
        self.set(THREADS, threads as f64);
        self.set(PAUSED_LOGS, status.paused.len() as f64);
        self.set(RESTED, status.rested_seconds);
        self.publish_selection(inner.data_dir.storage().monotonic());
        self.set(DEAD_THREADS, if status.dead.is_some() { 1.0 } else { 0.0 });
        self.set(UNCLEANABLE_LOGS, status.uncleanable.len() as f64);
        let uncleanable = logs.iter().filter(|log| status.uncleanable.contains_key(log.topic_partition()));
        self.set(UNCLEANABLE_BYTES, uncleanable.map(|log| inner.dirty_bytes(log)).sum::<u64>() as f64);
        let (mut bytes, mut segments) = (0, 0);
        for log in &logs {
            let (its_bytes, its_segments) = self.publish_log(log);
            bytes += its_bytes;
            segments += its_segments;
        }
        self.set(LOGS, logs.len() as f64);
        self.set(ALL_BYTES, bytes as f64);
        self.set(ALL_SEGMENTS, segments as f64);
    }

    fn publish_selection(&self, now: Duration) {
        let selection = *self.selection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = selection.at {
            self.set(MAX_DIRTY, selection.ratio_max * 100.0);
            self.set(SINCE_LAST_RUN, now.saturating_sub(at).as_millis() as f64);
        }
    }

    /// Returns its bytes and segments.
    fn publish_log(&self, log: &Log) -> (u64, usize) {
        let set = log.segments();
        let bytes = set.all().iter().map(|segment| segment.size_bytes()).sum();
        let labels = self.labels_of(log.topic_partition());
        let segments = set.all().len();
        for (name, value) in [
            (LOG_START, log.start_offset() as f64),
            (LOG_END, log.end_offset() as f64),
            (LOG_SIZE, bytes as f64),
            (LOG_SEGMENTS, segments as f64),
        ] {
            metrics::gauge!(name, labels.clone()).set(value);
        }
        (bytes, segments)
    }

    fn count(&self, name: &'static str, more: u64) {
        metrics::counter!(name, self.labels()).increment(more);
    }

    fn set(&self, name: &'static str, value: f64) {
        metrics::gauge!(name, self.labels()).set(value);
    }

    fn labels(&self) -> Vec<Label> {
        vec![Label::new("logDirectory", self.directory.clone())]
    }

    fn labels_of(&self, log: &TopicPartition) -> Vec<Label> {
        let mut labels = self.labels();
        labels.push(Label::new("topic", log.topic().to_owned()));
        labels.push(Label::new("partition", log.partition().to_string()));
        labels
    }
}

#[cfg(test)]
mod tests;
