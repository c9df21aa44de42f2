//! A storage whose wall clock stands still.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::{Entry, File, FileLock, Metadata, OpenMode, Storage};

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

impl Storage for FixedClock {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.inner.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.inner.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.inner.metadata(path)
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.inner.set_modified(path, modified_ms)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonicalize(path)
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }
}
