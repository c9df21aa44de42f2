//! A storage in memory whose syncs can be held up, or made to fail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keeplog_engine::storage::{Entry, File, FileLock, MemoryStorage, Metadata, OpenMode, Storage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncs {
    Pass,
    Wait,
    Fail,
}

#[derive(Debug)]
struct Gate {
    syncs: Mutex<(Syncs, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) -> io::Result<()> {
        let mut state = self.syncs.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |(syncs, _)| *syncs == Syncs::Wait).unwrap();
        if state.0 == Syncs::Fail { Err(io::Error::other("no sync today")) } else { Ok(()) }
    }
}

#[derive(Debug)]
pub(super) struct GatedStorage {
    inner: MemoryStorage,
    gate: Arc<Gate>,
}

impl GatedStorage {
    pub(super) fn new(inner: MemoryStorage) -> Self {
        Self { inner, gate: Arc::new(Gate { syncs: Mutex::new((Syncs::Pass, 0)), changed: Condvar::new() }) }
    }

    pub(super) fn set(&self, syncs: Syncs) {
        *self.gate.syncs.lock().unwrap() = (syncs, 0);
        self.gate.changed.notify_all();
    }

    /// Returns once somebody stands at the gate.
    pub(super) fn wait_for_sync(&self) {
        drop(self.gate.changed.wait_while(self.gate.syncs.lock().unwrap(), |(_, arrived)| *arrived == 0).unwrap());
    }
}

#[derive(Debug)]
struct GatedFile {
    inner: Arc<dyn File>,
    gate: Arc<Gate>,
}

impl File for GatedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass()?;
        self.inner.sync_data()
    }

    fn map(&self, len: u64) -> io::Result<bytes::Bytes> {
        self.inner.map(len)
    }
}

impl Storage for GatedStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(GatedFile { inner, gate: Arc::clone(&self.gate) }))
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
