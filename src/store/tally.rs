//! What the passes of a store have come to, its own and those that the application asked for.

use std::collections::BTreeMap;

use keeplog_cleaner::CleanReport;
use keeplog_engine::TopicPartition;
use keeplog_engine::sync::{Mutex, MutexGuard, PoisonError};

/// The last pass over a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastClean {
    /// What it did.
    pub report: CleanReport,
    /// When it ended, ms since the Unix epoch.
    pub ended_ms: i64,
}

/// Sums over passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) passes: u64,
    pub(super) failed_passes: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) seconds: f64,
    pub(super) last: BTreeMap<TopicPartition, LastClean>,
}

#[derive(Default)]
pub(super) struct Tally(Mutex<Sums>);

impl Tally {
    /// A pass has cleaned something.
    pub(super) fn cleaned(&self, report: &CleanReport) {
        let mut sums = self.sums();
        sums.passes += 1;
        sums.bytes_read += report.bytes_read;
        sums.bytes_written += report.bytes_written;
        sums.seconds += report.seconds;
    }

    /// It was the last one over `log`, which is still there.
    pub(super) fn note_last(&self, log: TopicPartition, last: LastClean) {
        self.sums().last.insert(log, last);
    }

    /// A pass has ended with an error.
    pub(super) fn failed(&self) {
        self.sums().failed_passes += 1;
    }

    /// A log is gone.
    pub(super) fn forget(&self, log: &TopicPartition) {
        self.sums().last.remove(log);
    }

    pub(super) fn so_far(&self) -> Sums {
        self.sums().clone()
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // numbers that are right at any time
    }
}
