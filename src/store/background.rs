//! The background thread: cleans what is due, applies retention, saves checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use keeplog_cleaner::CleanReport;
use keeplog_cleaner::schedule::AfterFailure;
use keeplog_engine::sync::thread::{self, JoinHandle};
use keeplog_engine::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use keeplog_engine::{Error, ErrorKind, Log, Result, TopicPartition};

use super::Inner;
use super::pace::{Pace, Paced};
use super::passes::PassProgress;

/// What the background cleaner has done and is doing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CleanerStatus {
    /// The log that is being cleaned.
    pub cleaning: Option<TopicPartition>,
    /// The passes under way, also those that the application asked for ([`Store::clean`](crate::Store::clean)), by name of the log.
    pub under_way: Vec<PassProgress>,
    /// Passes finished.
    pub passes: u64,
    /// Bytes read by them.
    pub bytes_read: u64,
    /// Bytes written by them.
    pub bytes_written: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// The last pass of each log.
    pub last: BTreeMap<TopicPartition, LastClean>,
    /// Logs whose last pass failed, with the reason. They are left alone until the store is opened again.
    pub uncleanable: BTreeMap<TopicPartition, String>,
    /// Why the thread has died, if it has. Nothing is cleaned any more then.
    pub dead: Option<String>,
}

/// The last pass over a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastClean {
    /// What it did.
    pub report: CleanReport,
    /// When it ended, ms since the Unix epoch.
    pub ended_ms: i64,
}

/// The rounds of background work, and the thread that makes them.
pub(super) struct Background {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    pace: Pace,
    alarm: Alarm,
    status: Mutex<CleanerStatus>,
    /// When the checkpoints were saved last, on the monotonic clock.
    saved: Mutex<Duration>,
    /// How many passes over others the logs that are worth one have let go first.
    waited: Mutex<BTreeMap<TopicPartition, u32>>,
}

/// Wakes the thread: from the wait that it is in, or else from its next one.
#[derive(Default)]
struct Alarm {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    fn set(&self) {
        *self.is_set() = true;
        self.changed.notify_one();
    }

    fn wait(&self, at_most: Duration) {
        let waited = self.changed.wait_timeout_while(self.is_set(), at_most, |is_set| !*is_set);
        let (mut is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *is_set = false;
    }

    fn is_set(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background {
    pub(super) fn start(inner: &Arc<Inner>) -> Result<Self> {
        let now = inner.data_dir.storage().monotonic();
        let pace = Pace::new(inner.options.log_cleaner_io_max_bytes_per_second, now);
        let saved = Mutex::new(now);
        let shared = Arc::new(Shared { pace, alarm: Alarm::default(), status: Mutex::default(), saved, waited: Mutex::default() });
        let mut thread = None;
        if inner.options.background_thread {
            let worker = Worker { inner: Arc::downgrade(inner), shared: Arc::clone(&shared) };
            let builder = thread::Builder::new().name("keeplog-cleaner".into());
            let started = builder.spawn(move || worker.run());
            thread = Some(started.map_err(|e| Error::new(ErrorKind::Io, "start the cleaner thread", "").caused_by(e))?);
        }
        Ok(Self { shared, thread: Mutex::new(thread) })
    }

    /// One round in the caller's thread.
    pub(super) fn round(&self, inner: &Inner) -> Option<Duration> {
        self.shared.round(inner)
    }

    pub(super) fn wake(&self) {
        self.shared.alarm.set();
    }

    pub(super) fn status(&self) -> CleanerStatus {
        self.shared.status().clone()
    }

    /// A log was opened anew: it may be cleanable now.
    pub(super) fn forget_failure(&self, name: &TopicPartition) {
        self.shared.status().uncleanable.remove(name);
    }

    /// A log is gone.
    pub(super) fn forget(&self, name: &TopicPartition) {
        let mut status = self.shared.status();
        status.uncleanable.remove(name);
        status.last.remove(name);
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.shared.pace
    }

    /// Returns once the thread has ended; a pass under way gives up.
    pub(super) fn stop(&self) {
        self.shared.pace.stop();
        self.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread itself may hold the last handle of a store; it can't wait for itself.
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            let _ = thread.join(); // it catches its own panics and reports them in the status
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

struct Worker {
    inner: Weak<Inner>,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(&self) {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while let Some(wait) = self.inner.upgrade().and_then(|inner| self.shared.round(&inner)) {
                self.shared.alarm.wait(wait);
            }
        }));
        if let Err(panic) = ended {
            let what = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
            let what = what.unwrap_or_else(|| "a panic".into());
            tracing::error!(%what, "the cleaner thread died; nothing is cleaned until the store is opened again");
            self.shared.status().dead = Some(what);
        }
    }
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, CleanerStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner) // plain numbers: never half changed in a way that matters
    }

    /// One round over all logs; `None` when it is time to end, else how long to wait for the next one.
    fn round(&self, inner: &Inner) -> Option<Duration> {
        let backoff = Duration::from_millis(inner.options.log_cleaner_backoff_ms);
        let mut cleaned = false;
        if inner.options.log_cleaner_enable {
            cleaned = self.clean_dirtiest(inner);
        }
        if self.pace.is_stopped() {
            return None;
        }
        self.housekeep(inner);
        Some(if cleaned {
            Duration::ZERO
        } else {
            backoff.min(Duration::from_millis(inner.options.log_flush_offset_checkpoint_interval_ms))
        })
    }

    /// Cleans the log that needs it most; whether there was one and its pass went well.
    fn clean_dirtiest(&self, inner: &Inner) -> bool {
        let uncleanable: BTreeSet<_> = self.status().uncleanable.keys().cloned().collect();
        let logs: Vec<_> =
            inner.logs().open.values().filter(|l| !l.needs_reopen() && !uncleanable.contains(l.topic_partition())).cloned().collect();
        let next = {
            let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner); // counts, whole at any time
            inner.next_to_clean(&logs, &mut waited)
        };
        let Some(log) = next else { return false };
        let name = log.topic_partition().clone();
        self.status().cleaning = Some(name.clone());
        let result = inner.clean(&log, &Paced { pace: &self.pace, log: &log });
        // Both locks: what is known of a log that is deleted meanwhile goes with it.
        let logs = inner.logs();
        let mut status = self.status();
        status.cleaning = None;
        // Clones of a handle share what it refers to.
        if !logs.open.get(&name).is_some_and(|open| std::ptr::eq(open.topic_partition(), log.topic_partition())) {
            return false;
        }
        match result {
            Ok(report) => {
                status.passes += 1;
                status.bytes_read += report.bytes_read;
                status.bytes_written += report.bytes_written;
                status.seconds += report.seconds;
                status.last.insert(name, LastClean { report, ended_ms: log.storage().now_ms() });
                true
            }
            Err(error) if AfterFailure::of(&error) == AfterFailure::TryLater => {
                tracing::warn!(%error, log = %name, "a log could not be cleaned now; it is tried again later");
                false
            }
            Err(error) if error.kind() == ErrorKind::Closed => false,
            Err(error) => {
                tracing::error!(%error, log = %name, "a log could not be cleaned and is left alone until the store is opened again");
                status.uncleanable.insert(name, format!("{error:?}"));
                false
            }
        }
    }

    fn housekeep(&self, inner: &Inner) {
        for log in inner.logs().open.values().cloned().collect::<Vec<_>>() {
            self.retain(&log);
        }
        let now = inner.data_dir.storage().monotonic();
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner); // a moment, whole at any time
        if now.saturating_sub(*saved) >= Duration::from_millis(inner.options.log_flush_offset_checkpoint_interval_ms) {
            *saved = now;
            // Its lock is taken inside that of the logs.
            let status = self.status().clone();
            inner.metrics.publish(inner, &status);
            if let Err(error) = inner.checkpoint() {
                tracing::error!(%error, "the checkpoints could not be saved; a restart will scan more");
            }
        }
    }

    fn retain(&self, log: &Log) {
        match log.apply_retention() {
            Ok(report) if report.segments > 0 => {
                tracing::info!(log = %log.topic_partition(), segments = report.segments, bytes = report.bytes, "old segments were removed");
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned | ErrorKind::Corrupt) => {}
            Err(error) => tracing::error!(%error, log = %log.topic_partition(), "retention failed"),
        }
    }
}
