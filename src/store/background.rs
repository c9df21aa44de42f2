//! The background thread: cleans what is due, applies retention, saves checkpoints.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use keeplog_cleaner::CleanOutcome;
use keeplog_cleaner::schedule::AfterFailure;
use keeplog_engine::sync::thread::{self, JoinHandle};
use keeplog_engine::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use keeplog_engine::{Error, ErrorKind, Log, Result, TopicPartition};

use super::Inner;
use super::cleaning::For;
use super::due::Due;
use super::pace::Pace;
use super::progress::PassProgress;
use super::tally::{LastClean, Sums};

/// How often the checkpoint of the cleaner is saved while one pass follows the other: it names every log there is.
const CLEANED_SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// How long a thread with nothing to clean rests at least, whatever the settings say: it must not take a core for itself.
const REST_MIN: Duration = Duration::from_millis(1);

/// How often a thread at rest looks whether a log has changed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What the cleaner of a store has done and is doing. As the metrics do, it counts all passes since the open: those of the
/// background, and those that the application asked for ([`Store::clean`](crate::Store::clean)) but for dry runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CleanerStatus {
    /// The log that the background is cleaning.
    pub cleaning: Option<TopicPartition>,
    /// The passes under way, the first begun first.
    pub under_way: Vec<PassProgress>,
    /// Passes that cleaned something.
    pub passes: u64,
    /// Passes that ended with an error.
    pub failed_passes: u64,
    /// Bytes of the segments that passes cleaned, before.
    pub bytes_read: u64,
    /// Bytes of new segments.
    pub bytes_written: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// Seconds that passes have rested so as not to disturb appends: see [`StoreOptions::yield_to_appends`](crate::StoreOptions::yield_to_appends).
    pub rested_seconds: f64,
    /// The last pass of each log that cleaned something.
    pub last: BTreeMap<TopicPartition, LastClean>,
    /// Logs whose last pass in the background failed, with the reason. They are left alone until the store is opened again.
    pub uncleanable: BTreeMap<TopicPartition, String>,
    /// Logs whose cleaning is paused, and how often: see [`Store::pause_cleaning`](crate::Store::pause_cleaning).
    pub paused: BTreeMap<TopicPartition, u32>,
    /// How often a log was looked at, to tell how dirty it is. Only those are that changed, or became due.
    pub dirtiness_looks: u64,
    /// How often a log was looked at, to remove old segments or to close the active one.
    pub upkeep_looks: u64,
    /// Why the thread has died, if it has. Nothing is cleaned any more then.
    pub dead: Option<String>,
}

/// The rounds of background work, and the thread that makes them.
pub(super) struct Background {
    shared: Arc<Shared>,
    pace: Arc<Pace>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    alarm: Alarm,
    status: Mutex<Known>,
    due: Due,
    saved: Mutex<Saved>,
}

/// What the rounds know.
#[derive(Default)]
struct Known {
    cleaning: Option<TopicPartition>,
    uncleanable: BTreeMap<TopicPartition, String>,
    dead: Option<String>,
}

/// What was saved when, on the monotonic clock.
struct Saved {
    /// All checkpoints.
    all: Duration,
    /// How far the cleaner got.
    cleaned: Duration,
    /// Passes have ended since.
    is_behind: bool,
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

    /// Returns whether it was set.
    fn wait(&self, at_most: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.is_set(), at_most, |is_set| !*is_set);
        let (mut is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut is_set, false)
    }

    fn is_set(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background {
    pub(super) fn start(inner: &Arc<Inner>) -> Result<Self> {
        let now = inner.data_dir.storage().monotonic();
        let saved = Mutex::new(Saved { all: now, cleaned: now, is_behind: false });
        let shared = Arc::new(Shared { alarm: Alarm::default(), status: Mutex::default(), due: Due::default(), saved });
        let mut thread = None;
        if inner.options().background_thread {
            let worker = Worker { inner: Arc::downgrade(inner), shared: Arc::clone(&shared) };
            let builder = thread::Builder::new().name("keeplog-cleaner".into());
            let started = builder.spawn(move || worker.run());
            thread = Some(started.map_err(|e| Error::new(ErrorKind::Io, "start the cleaner thread", "").caused_by(e))?);
        }
        Ok(Self { shared, pace: Arc::clone(&inner.pace), thread: Mutex::new(thread) })
    }

    /// One round in the caller's thread.
    pub(super) fn round(&self, inner: &Inner) -> Option<Duration> {
        self.shared.round(inner)
    }

    pub(super) fn wake(&self) {
        self.shared.alarm.set();
    }

    pub(super) fn status(&self, inner: &Inner) -> CleanerStatus {
        self.shared.whole_status(inner)
    }

    /// A log was opened anew: it may be cleanable now.
    pub(super) fn forget_failure(&self, name: &TopicPartition) {
        self.shared.status().uncleanable.remove(name);
    }

    /// A log is gone.
    pub(super) fn forget(&self, name: &TopicPartition) {
        self.shared.status().uncleanable.remove(name);
    }

    /// Returns once the thread has ended; passes under way give up.
    pub(super) fn stop(&self) {
        self.pace.stop();
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
                self.rest(wait);
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

impl Worker {
    /// Until the next round is due, a log has changed, or somebody wakes the thread. A log that is written to at full speed
    /// would grow to many times what is live in it by the next round.
    fn rest(&self, wait: Duration) {
        let mut left = wait;
        loop {
            let slice = left.min(LOOK_INTERVAL);
            let is_woken = self.shared.alarm.wait(slice) || self.inner.upgrade().is_none_or(|inner| inner.data_dir.has_changed());
            left -= slice;
            if is_woken || left.is_zero() {
                return;
            }
        }
    }
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, Known> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner) // each change is a single step
    }

    fn whole_status(&self, inner: &Inner) -> CleanerStatus {
        let [dirtiness_looks, upkeep_looks] = self.due.looks();
        let Sums { passes, failed_passes, bytes_read, bytes_written, seconds, last } = inner.tally.so_far();
        let (under_way, rested) = (inner.in_progress.all(inner.data_dir.storage().monotonic()), inner.guard.rested());
        let paused = inner.passes.paused();
        let known = self.status();
        CleanerStatus {
            cleaning: known.cleaning.clone(),
            under_way,
            passes,
            failed_passes,
            bytes_read,
            bytes_written,
            seconds,
            rested_seconds: rested.as_secs_f64(),
            last,
            uncleanable: known.uncleanable.clone(),
            paused,
            dirtiness_looks,
            upkeep_looks,
            dead: known.dead.clone(),
        }
    }

    /// One round; `None` when it is time to end, else how long to wait for the next one.
    fn round(&self, inner: &Inner) -> Option<Duration> {
        let (is_enabled, backoff_ms, interval_ms) = {
            let options = inner.options();
            (options.log_cleaner_enable, options.log_cleaner_backoff_ms, options.log_flush_offset_checkpoint_interval_ms)
        };
        let cleaned = is_enabled && self.clean_dirtiest(inner);
        if inner.pace.is_stopped() {
            return None;
        }
        for log in self.due.for_upkeep(inner) {
            self.keep_up(inner, &log);
        }
        self.save(inner, cleaned, Duration::from_millis(interval_ms));
        Some(if cleaned { Duration::ZERO } else { Duration::from_millis(backoff_ms.min(interval_ms)).max(REST_MIN) })
    }

    /// Cleans the log that needs it most; whether there was one and its pass did not fail.
    fn clean_dirtiest(&self, inner: &Inner) -> bool {
        let next = self.due.next_to_clean(inner, |log| {
            let name = log.topic_partition();
            !log.needs_reopen() && !inner.passes.is_paused(name) && !self.status().uncleanable.contains_key(name)
        });
        let Some(log) = next else { return false };
        let name = log.topic_partition().clone();
        self.status().cleaning = Some(name.clone());
        let result = inner.clean(&log, For::Background);
        self.saved().is_behind |= result.as_ref().is_ok_and(|report| report.outcome == CleanOutcome::Cleaned);
        // Both locks: what is known of a log that is deleted meanwhile goes with it.
        let logs = inner.logs();
        let mut status = self.status();
        status.cleaning = None;
        if !logs.holds(&log) {
            return false;
        }
        match result {
            Ok(_) => true,
            Err(error) if AfterFailure::of(&error) == AfterFailure::TryLater => {
                tracing::warn!(%error, log = %name, "a log could not be cleaned now; it is tried again later");
                false
            }
            Err(error) if error.kind() == ErrorKind::Closed => false,
            Err(error) => {
                tracing::error!(%error, log = %name, "a log could not be cleaned and is left alone until the store is opened again");
                status.uncleanable.insert(name, format!("{error:?}"));
                inner.data_dir.note_change(log.topic_partition());
                false
            }
        }
    }

    /// Removes old segments of a log, and closes its active one if it is due.
    fn keep_up(&self, inner: &Inner, log: &Log) {
        let name = log.topic_partition();
        // Whatever brings it back into use notes a change in it.
        let is_left_alone = || inner.passes.is_paused(name) || self.status().uncleanable.contains_key(name);
        if log.needs_reopen() || log.current_options().cleanup_policy.compacts() && is_left_alone() {
            return;
        }
        let kept_up = self.retain(log).and_then(|()| {
            let retention = log.retention_due_ms()?;
            if !inner.is_to_be_compacted(log) {
                return Ok(retention);
            }
            // Of one that was closed now, nothing is due.
            log.roll_if_due()?;
            Ok(retention.into_iter().chain(log.roll_due_ms()).min())
        });
        match kept_up {
            Ok(moment_ms) => self.due.set_upkeep(log, moment_ms),
            Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned | ErrorKind::Corrupt) => {}
            Err(error) => {
                tracing::error!(%error, log = %name, "old segments could not be removed, or the active one not be closed; it is tried again");
                let backoff_ms = i64::try_from(inner.options().log_cleaner_backoff_ms).unwrap_or(i64::MAX);
                self.due.set_upkeep(log, Some(log.storage().now_ms().saturating_add(backoff_ms)));
            }
        }
    }

    fn retain(&self, log: &Log) -> Result<()> {
        let report = log.apply_retention()?;
        if report.segments > 0 {
            tracing::info!(log = %log.topic_partition(), segments = report.segments, bytes = report.bytes, "old segments were removed");
        }
        Ok(())
    }

    /// Saves the checkpoints when it is time, and how far the cleaner got when there is nothing more to clean.
    fn save(&self, inner: &Inner, cleaned: bool, interval: Duration) {
        let is_time = {
            let now = inner.data_dir.storage().monotonic();
            let mut saved = self.saved();
            let is_time = now.saturating_sub(saved.all) >= interval;
            let is_wanted = saved.is_behind && (!cleaned || now.saturating_sub(saved.cleaned) >= CLEANED_SAVE_INTERVAL);
            if !is_time && !is_wanted {
                return;
            }
            if is_time {
                saved.all = now;
            }
            (saved.cleaned, saved.is_behind) = (now, false);
            is_time
        };
        if is_time {
            // Its lock is taken inside that of the logs.
            let status = self.whole_status(inner);
            inner.metrics.publish(inner, &status);
        }
        let written = if is_time { inner.checkpoint() } else { inner.data_dir.write_checkpoints() };
        if let Err(error) = written {
            tracing::error!(%error, "the checkpoints could not be saved; a restart will scan more, or clean it again");
        }
    }

    fn saved(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner) // moments, whole at any time
    }
}
