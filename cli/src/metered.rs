//! A storage that counts the bytes that go through it, so that work inside the libraries can be watched.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::door::Storage;
use crate::door::storage::{File, FileLayer, Layer, OpenMode};

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

impl Layer for Metered {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let appended = path.extension().is_some_and(|ending| ending == "log").then(|| Arc::clone(&self.appended));
        Ok(Arc::new(MeteredFile { inner: self.inner.open(path, mode)?, read: Arc::clone(&self.read), appended }))
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

impl FileLayer for MeteredFile {
    fn below(&self) -> &dyn File {
        &*self.inner
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

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.count(len);
        self.inner.map(len)
    }
}
