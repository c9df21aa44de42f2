//! A file system between the engine and memory: a rule sees every call and says what becomes of it, and a power cut
//! takes all bytes that no sync has covered.
//!
//! It forgets as a page cache does: a sync that fails leaves the bytes readable and never writes them again, though later
//! syncs succeed. Names are durable at once: what becomes of those is shown by the simulator in `fuzz/sim`.

#![allow(dead_code)] // shared by the tests of several crates

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage, read_full_at, write_all_at};

/// A call to the file system. `Create` is an open that makes or empties a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Create,
    Read(usize),
    Write(usize),
    Cut,
    Sync,
    SyncDir,
    Rename,
    Remove,
    CreateDir,
    RemoveDir,
    List,
    Metadata,
}

impl Call {
    /// Whether it changes or syncs something.
    pub(crate) fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read(_) | Self::List | Self::Metadata)
    }

    /// Whether it takes space.
    pub(crate) fn takes_space(self) -> bool {
        matches!(self, Self::Create | Self::Write(_) | Self::CreateDir)
    }
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    Fail(io::ErrorKind),
    /// With an error of the system, by its number.
    Os(i32),
    /// Of a write, this many bytes, and then the error.
    Partly(usize, io::ErrorKind),
    /// Of a read or write, at most this many bytes; a cut is not carried out.
    Short(usize),
}

type Rule = Box<dyn FnMut(Call, &Path) -> Verdict + Send>;

/// See the head of this file. A clone is a handle on the same one.
#[derive(Clone)]
pub(crate) struct Shim {
    live: Arc<MemoryStorage>,
    rule: Arc<Mutex<Rule>>,
    nodes: Arc<Mutex<BTreeMap<PathBuf, Arc<Mutex<Node>>>>>,
    /// One more for each open file.
    open: Arc<()>,
}

/// What a power cut leaves of a file.
#[derive(Default)]
struct Node {
    durable: Vec<u8>,
    /// Blocks that were written since the last sync, well done or not.
    dirty: BTreeSet<u64>,
}

/// What is lost or kept as one, bytes. Real pages are larger; small ones keep the tests small.
const BLOCK_BYTES: u64 = 16;

impl std::fmt::Debug for Shim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shim").finish_non_exhaustive()
    }
}

impl Shim {
    /// Over `live`, all of which counts as synced; every call goes through.
    pub(crate) fn over(live: &MemoryStorage) -> Arc<Self> {
        let rule: Rule = Box::new(|_, _| Verdict::Go);
        let shim = Self { live: Arc::new(live.clone()), rule: Arc::new(Mutex::new(rule)), nodes: Arc::default(), open: Arc::default() };
        for path in files_below(live, Path::new("/")) {
            shim.node(&path).lock().unwrap().durable = contents(live, &path);
        }
        Arc::new(shim)
    }

    pub(crate) fn set_rule(&self, rule: impl FnMut(Call, &Path) -> Verdict + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// Every call goes through again.
    pub(crate) fn heal(&self) {
        self.set_rule(|_, _| Verdict::Go);
    }

    /// Files that are open now.
    pub(crate) fn open_files(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    /// Calls that change something fail from the `at`th on, of a write after half of it: the process is as good as dead.
    pub(crate) fn stop_at(&self, at: usize) {
        let mut seen = 0;
        self.set_rule(move |call, _| {
            seen += usize::from(call.changes());
            match call {
                Call::Write(bytes) if seen == at + 1 => Verdict::Partly(bytes / 2, io::ErrorKind::Other),
                _ if call.changes() && seen > at => Verdict::Fail(io::ErrorKind::Other),
                _ => Verdict::Go,
            }
        });
    }

    /// Counts calls of a kind until the rule is set anew.
    pub(crate) fn count(&self, which: impl Fn(Call, &Path) -> bool + Send + 'static) -> Arc<Mutex<usize>> {
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        self.set_rule(move |call, path| {
            *counted.lock().unwrap() += usize::from(which(call, path));
            Verdict::Go
        });
        count
    }

    /// The file system as the running process sees it, and as the next one finds it after this one is killed.
    pub(crate) fn live(&self) -> Arc<MemoryStorage> {
        Arc::new(self.live.image())
    }

    /// The file system after a power cut.
    pub(crate) fn after_power_cut(&self) -> Arc<MemoryStorage> {
        let image = self.live.image();
        for path in files_below(&image, Path::new("/")) {
            let file = image.open(&path, OpenMode::Truncate).unwrap();
            write_all_at(&*file, &self.node(&path).lock().unwrap().durable, 0).unwrap();
        }
        Arc::new(image)
    }

    fn ask(&self, call: Call, path: &Path) -> io::Result<Verdict> {
        match (self.rule.lock().unwrap())(call, path) {
            Verdict::Fail(kind) => Err(kind.into()),
            Verdict::Os(number) => Err(io::Error::from_raw_os_error(number)),
            other => Ok(other),
        }
    }

    fn node(&self, path: &Path) -> Arc<Mutex<Node>> {
        Arc::clone(self.nodes.lock().unwrap().entry(path.to_owned()).or_default())
    }
}

/// All files at and below `dir`.
pub(crate) fn files_below(storage: &dyn Storage, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in storage.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        match entry.kind {
            keeplog_engine::storage::EntryKind::Directory => found.extend(files_below(storage, &path)),
            keeplog_engine::storage::EntryKind::File => found.push(path),
            keeplog_engine::storage::EntryKind::Other => {}
        }
    }
    found
}

pub(crate) fn contents(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(read_full_at(&*file, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

impl Layer for Shim {
    fn below(&self) -> &dyn Storage {
        &*self.live
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let creates = matches!(mode, OpenMode::CreateNew | OpenMode::Truncate);
        self.ask(if creates { Call::Create } else { Call::Open }, path)?;
        if mode == OpenMode::CreateNew && self.live.metadata(path).is_err() {
            self.nodes.lock().unwrap().remove(path);
        }
        let file = self.live.open(path, mode)?;
        let (path, node, open) = (path.to_owned(), self.node(path), Arc::clone(&self.open));
        // Only the file itself counts as open, not its way back to the shim.
        let shim = Self { open: Arc::default(), ..self.clone() };
        Ok(Arc::new(ShimFile { shim, file, path, node, _open: open }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<keeplog_engine::storage::Entry>> {
        self.ask(Call::List, dir)?;
        self.live.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<keeplog_engine::storage::Metadata> {
        self.ask(Call::Metadata, path)?;
        self.live.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Call::Rename, from)?;
        self.live.rename(from, to)?;
        let mut nodes = self.nodes.lock().unwrap();
        let moved: Vec<_> = nodes.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in moved {
            let node = nodes.remove(&path).unwrap();
            let rest = path.strip_prefix(from).unwrap();
            nodes.insert(if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) }, node);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.ask(Call::Remove, path)?;
        self.live.remove_file(path)?;
        self.nodes.lock().unwrap().remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(Call::CreateDir, path)?;
        self.live.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(Call::RemoveDir, path)?;
        self.live.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.ask(Call::SyncDir, dir)?;
        self.live.sync_dir(dir)
    }
}

#[derive(Debug)]
struct ShimFile {
    shim: Shim,
    file: Arc<dyn File>,
    path: PathBuf,
    node: Arc<Mutex<Node>>,
    _open: Arc<()>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl FileLayer for ShimFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let len = match self.shim.ask(Call::Read(buffer.len()), &self.path)? {
            Verdict::Short(most) => buffer.len().min(most),
            _ => buffer.len(),
        };
        self.file.read_at(&mut buffer[..len], position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let (len, then) = match self.shim.ask(Call::Write(bytes.len()), &self.path)? {
            Verdict::Short(most) => (bytes.len().min(most), None),
            Verdict::Partly(some, kind) => (some, Some(kind)),
            _ => (bytes.len(), None),
        };
        let written = self.file.write_at(&bytes[..len], position)?;
        let blocks = position / BLOCK_BYTES..(position + written as u64).div_ceil(BLOCK_BYTES);
        self.node.lock().unwrap().dirty.extend(blocks);
        then.map_or(Ok(written), |kind| Err(kind.into()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if let Verdict::Short(_) = self.shim.ask(Call::Cut, &self.path)? {
            return Ok(()); // a lie
        }
        self.file.set_len(len)?;
        // What is cut off and grows again is zeros, on the device too.
        let mut node = self.node.lock().unwrap();
        let kept = node.durable.len().min(len as usize);
        node.durable.truncate(kept);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let asked = self.shim.ask(Call::Sync, &self.path);
        let mut node = self.node.lock().unwrap();
        let dirty = std::mem::take(&mut node.dirty);
        asked?;
        let len = self.file.len()?;
        node.durable.resize(len as usize, 0);
        for block in dirty {
            let (from, to) = (block * BLOCK_BYTES, ((block + 1) * BLOCK_BYTES).min(len));
            if from < to {
                read_full_at(&*self.file, &mut node.durable[from as usize..to as usize], from)?;
            }
        }
        Ok(())
    }
}
