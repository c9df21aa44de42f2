//! A data directory: the partition directories in it, who owns it, and what is remembered about them between runs.
//!
//! - One owner at a time: `.lock` is held from open to close, in a way that a broker respects.
//! - The clean mark `.kafka_cleanshutdown` is removed, durably, before anything else is touched, and written only
//!   by [`DataDir::close`], after the checkpoints, and only if every partition present is known to be clean. So a
//!   crash at any moment, during opening too, leads to recovery the next time.
//! - What a checkpoint says saves work, hides what was deleted, and tells of what is missing. One that is garbled counts as empty
//!   and is reported in [`DataDir::warnings`]: it makes a start slower, never wrong. If the device can't read the start offsets, the
//!   directory does not open: what was deleted would come back.
//!
//! Dropping a data directory gives up the lock and leaves no mark.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::{self, Loaded, OffsetMap};
use crate::names::{DirectoryName, DirectoryState, TopicPartition};
use crate::planted::{Defect, is_planted};
use crate::storage::{EntryKind, FileLock, OpenMode, Storage, write_all_at};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::{AppendLatency, Error, ErrorKind, Result};

mod changes;
mod create;
mod layout;
mod lease;
mod removal;
mod writing;

use create::create_dirs;
use layout::Layout;
pub use layout::{Foreign, ForeignKind};
pub(crate) use lease::Lease;
use writing::Written;

const LOCK: &str = ".lock";
const CLEAN_MARK: &str = ".kafka_cleanshutdown";
const CLEAN_MARK_CONTENT: &[u8] = br#"{"version":0,"brokerEpoch":-1}"#;

/// The four checkpoints of a data directory, in the order in which they are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checkpoint {
    RecoveryPoint,
    LogStart,
    HighWatermark,
    Cleaner,
}

impl Checkpoint {
    const ALL: [Self; 4] = [Self::RecoveryPoint, Self::LogStart, Self::HighWatermark, Self::Cleaner];

    fn file_name(self) -> &'static str {
        match self {
            Self::RecoveryPoint => "recovery-point-offset-checkpoint",
            Self::LogStart => "log-start-offset-checkpoint",
            Self::HighWatermark => "replication-offset-checkpoint",
            Self::Cleaner => "cleaner-offset-checkpoint",
        }
    }
}

/// Something found at open that did not stop it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file concerned.
    pub path: PathBuf,
    /// What is wrong with it and what follows.
    pub detail: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.detail)
    }
}

/// A data directory that this process owns. All methods may be called from any thread.
#[derive(Debug)]
pub struct DataDir {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// The only log in use, where that is one by itself: see [`DataDir::open_alone`].
    alone: Option<PathBuf>,
    was_clean: bool,
    warnings: Vec<Warning>,
    state: Mutex<State>,
    /// Held while checkpoints are written, so that two writers never share a working file. Taken before `state`.
    written: Mutex<Written>,
    /// See [`DataDir::note_change`]. Nothing else is taken while it is held.
    changed: Mutex<BTreeSet<TopicPartition>>,
    append_latency: AppendLatency,
}

/// The lock that a broker respects, and that of the directory itself.
type Owned = [Box<dyn FileLock>; 2];

#[derive(Debug)]
struct State {
    /// Set when closing begins: from then on nothing is opened and nothing is written any more but by the close itself.
    closed: bool,
    /// Given up at the end of the close.
    lock: Option<Owned>,
    partitions: BTreeMap<TopicPartition, Use>,
    foreign: Vec<Foreign>,
    offsets: [OffsetMap; 4],
    /// How often they have changed.
    version: u64,
    /// How often a partition was opened.
    opens: u64,
}

impl State {
    fn set(&mut self, which: Checkpoint, name: &TopicPartition, offset: Option<u64>) {
        let offsets = &mut self.offsets[which as usize];
        if offsets.get(name).copied() == offset {
            return;
        }
        match offset {
            Some(offset) => _ = offsets.insert(name.clone(), offset),
            None => _ = offsets.remove(name),
        }
        self.version += 1;
    }

    /// Forgets what the checkpoints say of a partition.
    fn forget(&mut self, name: &TopicPartition) {
        Checkpoint::ALL.into_iter().for_each(|which| self.set(which, name, None));
    }
}

/// What has been done to a partition since the directory was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Nothing: it is as clean as the directory was.
    Untouched,
    /// In use now; which use it is, tells the number.
    Open(u64),
    /// Flushed and closed in order, or created and not used yet.
    Clean,
    /// Given up without being closed in order.
    Unclean,
}

impl DataDir {
    /// Opens an existing directory and takes possession of it. [`ErrorKind::Locked`] if another process, or another
    /// handle of this one, owns it.
    pub fn open(storage: Arc<dyn Storage>, path: &Path) -> Result<Self> {
        let path = storage.canonicalize(path).map_err(|e| Error::io("open the data directory", path, e))?;
        let lock = take_lock(&*storage, &path)?;
        let was_clean = take_clean_mark(&*storage, &path)?;
        let layout = Layout::read(&*storage, &path)?;
        let mut warnings = Vec::new();
        let mut written = [const { None }; 4];
        for which in Checkpoint::ALL {
            written[which as usize] = load(&*storage, &path, which, &mut warnings)?;
        }
        let mut offsets = written.clone().map(Option::unwrap_or_default);
        offsets.iter_mut().for_each(|offsets| offsets.retain(|name, _| layout.keeps_offsets_of(name)));
        for warning in &warnings {
            tracing::warn!(path = %warning.path.display(), "{}", warning.detail);
        }
        let state = State {
            closed: false,
            lock: Some(lock),
            partitions: layout.live.into_iter().map(|name| (name, Use::Untouched)).collect(),
            foreign: layout.foreign,
            offsets,
            version: 0,
            opens: 0,
        };
        Ok(Self {
            storage,
            path,
            alone: None,
            was_clean,
            warnings,
            state: Mutex::new(state),
            written: Mutex::new(Written::found(written)),
            changed: Mutex::default(),
            append_latency: AppendLatency::default(),
        })
    }

    /// Opens the partition directory `dir`, whatever its name is, as one by itself: a copy, say, that was set aside.
    /// [`DataDir::partitions`] has one name then, which stands for it. The directory above is locked, and nothing else
    /// there is read or changed: no recovery point is known, and none is kept.
    pub fn open_alone(storage: Arc<dyn Storage>, dir: &Path) -> Result<Self> {
        const OP: &str = "open the partition directory";
        let dir = storage.canonicalize(dir).map_err(|e| Error::io(OP, dir, e))?;
        let above = dir.parent().ok_or_else(|| Error::invalid(OP, "there is no directory above it").at(&dir))?.to_path_buf();
        let lock = take_lock(&*storage, &above)?;
        let named = dir.file_name().and_then(|name| name.to_str()?.parse().ok());
        let name = named.map_or_else(|| TopicPartition::new("alone", 0), Ok)?;
        let partitions = BTreeMap::from([(name, Use::Untouched)]);
        let state =
            State { closed: false, lock: Some(lock), partitions, foreign: Vec::new(), offsets: Default::default(), version: 0, opens: 0 };
        let (warnings, written) = (Vec::new(), Mutex::new(Written::found(Default::default())));
        let (state, changed, append_latency) = (Mutex::new(state), Mutex::default(), AppendLatency::default());
        Ok(Self { storage, path: above, alone: Some(dir), was_clean: false, warnings, state, written, changed, append_latency })
    }

    /// As [`DataDir::open`]; creates the directory, and those above it, durably if they are missing.
    pub fn open_or_create(storage: Arc<dyn Storage>, path: &Path) -> Result<Self> {
        create_dirs(&*storage, path)?;
        Self::open(storage, path)
    }

    /// The absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the directory lies on.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// How long appends to its logs take.
    #[must_use]
    pub fn append_latency(&self) -> &AppendLatency {
        &self.append_latency
    }

    /// What was wrong at open, in the order found.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The partitions whose directories are there and have a valid name, ascending.
    #[must_use]
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.state().partitions.keys().cloned().collect()
    }

    /// Whether a partition of this name is among [`DataDir::partitions`].
    #[must_use]
    pub fn has_partition(&self, name: &TopicPartition) -> bool {
        self.state().partitions.contains_key(name)
    }

    /// Everything else that was found in the directory at open, except the files that belong there.
    #[must_use]
    pub fn foreign(&self) -> Vec<Foreign> {
        self.state().foreign.clone()
    }

    /// Path of a partition's directory, whether it exists or not.
    #[must_use]
    pub fn partition_path(&self, name: &TopicPartition) -> PathBuf {
        self.alone.clone().unwrap_or_else(|| self.path.join(name.directory_name()))
    }

    /// Creates an empty partition directory, durably. `AlreadyExists` if the name is taken.
    pub fn create_partition(&self, name: &TopicPartition) -> Result<()> {
        const OP: &str = "create the partition directory";
        let path = self.partition_path(name);
        self.refuse_alone(OP)?;
        if layout::is_reserved(&name.directory_name()) {
            return Err(Error::invalid(OP, "a broker keeps its own metadata under this name").at(&path));
        }
        drop(self.open_state()?);
        // Entries of an earlier log of this name must be gone before the new one can be found beside them.
        if self.written().names(name) {
            self.write_checkpoints()?;
        }
        self.storage.create_dir(&path).map_err(|e| Error::io(OP, &path, e))?;
        if let Err(cause) = self.storage.sync_dir(&self.path) {
            let _ = self.storage.remove_dir(&path); // the first failure counts
            return Err(Error::io("sync the data directory", &self.path, cause));
        }
        let mut state = self.open_state()?;
        state.forget(name);
        state.partitions.insert(name.clone(), Use::Clean);
        Ok(())
    }

    /// Offset below which everything is on stable storage; 0 if nothing is known. It may lie outside the log: clamp.
    #[must_use]
    pub fn recovery_point(&self, name: &TopicPartition) -> u64 {
        self.offset(Checkpoint::RecoveryPoint, name).unwrap_or(0)
    }

    /// First readable offset, if it is known: a broker leaves it out where the first segment says the same. Else 0.
    #[must_use]
    pub fn log_start(&self, name: &TopicPartition) -> u64 {
        self.offset(Checkpoint::LogStart, name).unwrap_or(0)
    }

    /// End offset that the log's readers had seen, if known.
    #[must_use]
    pub fn high_watermark(&self, name: &TopicPartition) -> Option<u64> {
        self.offset(Checkpoint::HighWatermark, name)
    }

    /// First dirty offset: everything below has been through the cleaner. `None`: nothing has.
    #[must_use]
    pub fn cleaner_offset(&self, name: &TopicPartition) -> Option<u64> {
        self.offset(Checkpoint::Cleaner, name)
    }

    /// Sets [`DataDir::recovery_point`], in memory. Only after everything below `offset` was synced.
    pub fn set_recovery_point(&self, name: &TopicPartition, offset: u64) {
        self.set_offset(Checkpoint::RecoveryPoint, name, Some(offset));
    }

    /// Sets [`DataDir::log_start`], in memory; `None` if the first segment says it.
    pub fn set_log_start(&self, name: &TopicPartition, offset: Option<u64>) {
        self.set_offset(Checkpoint::LogStart, name, offset);
    }

    /// Sets [`DataDir::high_watermark`], in memory.
    pub fn set_high_watermark(&self, name: &TopicPartition, offset: u64) {
        self.set_offset(Checkpoint::HighWatermark, name, Some(offset));
    }

    /// Sets [`DataDir::cleaner_offset`], in memory. Only after the swaps of the pass are durable.
    pub fn set_cleaner_offset(&self, name: &TopicPartition, offset: Option<u64>) {
        self.set_offset(Checkpoint::Cleaner, name, offset);
        self.note_change(name);
    }

    /// Makes what was set durable. Files that would not change are left alone. Entries of partitions that no longer
    /// have a directory are dropped, all others are kept, opened or not.
    pub fn write_checkpoints(&self) -> Result<()> {
        let written = self.written();
        drop(self.open_state()?);
        self.write_changed(written)
    }

    /// Whether the partition's files can be trusted without recovery: the directory was closed in order and nobody
    /// has opened the partition since, or it was closed in order since then.
    #[must_use]
    pub fn was_clean(&self, name: &TopicPartition) -> bool {
        self.is_clean(self.state().partitions.get(name).copied())
    }

    /// Whether the directory as a whole was closed in order before this open.
    #[must_use]
    pub fn directory_was_clean(&self) -> bool {
        self.was_clean
    }

    /// Notes that a partition is in use from now on, and returns what [`DataDir::was_clean`] said until now. `Locked`
    /// if it is in use already, `NotFound` if it has no directory.
    pub fn opened(&self, name: &TopicPartition) -> Result<bool> {
        let mut state = self.open_state()?;
        state.opens += 1;
        let this = Use::Open(state.opens);
        let Some(current) = state.partitions.get_mut(name) else {
            let detail = "there is no such partition: create it first, or check the name";
            return Err(Error::new(ErrorKind::NotFound, "open the log", detail).at(&self.partition_path(name)));
        };
        if matches!(current, Use::Open(_)) {
            let detail = "it is open in this process: close that log or share its handle";
            return Err(Error::new(ErrorKind::Locked, "open the log", detail).at(&self.partition_path(name)));
        }
        let before = std::mem::replace(current, this);
        drop(state);
        self.note_change(name);
        Ok(self.is_clean(Some(before)))
    }

    /// Notes that a partition was flushed and closed in order.
    pub fn closed_clean(&self, name: &TopicPartition) {
        self.closed(name, Use::Clean);
    }

    /// Notes that a partition was given up without being closed in order: it must be recovered when it is opened again,
    /// and the directory gets no mark.
    pub fn closed_unclean(&self, name: &TopicPartition) {
        self.closed(name, Use::Unclean);
    }

    /// Writes the checkpoints and then, if every partition present is known to be clean, the mark; gives up the lock.
    /// Returns whether the mark was written. After an error the lock is given up as well, and there is no mark.
    /// Partitions must be closed before: one that is still in use now counts as unclean.
    pub fn close(&self) -> Result<bool> {
        // What is closed later than this may have set offsets that the checkpoints miss, so it does not count.
        let partitions = {
            let mut state = self.open_state()?;
            state.closed = true;
            state.partitions.clone()
        };
        let closing = self.write_changed(self.written()).and_then(|()| self.write_clean_mark(&partitions));
        self.state().lock = None;
        closing
    }

    fn refuse_alone(&self, op: &'static str) -> Result<()> {
        match &self.alone {
            Some(dir) => Err(Error::invalid(op, "only this one partition was opened, not its data directory").at(dir)),
            None => Ok(()),
        }
    }

    fn closed(&self, name: &TopicPartition, how: Use) {
        // Only what is in use can be closed: a late call must not vouch for a log that somebody else left unclean.
        if let Some(current) = self.state().partitions.get_mut(name).filter(|current| matches!(current, Use::Open(_))) {
            *current = how;
        }
    }

    fn is_clean(&self, partition: Option<Use>) -> bool {
        match partition {
            Some(Use::Untouched) => self.was_clean,
            Some(Use::Clean) => true,
            Some(Use::Open(_) | Use::Unclean) | None => false,
        }
    }

    fn offset(&self, which: Checkpoint, name: &TopicPartition) -> Option<u64> {
        self.state().offsets[which as usize].get(name).copied()
    }

    fn set_offset(&self, which: Checkpoint, name: &TopicPartition, offset: Option<u64>) {
        self.state().set(which, name, offset);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // every change to it is a single step
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner) // what a failed write leaves is marked as unknown
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.closed {
            return Err(Error::new(ErrorKind::Closed, "use the data directory", "it was closed").at(&self.path));
        }
        Ok(state)
    }
}

fn take_lock(storage: &dyn Storage, dir: &Path) -> Result<Owned> {
    let path = dir.join(LOCK);
    let locks = || Ok([storage.lock(&path)?, storage.lock_dir(dir)?]);
    locks().map_err(|e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock => {
            let detail = "another process or handle owns the data directory (a Store serves all logs of one)";
            Error::new(ErrorKind::Locked, "lock", detail).at(&path)
        }
        _ => Error::io("lock", &path, e),
    })
}

/// Removes the mark and returns whether it was there. It must be gone for good before anything else happens: a crash
/// from here on must not find it.
fn take_clean_mark(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    let path = dir.join(CLEAN_MARK);
    if is_planted(Defect::KeepCleanMark) {
        return Ok(storage.metadata(&path).is_ok());
    }
    let was_there = match storage.remove_file(&path) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(Error::io("remove the clean mark", &path, e)),
    };
    // Also when it was not there: an earlier owner may have removed it without getting this far.
    storage.sync_dir(dir).map_err(|e| Error::io("sync the data directory", dir, e))?;
    Ok(was_there)
}

/// The entries of a checkpoint; `None` with a warning for one that holds something else.
fn load(storage: &dyn Storage, dir: &Path, which: Checkpoint, warnings: &mut Vec<Warning>) -> Result<Option<OffsetMap>> {
    let path = dir.join(which.file_name());
    let consequence = match which {
        Checkpoint::RecoveryPoint => "every log will be checked from its first segment on",
        Checkpoint::LogStart => "records below a former start offset may be readable again",
        Checkpoint::HighWatermark => "end offsets are taken from the logs",
        Checkpoint::Cleaner => "every compacted log will be cleaned from its start on",
    };
    let reason = match checkpoint::read_offsets(storage, &path) {
        Ok(Loaded::Malformed(malformed)) => malformed.to_string(),
        Ok(sound) => return Ok(Some(sound.or_empty())),
        // It may be readable the next time, and by then what was deleted would be back.
        Err(e) if which == Checkpoint::LogStart => return Err(e),
        Err(e) => format!("{e:?}"),
    };
    warnings.push(Warning { path, detail: format!("taken as empty ({reason}): {consequence}") });
    Ok(None)
}

#[cfg(test)]
mod tests;
