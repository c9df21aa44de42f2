//! A disk that forgets: it knows what was synced, and after a crash gives back that and as much of the rest as a
//! seed says.
//!
//! The running process sees a [`MemoryStorage`]. Beside it, the disk keeps for every file the bytes of its last
//! sync, and for every directory the names of its last sync and the changes since.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use keeplog::inspect::storage::{Entry, File, FileLock, MemoryStorage, Metadata, OpenMode, Storage, read_full_at};

/// What a crash leaves of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// Everything: the process died, the machine did not.
    Everything,
    /// Nothing.
    Nothing,
    /// Of the names of each directory the changes up to some moment, as a journal keeps them; any file's bytes or none.
    InOrder,
    /// Any change of a name without any other; any file's bytes, or some of them, or none.
    AnyOrder,
}

/// What happens to calls that change or sync something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// From this one on (counted from 0) none is carried out; of a write, half.
    Crash { at: u64 },
    /// This one fails, of a write after half of its bytes, and the next ones work.
    Once { at: u64, kind: io::ErrorKind },
    /// From this one on all fail but those that free space.
    Full { at: u64 },
    /// Every one works, but reads and writes are short and interrupted.
    Short,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    live: MemoryStorage,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    fault: Fault,
    calls: u64,
    /// What the running process finds under a path.
    paths: BTreeMap<PathBuf, usize>,
    nodes: Vec<Node>,
    /// Changes of names that no sync has covered.
    pending: Vec<Change>,
}

#[derive(Debug, Default)]
struct Node {
    /// `None` for a directory.
    file: Option<Arc<dyn File>>,
    synced: Vec<u8>,
    names: BTreeMap<String, usize>,
    modified_ms: i64,
}

/// One atomic change: in a directory, a name stands for something else from now on, or for nothing.
#[derive(Clone, Debug)]
struct Change(Vec<(usize, String, Option<usize>)>);

/// A sequence of numbers that look random and are the same every time.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}

impl Disk {
    /// An empty disk.
    pub(crate) fn new(now_ms: i64) -> Self {
        let live = MemoryStorage::new();
        live.set_now_ms(now_ms);
        let mut state = State { fault: Fault::None, calls: 0, paths: BTreeMap::new(), nodes: vec![Node::default()], pending: Vec::new() };
        state.paths.insert(PathBuf::from("/"), 0);
        Self { live, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        let mut state = self.state();
        state.fault = fault;
        state.calls = 0;
    }

    /// Changes and syncs since the fault was set.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    pub(crate) fn advance_ms(&self, ms: u64) {
        self.live.advance_ms(ms);
    }

    /// The disk after a crash now, everything on it synced.
    pub(crate) fn after_crash(&self, survival: Survival, dice: &mut Dice) -> Self {
        let state = self.state();
        let mut names: Vec<_> = state.nodes.iter().map(|n| n.names.clone()).collect();
        let mut journal_ends = BTreeMap::new();
        for change in &state.pending {
            let dir = change.0[0].0;
            let survives = match survival {
                Survival::Everything => true,
                Survival::Nothing => false,
                Survival::InOrder => {
                    let of_dir = state.pending.iter().filter(|c| c.0[0].0 == dir).count() as u64;
                    let (seen, end) = journal_ends.entry(dir).or_insert_with(|| (0, dice.roll(of_dir + 1)));
                    *seen += 1;
                    *seen <= *end
                }
                Survival::AnyOrder => dice.roll(2) == 0,
            };
            if survives {
                for (dir, name, node) in &change.0 {
                    match node {
                        Some(node) => names[*dir].insert(name.clone(), *node),
                        None => names[*dir].remove(name),
                    };
                }
            }
        }
        let image = Self::new(self.live.now_ms());
        state.copy(&names, 0, Path::new("/"), &image, &mut |node| contents(node, survival, dice));
        image.sync_all();
        image
    }

    /// Calls everything synced.
    fn sync_all(&self) {
        let mut state = self.state();
        for at in 0..state.nodes.len() {
            state.sync_dir(at);
            state.sync_file(at);
        }
        state.fault = Fault::None;
        state.calls = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Counts a call that changes or syncs something; an error if it is not to be carried out.
    fn change(&self, frees_space: bool) -> io::Result<()> {
        let mut state = self.state();
        let call = state.calls;
        state.calls += 1;
        match state.fault {
            Fault::Crash { at } if call >= at => Err(io::Error::other("the machine has stopped")),
            Fault::Once { at, kind } if call == at => Err(kind.into()),
            Fault::Full { at } if call >= at && !frees_space => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// Whether the machine had stopped before the last call.
    fn is_stopped(&self) -> bool {
        let state = self.state();
        matches!(state.fault, Fault::Crash { at } if state.calls > at + 1)
    }
}

/// What is left of a file.
fn contents(node: &Node, survival: Survival, dice: &mut Dice) -> Vec<u8> {
    let now = node.file.as_ref().map(read).unwrap_or_default();
    let choice = match survival {
        Survival::Everything => 0,
        Survival::Nothing => 1,
        Survival::InOrder => dice.roll(2),
        Survival::AnyOrder => dice.roll(4),
    };
    let is_longer = now.len() > node.synced.len() && now.starts_with(&node.synced);
    match choice {
        0 => now,
        2 if is_longer => {
            let keep = node.synced.len() + dice.roll((now.len() - node.synced.len()) as u64) as usize;
            now[..keep].to_vec()
        }
        // The new length without the new bytes.
        3 if is_longer => {
            let mut zeros = node.synced.clone();
            zeros.resize(now.len(), 0);
            zeros
        }
        _ => node.synced.clone(),
    }
}

fn read(file: &Arc<dyn File>) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(read_full_at(&**file, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

impl State {
    fn node(&self, path: &Path) -> Option<usize> {
        self.paths.get(path).copied()
    }

    /// Directory and name of a path; the directory is there.
    fn place(&self, path: &Path) -> (usize, String) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (self.paths[path.parent().unwrap()], name)
    }

    fn add(&mut self, path: &Path, node: Node) -> usize {
        let at = self.nodes.len();
        self.nodes.push(node);
        let (dir, name) = self.place(path);
        self.paths.insert(path.to_owned(), at);
        self.pending.push(Change(vec![(dir, name, Some(at))]));
        at
    }

    fn remove(&mut self, path: &Path) {
        let (dir, name) = self.place(path);
        self.paths.remove(path);
        self.pending.push(Change(vec![(dir, name, None)]));
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let moved = self.paths[from];
        let ((from_dir, from_name), (to_dir, to_name)) = (self.place(from), self.place(to));
        self.pending.push(Change(vec![(from_dir, from_name, None), (to_dir, to_name, Some(moved))]));
        let below: Vec<_> =
            self.paths.range(from.to_owned()..).take_while(|(p, _)| p.starts_with(from)).map(|(p, n)| (p.clone(), *n)).collect();
        for (path, node) in below {
            self.paths.remove(&path);
            let path = if path == from { to.to_owned() } else { to.join(path.strip_prefix(from).unwrap()) };
            self.paths.insert(path, node);
        }
    }

    fn sync_dir(&mut self, dir: usize) {
        let (synced, pending) = std::mem::take(&mut self.pending).into_iter().partition(|c: &Change| c.0.iter().any(|e| e.0 == dir));
        self.pending = pending;
        let synced: Vec<Change> = synced;
        for (dir, name, node) in synced.into_iter().flat_map(|c| c.0) {
            match node {
                Some(node) => self.nodes[dir].names.insert(name, node),
                None => self.nodes[dir].names.remove(&name),
            };
        }
    }

    fn sync_file(&mut self, at: usize) {
        if let Some(file) = self.nodes[at].file.clone() {
            self.nodes[at].synced = read(&file);
        }
    }

    fn copy(&self, names: &[BTreeMap<String, usize>], at: usize, path: &Path, to: &Disk, contents: &mut dyn FnMut(&Node) -> Vec<u8>) {
        for (name, &child) in &names[at] {
            let path = path.join(name);
            let node = &self.nodes[child];
            if node.file.is_none() {
                to.create_dir(&path).unwrap();
                self.copy(names, child, &path, to, contents);
                continue;
            }
            let file = to.open(&path, OpenMode::CreateNew).unwrap();
            let bytes = contents(node);
            if !bytes.is_empty() {
                file.write_at(&bytes, 0).unwrap();
            }
            to.set_modified(&path, node.modified_ms).unwrap();
        }
    }
}

impl Storage for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let creates = matches!(mode, OpenMode::CreateNew | OpenMode::Truncate);
        if creates {
            self.change(false)?;
        }
        let file = self.live.open(path, mode)?;
        let mut state = self.state();
        let node = match state.node(path) {
            Some(node) => node,
            None => {
                let handle = self.live.open(path, OpenMode::Read)?;
                state.add(path, Node { file: Some(handle), modified_ms: self.live.now_ms(), ..Node::default() })
            }
        };
        Ok(Arc::new(DiskFile { disk: self.clone(), file, node }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.live.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.live.metadata(path)
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.change(true)?;
        self.live.set_modified(path, modified_ms)?;
        let mut state = self.state();
        if let Some(node) = state.node(path) {
            state.nodes[node].modified_ms = modified_ms;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(true)?;
        self.live.rename(from, to)?;
        self.state().rename(from, to);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(true)?;
        self.live.remove_file(path)?;
        self.state().remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(false)?;
        self.live.create_dir(path)?;
        self.state().add(path, Node::default());
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(true)?;
        self.live.remove_dir(path)?;
        self.state().remove(path);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(true)?;
        self.live.sync_dir(dir)?;
        let mut state = self.state();
        let node = state.node(dir).unwrap();
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
}

impl DiskFile {
    /// Bytes of a read or write of `len` that are carried out, where calls are short.
    fn shortened(&self, len: usize) -> io::Result<usize> {
        let mut state = self.disk.state();
        if state.fault != Fault::Short {
            return Ok(len);
        }
        state.calls += 1;
        if state.calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(len.min(1 + state.calls as usize % 97))
    }
}

impl File for DiskFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let len = self.shortened(buffer.len())?;
        self.file.read_at(&mut buffer[..len], position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let len = self.shortened(bytes.len())?;
        if let Err(e) = self.disk.change(false) {
            if !self.disk.is_stopped() {
                self.file.write_at(&bytes[..bytes.len() / 2], position)?;
            }
            return Err(e);
        }
        self.disk.state().nodes[self.node].modified_ms = self.disk.live.now_ms();
        self.file.write_at(&bytes[..len], position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change(true)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.change(true)?;
        self.file.sync_data()?;
        self.disk.state().sync_file(self.node);
        Ok(())
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.file.map(len)
    }
}
