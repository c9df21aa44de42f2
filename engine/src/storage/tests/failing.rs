//! A storage that stops changing anything after a number of changes, as a process that is killed or a device that
//! fills up does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::storage::{Entry, File, FileLock, Metadata, OpenMode, Storage};

/// Another storage that fails every change and every sync once its allowance is used up. A write that exceeds the
/// allowance leaves half of its bytes.
#[derive(Debug)]
pub(crate) struct Failing<S> {
    inner: S,
    allowance: Arc<Allowance>,
}

#[derive(Debug)]
struct Allowance {
    left: AtomicU64,
    kind: io::ErrorKind,
}

impl Allowance {
    fn take(&self) -> io::Result<()> {
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.kind.into()),
        }
    }
}

impl<S: Storage> Failing<S> {
    /// `inner`, failing with `kind` after `changes` changes and syncs.
    pub(crate) fn after(inner: S, changes: u64, kind: io::ErrorKind) -> Self {
        Self { inner, allowance: Arc::new(Allowance { left: AtomicU64::new(changes), kind }) }
    }

    /// Changes and syncs still allowed.
    pub(crate) fn left(&self) -> u64 {
        self.allowance.left.load(Ordering::SeqCst)
    }

    /// Allows `changes` from now on.
    pub(crate) fn allow(&self, changes: u64) {
        self.allowance.left.store(changes, Ordering::SeqCst);
    }
}

impl<S: Storage> Storage for Failing<S> {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if matches!(mode, OpenMode::CreateNew | OpenMode::Truncate) {
            self.allowance.take()?;
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FailingFile { inner, allowance: Arc::clone(&self.allowance) }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.inner.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.inner.metadata(path)
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.set_modified(path, modified_ms)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.allowance.take()?;
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
struct FailingFile {
    inner: Arc<dyn File>,
    allowance: Arc<Allowance>,
}

impl File for FailingFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        match self.allowance.take() {
            Ok(()) => self.inner.write_at(bytes, position),
            Err(e) => {
                self.inner.write_at(&bytes[..bytes.len() / 2], position)?;
                Err(e)
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.allowance.take()?;
        self.inner.sync_data()
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.inner.map(len)
    }
}

#[test]
fn it_fails_after_its_allowance_and_tears_the_write() {
    use crate::storage::MemoryStorage;
    let storage = Failing::after(MemoryStorage::new(), 2, io::ErrorKind::StorageFull);
    let file = storage.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
    file.write_at(b"abcd", 0).unwrap();
    assert_eq!(storage.left(), 0);
    assert_eq!(file.write_at(b"efgh", 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 6);
    assert!(file.sync_data().is_err() && storage.remove_file(Path::new("/f")).is_err());
    storage.allow(1);
    storage.remove_file(Path::new("/f")).unwrap();
}
