//! The threads of an offset store: one syncs the commits that nobody waits for, one looks for offsets that have expired, one
//! saves snapshots, and others load partitions as long as there are some to load.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use keeplog_engine::sync::thread::{self, JoinHandle};
use keeplog_engine::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, is_finished};
use keeplog_engine::{Error, ErrorKind, Result};
use keeplog_offsets::OffsetStore;

use super::metrics::OffsetMetrics;

/// How long a thread that has nothing to do sleeps at most.
const IDLE: Duration = Duration::from_secs(60);
/// How often it is looked whether snapshots are due.
const SNAPSHOT_CHECK: Duration = Duration::from_secs(10);
/// And at least, however often it failed: each attempt writes up to all of them.
const SNAPSHOT_CHECK_MAX: Duration = Duration::from_secs(600);

pub(super) struct Background {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    has_threads: AtomicBool,
}

struct Shared {
    offsets: OffsetStore,
    metrics: OffsetMetrics,
    is_stopped: AtomicBool,
    loaders: AtomicUsize,
    check_interval: Mutex<Duration>,
    changed: Condvar,
}

impl Background {
    pub(super) fn new(offsets: OffsetStore, metrics: OffsetMetrics, check_interval: Duration) -> Self {
        let shared = Shared {
            offsets,
            metrics,
            is_stopped: AtomicBool::new(false),
            loaders: AtomicUsize::new(0),
            check_interval: Mutex::new(check_interval),
            changed: Condvar::new(),
        };
        Self { shared: Arc::new(shared), threads: Mutex::default(), has_threads: AtomicBool::new(false) }
    }

    pub(super) fn start(&self) -> Result<()> {
        self.has_threads.store(true, Ordering::Release);
        self.spawn("keeplog-commits", Shared::sync_commits)?;
        self.spawn("keeplog-expiry", Shared::expire_offsets)?;
        self.spawn("keeplog-snapshots", Shared::save_snapshots)
    }

    /// Has partitions loaded that wait for it: in other threads, or, where the store has none, in this one.
    pub(super) fn load(&self) {
        if !self.has_threads.load(Ordering::Acquire) {
            return self.shared.load_all();
        }
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        if self.shared.loaders.fetch_add(1, Ordering::AcqRel) >= most {
            // Those that load go on until nothing waits.
            self.shared.loaders.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        if let Err(error) = self.spawn("keeplog-load", Shared::load) {
            tracing::warn!(%error, "partitions are loaded in the thread that asked for it");
            self.shared.load();
        }
    }

    pub(super) fn publish_metrics(&self) {
        self.shared.metrics.publish(&self.shared.offsets);
    }

    pub(super) fn set_check_interval(&self, interval: Duration) {
        *self.shared.check_interval() = interval;
        self.shared.changed.notify_all();
    }

    /// Ends the threads, syncs and answers what is left, and saves what the next open would have to read long.
    pub(super) fn stop(&self) -> Result<()> {
        if self.shared.is_stopped.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        {
            // Under the lock, so that nobody looks before and sleeps after.
            let _interval = self.shared.check_interval();
            self.shared.changed.notify_all();
        }
        self.shared.offsets.wake();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // A callback may hold the last handle of the store; its thread can't wait for itself.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join(); // it catches its own panics
        }
        if is_planted(Defect::ForgetFlushAtClose) {
            return Ok(());
        }
        self.shared.offsets.flush()?;
        if let Err(error) = self.shared.offsets.save_snapshots_at_close() {
            tracing::warn!(%error, "snapshots of committed offsets could not be saved; the next open reads the logs");
        }
        Ok(())
    }

    fn spawn(&self, name: &'static str, work: fn(&Shared)) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| work(&shared))).is_err() {
                tracing::error!(thread = name, "a thread of the offset store died; open the store again");
            }
        };
        let started = thread::Builder::new().name(name.into()).spawn(run);
        let thread = started.map_err(|e| Error::new(ErrorKind::Io, "start a thread of the offset store", name).caused_by(e))?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !is_finished(thread));
        threads.push(thread);
        Ok(())
    }
}

impl Shared {
    fn sync_commits(&self) {
        while !self.is_stopped() {
            // A callback that panics must not leave the commits of others waiting.
            let work = || self.offsets.flush_what_waits(IDLE);
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!("a callback of a commit panicked");
            }
        }
    }

    fn expire_offsets(&self) {
        loop {
            let interval = self.check_interval();
            let asked = *interval;
            let is_as_asked = |now: &mut Duration| *now == asked && !self.is_stopped();
            let waited = self.changed.wait_timeout_while(interval, asked, is_as_asked);
            let is_due = *waited.unwrap_or_else(PoisonError::into_inner).0 == asked;
            if self.is_stopped() {
                return;
            }
            if is_due {
                if let Err(error) = self.offsets.expire() {
                    tracing::warn!(%error, "offsets that have expired could not be removed; they are tried again");
                }
                self.metrics.publish(&self.offsets);
            }
        }
    }

    fn save_snapshots(&self) {
        let mut pause = SNAPSHOT_CHECK;
        loop {
            let waited = self.changed.wait_timeout_while(self.check_interval(), pause, |_| !self.is_stopped());
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            if self.is_stopped() {
                return;
            }
            pause = match self.offsets.save_snapshots() {
                Ok(_) => SNAPSHOT_CHECK,
                Err(error) => {
                    tracing::warn!(%error, "snapshots of committed offsets could not be saved; a start reads more of the logs");
                    (pause * 2).min(SNAPSHOT_CHECK_MAX)
                }
            };
        }
    }

    fn load(&self) {
        loop {
            self.load_all();
            self.loaders.fetch_sub(1, Ordering::AcqRel);
            // Whoever asked while this one was about to end left it to this one.
            if self.is_stopped() || !self.offsets.has_waiting_loads() {
                return;
            }
            self.loaders.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn load_all(&self) {
        while !self.is_stopped() && self.offsets.load_next().is_some() {}
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn check_interval(&self) -> MutexGuard<'_, Duration> {
        self.check_interval.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "an offset store was dropped with commits that could not be made durable");
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}
