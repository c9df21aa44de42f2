//! How far a pass is, told to whoever watches it. Several may work on it.

use keeplog_engine::sync::Mutex;

use crate::options::{Progress, Watch};
use crate::work::lock;

/// The pace of a pass: its watcher sets it, and hears of it.
pub(crate) struct Pace<'a> {
    watch: &'a dyn Watch,
    progress: Mutex<Progress>,
}

impl<'a> Pace<'a> {
    /// Nothing is done, and nothing is known of what is to be done.
    pub(crate) fn new(watch: &'a dyn Watch) -> Self {
        Self { watch, progress: Mutex::new(Progress::default()) }
    }

    /// Whether the watcher wants the pass to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    /// More is to be read than was known.
    pub(crate) fn expect(&self, bytes: u64) {
        lock(&self.progress).bytes_total += bytes;
    }

    /// Before `bytes` are read; may block.
    pub(crate) fn before(&self, bytes: u32) {
        self.watch.charge(u64::from(bytes));
        let mut progress = lock(&self.progress);
        progress.bytes_done += u64::from(bytes);
        progress.bytes_total = progress.bytes_total.max(progress.bytes_done);
        // Under the lock, so that it never goes back.
        self.watch.progress(*progress);
    }

    /// Before `bytes` are written; may block.
    pub(crate) fn before_writing(&self, bytes: u64) {
        self.watch.charge(bytes);
    }
}
