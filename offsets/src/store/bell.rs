//! Wakes the background thread: from the wait that it is in, or else from its next one.

use std::time::Duration;

use keeplog_engine::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        let was_rung = std::mem::replace(&mut *self.is_rung(), true);
        // Whoever rang before has woken it.
        if !was_rung {
            self.changed.notify_one();
        }
    }

    /// Waits for a ring, no longer than `at_most`. Returns whether there was one.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.is_rung(), at_most, |is_rung| !*is_rung);
        std::mem::replace(&mut *waited.unwrap_or_else(PoisonError::into_inner).0, false)
    }

    /// Lets `time` pass, whatever rings.
    pub(super) fn pause(&self, time: Duration) {
        drop(self.changed.wait_timeout_while(self.is_rung(), time, |_| true));
    }

    fn is_rung(&self) -> MutexGuard<'_, bool> {
        self.is_rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
