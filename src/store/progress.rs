//! The passes of a store, its own and those that the application asks for: how far each is, and what it came to.

use std::collections::BTreeMap;
use std::time::Duration;

use keeplog_cleaner::{CleanOutcome, CleanReport, Progress, Watch};
use keeplog_engine::sync::{Mutex, MutexGuard, PoisonError};
use keeplog_engine::{Log, TopicPartition};

/// How far a pass under way is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassProgress {
    /// The log that is being cleaned.
    pub log: TopicPartition,
    /// Base offset of the segment at hand: a pass goes from the newest to the oldest. `None` before the first one.
    pub segment: Option<u64>,
    /// Bytes read so far.
    pub bytes_done: u64,
    /// Bytes to be read in all, as far as is known.
    pub bytes_total: u64,
    /// How long it has been at work.
    pub elapsed: Duration,
}

impl PassProgress {
    /// Bytes a second, since it began; 0 at the very beginning.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.bytes_done as f64 / seconds } else { 0.0 }
    }

    /// How long the rest will take at this rate; `None` while there is no rate.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let rate = self.bytes_per_second();
        let left = self.bytes_total.saturating_sub(self.bytes_done) as f64;
        if rate > 0.0 { Duration::try_from_secs_f64(left / rate).ok() } else { None }
    }
}

/// The passes under way.
#[derive(Default)]
pub(super) struct InProgress {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Passes begun so far: the next one's number.
    begun: u64,
    under_way: BTreeMap<u64, UnderWay>,
}

struct UnderWay {
    log: TopicPartition,
    /// When it began, on the monotonic clock.
    began: Duration,
    progress: Progress,
}

impl InProgress {
    /// Watches the pass over `log` that begins now, together with `watch`.
    pub(super) fn watch<'a>(&'a self, log: &'a Log, watch: &'a dyn Watch) -> Watched<'a> {
        let began = log.storage().monotonic();
        let mut state = self.state();
        let number = state.begun;
        state.begun += 1;
        state.under_way.insert(number, UnderWay { log: log.topic_partition().clone(), began, progress: Progress::default() });
        Watched { in_progress: self, number, watch }
    }

    /// How far each is at the time `now` of the monotonic clock; the one that began first comes first.
    pub(super) fn all(&self, now: Duration) -> Vec<PassProgress> {
        let progress = |pass: &UnderWay| PassProgress {
            log: pass.log.clone(),
            segment: pass.progress.segment,
            bytes_done: pass.progress.bytes_done,
            bytes_total: pass.progress.bytes_total,
            elapsed: now.saturating_sub(pass.began),
        };
        self.state().under_way.values().map(progress).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // each change is a single step
    }
}

/// A pass under way; it has ended when this is dropped.
pub(super) struct Watched<'a> {
    in_progress: &'a InProgress,
    number: u64,
    watch: &'a dyn Watch,
}

impl Watch for Watched<'_> {
    fn progress(&self, progress: Progress) {
        if let Some(pass) = self.in_progress.state().under_way.get_mut(&self.number) {
            pass.progress = progress;
        }
        self.watch.progress(progress);
    }

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    fn wants_room(&self) -> bool {
        self.watch.wants_room()
    }

    fn charge(&self, bytes: u64) {
        self.watch.charge(bytes);
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.in_progress.state().under_way.remove(&self.number);
    }
}

/// Says in the application's log what a pass came to: one event, with what Kafka's cleaner says and what it cost to write.
pub(super) fn summarize(log: &TopicPartition, report: &CleanReport) {
    if report.outcome != CleanOutcome::Cleaned {
        return tracing::info!(log = %log, "{report}");
    }
    let percent = |part: f64| (part * 1000.0).round() / 10.0;
    let kept = if report.bytes_read == 0 { 1.0 } else { report.bytes_kept as f64 / report.bytes_read as f64 };
    let megabytes_per_second = (report.bytes_per_second() / 1e5).round() / 10.0;
    tracing::info!(
        log = %log,
        first_dirty = report.first_dirty,
        new_dirty = report.new_dirty,
        first_uncleanable = report.first_uncleanable,
        bytes_before = report.bytes_read,
        bytes_after = report.bytes_kept,
        kept_percent = percent(kept),
        bytes_written = report.bytes_written,
        write_amplification = report.write_amplification(),
        written_per_dirty_byte = report.written_per_dirty_byte(),
        segments_before = report.segments_before,
        segments_after = report.segments_after,
        records_before = report.records_read,
        records_after = report.records_kept,
        tombstones = report.tombstones_kept,
        keyless = report.records_keyless,
        keys = report.map_size,
        map_use_percent = percent(report.map_use()),
        seconds = report.seconds,
        megabytes_per_second,
        "cleaned offsets {}..{}: {} of {} bytes stay, in {:.2} s",
        report.first_dirty,
        report.new_dirty,
        report.bytes_kept,
        report.bytes_read,
        report.seconds
    );
}

#[cfg(test)]
mod tests;
