//! A storage in memory whose syncs can be held up, or made to fail.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};

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

    /// What lies beneath.
    pub(super) fn disk(&self) -> &MemoryStorage {
        &self.inner
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

impl FileLayer for GatedFile {
    fn below(&self) -> &dyn File {
        &*self.inner
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass()?;
        self.inner.sync_data()
    }
}

impl Layer for GatedStorage {
    fn below(&self) -> &dyn Storage {
        &self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(GatedFile { inner, gate: Arc::clone(&self.gate) }))
    }
}
