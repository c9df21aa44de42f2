//! A storage whose wall clock stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::{Layer, Storage};

/// Another storage with a wall clock that shows what it was set to: for tests, and to do today what is due on
/// another day. The monotonic clock is the inner one's.
#[derive(Debug)]
pub struct FixedClock {
    inner: Arc<dyn Storage>,
    now_ms: AtomicI64,
}

impl FixedClock {
    /// `inner` at `now_ms`, ms since the Unix epoch.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>, now_ms: i64) -> Self {
        Self { inner, now_ms: AtomicI64::new(now_ms) }
    }

    /// Sets the wall clock, in ms since the Unix epoch.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Layer for FixedClock {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }
}
