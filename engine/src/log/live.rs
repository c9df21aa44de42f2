//! Settings that may change while a log is open.

use super::Log;
use crate::config::LogOptions;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::{Error, Result};

/// The settings as they are now.
#[derive(Debug)]
pub(super) struct Live {
    options: Mutex<LogOptions>,
    /// Asked by every append.
    roll_ms: AtomicI64,
}

impl Live {
    pub(super) fn new(options: &LogOptions) -> Self {
        Self { options: Mutex::new(options.clone()), roll_ms: AtomicI64::new(options.roll_ms()) }
    }

    pub(super) fn options(&self) -> LogOptions {
        self.lock().clone()
    }

    pub(super) fn roll_ms(&self) -> i64 {
        self.roll_ms.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, LogOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner) // changed once it is known that all of it holds
    }
}

impl Log {
    /// Its settings as they are now.
    #[must_use]
    pub fn current_options(&self) -> LogOptions {
        self.inner.live.options()
    }

    /// Takes over, of `options`, what may change while a log is open: `cleanup_policy`, `retention_ms`, `retention_bytes`,
    /// `delete_retention_ms`, `min_compaction_lag_ms`, `max_compaction_lag_ms` and `min_cleanable_dirty_ratio`. They count from
    /// the next look at the log on. All others stay as the log was opened with them.
    ///
    /// A pass under way goes by what it began with; a store ends it where the policy does not compact any more.
    ///
    /// # Errors
    /// `InvalidInput` for settings that can't work, and for a policy that compacts if that of the open did not: such a log may
    /// hold records without a key, of which a pass keeps none. Open it anew for that.
    pub fn set_options(&self, options: &LogOptions) -> Result<()> {
        options.check()?;
        if options.cleanup_policy.compacts() && !self.options().cleanup_policy.compacts() {
            let why = "it was opened without compaction, and may hold records without a key: open it anew with this cleanup_policy";
            return Err(Error::invalid("set the options of", why).at(self.path()));
        }
        let mut live = self.inner.live.lock();
        *live = LogOptions {
            cleanup_policy: options.cleanup_policy,
            retention_ms: options.retention_ms,
            retention_bytes: options.retention_bytes,
            delete_retention_ms: options.delete_retention_ms,
            min_compaction_lag_ms: options.min_compaction_lag_ms,
            max_compaction_lag_ms: options.max_compaction_lag_ms,
            min_cleanable_dirty_ratio: options.min_cleanable_dirty_ratio,
            ..live.clone()
        };
        self.inner.live.roll_ms.store(live.roll_ms(), Ordering::Relaxed);
        drop(live);
        self.inner.note_change();
        Ok(())
    }
}
