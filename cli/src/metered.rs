//! A storage that counts the bytes that go through it, so that work inside the libraries can be watched.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::door::Storage;
use crate::door::storage::{Entry, File, FileLock, Metadata, OpenMode};

/// Counts the bytes read through it (a mapped file counts as read), and those written to logs.
#[derive(Debug)]
pub(crate) struct Metered {
    inner: Arc<dyn Storage>,
    read: Arc<AtomicU64>,
    appended: Arc<AtomicU64>,
}

impl Metered {
    pub(crate) fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, read: Arc::default(), appended: Arc::default() }
    }

    /// Bytes read so far; goes on counting.
    pub(crate) fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Bytes written to segments so far; goes on counting. Outputs of a clean have other names while they are written.
    pub(crate) fn bytes_appended(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.appended)
    }
}

impl Storage for Metered {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let appended = path.extension().is_some_and(|ending| ending == "log").then(|| Arc::clone(&self.appended));
        Ok(Arc::new(MeteredFile { inner: self.inner.open(path, mode)?, read: Arc::clone(&self.read), appended }))
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
        self.inner.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }
}

#[derive(Debug)]
struct MeteredFile {
    inner: Arc<dyn File>,
    read: Arc<AtomicU64>,
    appended: Option<Arc<AtomicU64>>,
}

impl MeteredFile {
    fn count(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl File for MeteredFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.inner.read_at(buffer, position)?;
        self.count(read as u64);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let written = self.inner.write_at(bytes, position)?;
        if let Some(appended) = &self.appended {
            appended.fetch_add(written as u64, Ordering::Relaxed);
        }
        Ok(written)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.count(len);
        self.inner.map(len)
    }
}
