//! A disk that forgets: it knows what was synced, and when the power goes it gives back that and, of the rest, what it
//! is told to.
//!
//! The running process sees a [`MemoryStorage`]. Beside it, the disk keeps for every file the bytes of its last sync and
//! every write since, and for every directory the names of its last sync and the changes since.

mod fault;
mod state;
mod survive;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use keeplog::inspect::storage::{Entry, File, FileLock, MemoryStorage, Metadata, OpenMode, Storage};

pub use fault::{Call, Fault, Operation, during_reads, without_faults};
use state::{Node, State, Unsynced};
pub use survive::Survival;

/// A simulated disk. A clone is a handle on the same one.
#[derive(Clone, Debug)]
pub struct Disk {
    live: MemoryStorage,
    state: Arc<Mutex<State>>,
}

impl Disk {
    /// An empty disk; its clock shows `now_ms` and moves only when told.
    #[must_use]
    pub fn new(now_ms: i64) -> Self {
        let live = MemoryStorage::new();
        live.set_now_ms(now_ms);
        Self { live, state: Arc::new(Mutex::new(State::new())) }
    }

    /// From now on calls go wrong as told; they are counted from here.
    pub fn set_fault(&self, fault: Fault) {
        self.state().faults.set(fault);
    }

    /// From now on nothing is carried out any more: the process is killed, or the power gone.
    pub fn stop(&self) {
        self.state().faults.is_stopped = true;
    }

    /// Syncs that a planted defect leaves out.
    pub fn omit_syncs(&self, of: Option<fn(&Call<'_>) -> bool>) {
        self.state().faults.omitted = of;
    }

    /// Calls that change or sync something since the fault was set.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().faults.calls
    }

    /// Whether the fault that was set has struck.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        self.state().faults.has_struck
    }

    /// Every call that changes or syncs something is noted from now on, or no more.
    pub fn trace(&self, on: bool) {
        self.state().faults.trace = on.then(Vec::new);
    }

    /// What was noted since the last time.
    #[must_use]
    pub fn take_trace(&self) -> Vec<String> {
        self.state().faults.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets time pass.
    pub fn advance_ms(&self, ms: u64) {
        self.live.advance_ms(ms);
    }

    /// Flips one bit of a file, as a failing medium does.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        let file = self.live.open(path, OpenMode::Write)?;
        let mut byte = [0];
        file.read_at(&mut byte, bit / 8)?;
        file.write_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8)?;
        let mut state = self.state();
        if let Some(node) = state.node(path) {
            state.sync_file(node);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Lets a call through that changes or syncs something, or says why not.
    fn admit(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.state().faults.admit(&Call { operation, path })
    }

    /// Whether a planted defect leaves this sync out.
    fn is_omitted(&self, operation: Operation, path: &Path) -> bool {
        let omitted = self.state().faults.omitted;
        omitted.is_some_and(|omits| omits(&Call { operation, path }))
    }
}

impl Storage for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if matches!(mode, OpenMode::CreateNew | OpenMode::Truncate) {
            self.admit(Operation::Create, path)?;
        } else {
            self.state().faults.admit_read(path)?;
        }
        let file = self.live.open(path, mode)?;
        let mut state = self.state();
        let node = match state.node(path) {
            Some(node) => {
                if mode == OpenMode::Truncate {
                    state.note(node, Unsynced::Length(0));
                }
                node
            }
            None => {
                let handle = self.live.open(path, OpenMode::Read)?;
                state.add(path, Node { file: Some(handle), modified_ms: self.live.now_ms(), ..Node::default() })
            }
        };
        Ok(Arc::new(DiskFile { disk: self.clone(), file, node, path: path.to_owned() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.state().faults.admit_read(dir)?;
        self.live.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.live.metadata(path)
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.admit(Operation::SetModified, path)?;
        self.live.set_modified(path, modified_ms)?;
        let mut state = self.state();
        if let Some(node) = state.node(path) {
            state.nodes[node].modified_ms = modified_ms;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.admit(Operation::Rename, to)?;
        self.live.rename(from, to)?;
        self.state().rename(from, to);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        // A call that finds nothing changes nothing.
        self.live.metadata(path)?;
        self.admit(Operation::Remove, path)?;
        self.live.remove_file(path)?;
        self.state().remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.admit(Operation::CreateDir, path)?;
        self.live.create_dir(path)?;
        self.state().add(path, Node::default());
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.admit(Operation::Remove, path)?;
        self.live.remove_dir(path)?;
        self.state().remove(path);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.is_omitted(Operation::SyncDir, dir) {
            return Ok(());
        }
        self.admit(Operation::SyncDir, dir)?;
        self.live.sync_dir(dir)?;
        let mut state = self.state();
        let node = state.node(dir).ok_or(io::ErrorKind::NotFound)?;
        state.sync_dir(node);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let lock = self.live.lock(path)?;
        let mut state = self.state();
        if state.node(path).is_none() {
            let handle = self.live.open(path, OpenMode::Read)?;
            state.add(path, Node { file: Some(handle), ..Node::default() });
        }
        Ok(lock)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.live.canonicalize(path)
    }

    fn now_ms(&self) -> i64 {
        self.live.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.live.monotonic()
    }
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    file: Arc<dyn File>,
    node: usize,
    /// What it was opened as: a rename since is not followed.
    path: PathBuf,
}

impl DiskFile {
    /// Writes, and remembers what is not synced.
    fn put(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let written = self.file.write_at(bytes, position)?;
        let mut state = self.disk.state();
        state.nodes[self.node].modified_ms = self.disk.live.now_ms();
        state.note(self.node, Unsynced::Bytes { position, bytes: bytes[..written].to_vec() });
        Ok(written)
    }
}

impl File for DiskFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        fault::between_reads(&self.path);
        let len = self.disk.state().faults.admit_bytes(&self.path, buffer.len())?;
        self.file.read_at(&mut buffer[..len], position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let (admitted, len) = {
            let mut state = self.disk.state();
            let admitted = state.faults.admit(&Call { operation: Operation::Write, path: &self.path });
            (admitted, if state.faults.is_stopped { 0 } else { state.faults.shortened(bytes.len())? })
        };
        match admitted {
            Ok(()) => self.put(&bytes[..len], position),
            Err(failure) => {
                // A failing write leaves a part of what it was given, if the machine still runs.
                if len > 0 {
                    self.put(&bytes[..len / 2], position)?;
                }
                Err(failure)
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.admit(Operation::SetLength, &self.path)?;
        self.file.set_len(len)?;
        self.disk.state().note(self.node, Unsynced::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.disk.is_omitted(Operation::Sync, &self.path) {
            return Ok(());
        }
        let admitted = self.disk.admit(Operation::Sync, &self.path);
        let mut state = self.disk.state();
        match admitted {
            Ok(()) => state.sync_file(self.node),
            // The pages are clean from then on, and no later sync writes them.
            Err(_) if !state.faults.is_stopped => state.drop_dirty(self.node),
            Err(_) => {}
        }
        admitted
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.file.map(len)
    }
}

#[cfg(test)]
mod tests;
