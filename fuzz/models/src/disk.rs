//! A disk in memory for models. Every call is a step of the scheduler, writes may be short, and what was made durable is
//! kept apart from what is there, so that a model can cut the power at any moment.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog_engine::sync;
use shuttle::rand::{Rng, thread_rng};

/// A disk; a clone is a handle on the same one.
#[derive(Clone, Debug)]
pub struct Disk {
    live: MemoryStorage,
    /// Of std, and never held over a step: the scheduler knows nothing of it.
    state: Arc<Mutex<State>>,
    gate: Arc<Gate>,
}

/// Where calls wait while the disk hangs. Who panics on purpose may do so in a call.
#[derive(Debug, Default)]
struct Gate {
    held: sync::Mutex<Option<Held>>,
    arrived: AtomicBool,
    changed: sync::Condvar,
}

/// What a disk that hangs does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Write to files.
    Writes,
    /// Sync files.
    Syncs,
}

impl Gate {
    fn pass(&self, what: Held) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while *held == Some(what) {
            self.arrived.store(true, Ordering::Relaxed);
            self.changed.notify_all();
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[derive(Debug)]
struct State {
    nodes: Vec<Node>,
    /// Counts changes, so that a slow sync does not take back what a later one has made durable.
    changes: u64,
    syncs: Syncs,
}

/// A file or a directory. The root is the first.
#[derive(Clone, Debug, Default)]
struct Node {
    is_dir: bool,
    live: BTreeMap<String, usize>,
    durable: Names,
    contents: Contents,
    changed: u64,
}

/// Names that are on stable storage, as of some change.
#[derive(Clone, Debug, Default)]
struct Names {
    as_of: u64,
    names: BTreeMap<String, usize>,
}

/// Bytes that are on stable storage, as of some change.
#[derive(Clone, Debug, Default)]
struct Contents {
    as_of: u64,
    bytes: Vec<u8>,
}

/// What syncs of files do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// What they promise.
    Work,
    /// After so many more, one fails.
    FailAfter(u32),
    /// They say that they worked, and did nothing: what a model must notice.
    Lie,
}

/// What is on stable storage at one moment.
#[derive(Clone)]
pub struct Cut {
    nodes: Vec<Node>,
    now_ms: i64,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        let state = State { nodes: vec![Node { is_dir: true, ..Node::default() }], changes: 0, syncs: Syncs::Work };
        Self { live: MemoryStorage::new(), state: Arc::new(Mutex::new(state)), gate: Arc::default() }
    }

    /// Says what syncs of files do from now on.
    pub fn set_syncs(&self, syncs: Syncs) {
        self.state().syncs = syncs;
    }

    /// From now on calls of this kind wait until [`Disk::release`].
    pub fn hold(&self, what: Held) {
        *self.gate.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// Returns once a call waits.
    pub fn wait_for_held(&self) {
        let mut held = self.gate.held.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.gate.arrived.load(Ordering::Relaxed) {
            held = self.gate.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets all who wait go on.
    pub fn release(&self) {
        *self.gate.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.gate.changed.notify_all();
    }

    /// The file system as it is, with its clock; calls to it are no steps.
    #[must_use]
    pub fn live(&self) -> &MemoryStorage {
        &self.live
    }

    /// What a power cut would leave now.
    #[must_use]
    pub fn cut(&self) -> Cut {
        Cut { nodes: self.state().nodes.clone(), now_ms: self.live.now_ms() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no call panics while it holds the state")
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl Cut {
    /// A disk that holds this and nothing else.
    #[must_use]
    pub fn restore(&self) -> Disk {
        let disk = Disk::new();
        disk.live.set_now_ms(self.now_ms);
        self.restore_into(&disk, 0, Path::new("/"));
        disk.state().changes = 0;
        disk
    }

    fn restore_into(&self, disk: &Disk, at: usize, path: &Path) {
        for (name, &child) in &self.nodes[at].durable.names {
            let (node, path) = (&self.nodes[child], path.join(name));
            let mut state = disk.state();
            let id = state.nodes.len();
            state.nodes.push(Node {
                is_dir: node.is_dir,
                contents: Contents { as_of: 0, bytes: node.contents.bytes.clone() },
                ..Node::default()
            });
            let parent = state.node(path.parent().expect("it has a parent")).expect("it was made before");
            state.nodes[parent].live.insert(name.clone(), id);
            state.nodes[parent].durable.names.insert(name.clone(), id);
            drop(state);
            if node.is_dir {
                disk.live.create_dir(&path).expect("a new name");
                self.restore_into(disk, child, &path);
            } else {
                let file = disk.live.open(&path, OpenMode::CreateNew).expect("a new name");
                write_all_at(&*file, &node.contents.bytes, 0).expect("room");
            }
        }
    }

    /// The durable bytes of the files in `dir` whose names end in `suffix`, by name.
    #[must_use]
    pub fn files(&self, dir: &Path, suffix: &str) -> Vec<(String, &[u8])> {
        let mut at = 0;
        for part in parts(dir) {
            match self.nodes[at].durable.names.get(part) {
                Some(&child) => at = child,
                None => return Vec::new(),
            }
        }
        let names = self.nodes[at].durable.names.iter().filter(|(name, _)| name.ends_with(suffix));
        names.map(|(name, &id)| (name.clone(), &self.nodes[id].contents.bytes[..])).collect()
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.nodes.iter().flat_map(|node| &node.durable.names);
        f.debug_map().entries(names.map(|(name, &id)| (name, self.nodes[id].contents.bytes.len()))).finish()
    }
}

impl State {
    fn node(&self, path: &Path) -> Option<usize> {
        parts(path).try_fold(0, |at, part| self.nodes[at].live.get(part).copied())
    }

    /// The node of the directory above `path`, changed by what follows, and the name in it.
    fn parent<'p>(&mut self, path: &'p Path) -> (usize, &'p str) {
        let at = self.node(path.parent().expect("not the root")).expect("the call below has found it");
        self.changes += 1;
        self.nodes[at].changed = self.changes;
        (at, path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8"))
    }

    fn create(&mut self, path: &Path, is_dir: bool) -> usize {
        let id = self.nodes.len();
        self.nodes.push(Node { is_dir, ..Node::default() });
        let (parent, name) = self.parent(path);
        self.nodes[parent].live.insert(name.to_owned(), id);
        id
    }

    fn remove(&mut self, path: &Path) -> usize {
        let (parent, name) = self.parent(path);
        self.nodes[parent].live.remove(name).expect("the call below has found it")
    }

    fn sync_fails(&mut self) -> bool {
        match self.syncs {
            Syncs::FailAfter(0) => {
                self.syncs = Syncs::Work;
                true
            }
            Syncs::FailAfter(more) => {
                self.syncs = Syncs::FailAfter(more - 1);
                false
            }
            Syncs::Work | Syncs::Lie => false,
        }
    }
}

fn parts(path: &Path) -> impl Iterator<Item = &str> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    })
}

/// Lets the scheduler choose who goes on.
pub fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}

impl Layer for Disk {
    fn below(&self) -> &dyn Storage {
        step();
        &self.live
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        step();
        let file = self.live.open(path, mode)?;
        let mut state = self.state();
        let id = state.node(path).unwrap_or_else(|| state.create(path, false));
        if mode == OpenMode::Truncate {
            state.changes += 1;
            state.nodes[id].changed = state.changes;
        }
        drop(state);
        Ok(Arc::new(OpenFile { disk: self.clone(), file, id }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        step();
        self.live.rename(from, to)?;
        let mut state = self.state();
        let id = state.remove(from);
        let (parent, name) = state.parent(to);
        state.nodes[parent].live.insert(name.to_owned(), id);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        step();
        self.live.remove_file(path)?;
        self.state().remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        step();
        self.live.create_dir(path)?;
        self.state().create(path, true);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        step();
        self.live.remove_dir(path)?;
        self.state().remove(path);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        step();
        self.live.sync_dir(dir)?;
        let mut state = self.state();
        let id = state.node(dir).ok_or(ErrorKind::NotFound)?;
        let seen = Names { as_of: state.nodes[id].changed, names: state.nodes[id].live.clone() };
        drop(state);
        step();
        state = self.state();
        if seen.as_of >= state.nodes[id].durable.as_of {
            state.nodes[id].durable = seen;
        }
        Ok(())
    }

    // Clocks and paths change nothing and show nothing of what others do.
    fn now_ms(&self) -> i64 {
        self.live.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.live.monotonic()
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: Disk,
    file: Arc<dyn File>,
    id: usize,
}

impl OpenFile {
    fn changed(&self) {
        let mut state = self.disk.state();
        state.changes += 1;
        state.nodes[self.id].changed = state.changes;
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        Ok(self.file.map(self.file.len()?)?.to_vec())
    }
}

impl FileLayer for OpenFile {
    fn below(&self) -> &dyn File {
        step();
        &*self.file
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.disk.gate.pass(Held::Writes);
        let short = bytes.len() > 1 && thread_rng().gen_ratio(1, 4);
        let written = self.file.write_at(if short { &bytes[..bytes.len() / 2] } else { bytes }, position)?;
        self.changed();
        Ok(written)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        step();
        self.file.set_len(len)?;
        self.changed();
        Ok(())
    }

    /// What is written while it lasts may be lost: the worst that a disk may do.
    fn sync_data(&self) -> io::Result<()> {
        self.disk.gate.pass(Held::Syncs);
        let mut state = self.disk.state();
        if state.sync_fails() {
            return Err(io::Error::other("the disk failed to sync"));
        }
        let lies = state.syncs == Syncs::Lie;
        let as_of = state.nodes[self.id].changed;
        drop(state);
        let seen = Contents { as_of, bytes: self.bytes()? };
        step();
        let node = &mut self.disk.state().nodes[self.id];
        if !lies && seen.as_of >= node.contents.as_of {
            node.contents = seen;
        }
        Ok(())
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        step();
        self.file.map(len)
    }
}
