//! A whole file system in memory, with a clock that moves only when told: the same calls give the same results.
//!
//! It keeps Unix semantics: a file is an inode that lives as long as a name or a handle refers to it, and a rename
//! moves a whole directory. It is not kinder than the real thing: the suite in `tests/conformance.rs` runs on
//! both, and random calls are compared.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;

use super::{Entry, EntryKind, File, FileLock, Metadata, OpenMode, Storage};

/// Largest file: a mistaken length must not take the machine's memory.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// What the clock of a new storage shows, ms since the Unix epoch.
const FIRST_NOW_MS: i64 = 1_700_000_000_000;

/// A file system in memory. A clone is a handle on the same one.
#[derive(Clone, Debug)]
pub struct MemoryStorage {
    world: Arc<World>,
}

#[derive(Debug)]
struct World {
    root: Mutex<Directory>,
    clock: Arc<Clock>,
}

#[derive(Debug)]
struct Clock {
    now_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct Directory {
    entries: BTreeMap<String, Node>,
    modified_ms: i64,
}

#[derive(Debug)]
enum Node {
    File(Arc<Inode>),
    Directory(Directory),
    Other,
}

#[derive(Debug)]
struct Inode {
    state: RwLock<FileState>,
    locked: AtomicBool,
    clock: Arc<Clock>,
}

#[derive(Debug)]
struct FileState {
    bytes: Vec<u8>,
    modified_ms: i64,
}

impl MemoryStorage {
    /// An empty file system: its root `/` is there. The clock shows some moment in 2023 and stands still.
    #[must_use]
    pub fn new() -> Self {
        let clock = Arc::new(Clock { now_ms: AtomicI64::new(FIRST_NOW_MS), monotonic_ms: AtomicU64::new(0) });
        Self { world: Arc::new(World { root: Mutex::new(Directory::default()), clock }) }
    }

    /// Sets the wall clock, in ms since the Unix epoch; it may go back. The monotonic clock does not move.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.world.clock.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Lets `ms` milliseconds pass on both clocks.
    pub fn advance_ms(&self, ms: u64) {
        self.world.clock.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        // invariant: the closure always returns a value, so the update can't fail
        let _ = self.world.clock.now_ms.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(ms)));
    }

    /// A copy of the whole file system as it is now, with a clock of its own that shows the same time and with no
    /// lock held: what a process finds that starts after this one was killed.
    #[must_use]
    pub fn image(&self) -> Self {
        let clock = Arc::new(Clock {
            now_ms: AtomicI64::new(self.now_ms()),
            monotonic_ms: AtomicU64::new(self.world.clock.monotonic_ms.load(Ordering::SeqCst)),
        });
        let root = self.root().image(&clock);
        Self { world: Arc::new(World { root: Mutex::new(root), clock }) }
    }

    /// Puts a name at `path` that is neither file nor directory, as a link or a device would be.
    pub fn create_other(&self, path: &Path) -> io::Result<()> {
        let (mut root, now_ms) = (self.root(), self.now_ms());
        let (dir, name) = parent(&mut root, path)?;
        if dir.entries.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        dir.insert(name, Node::Other, now_ms);
        Ok(())
    }

    fn root(&self) -> MutexGuard<'_, Directory> {
        self.world.root.lock().unwrap_or_else(PoisonError::into_inner) // no call leaves the tree half changed
    }

    fn new_inode(&self) -> Arc<Inode> {
        let state = FileState { bytes: Vec::new(), modified_ms: self.now_ms() };
        Arc::new(Inode { state: RwLock::new(state), locked: AtomicBool::new(false), clock: Arc::clone(&self.world.clock) })
    }

    /// The file at `path`; made if it is missing and `create` says so.
    fn file(&self, path: &Path, create: Create) -> io::Result<Arc<Inode>> {
        let (mut root, now_ms) = (self.root(), self.now_ms());
        if names(path)?.is_empty() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let (dir, name) = parent(&mut root, path)?;
        match (dir.entries.get(&name), create) {
            (Some(_), Create::Always) => Err(ErrorKind::AlreadyExists.into()),
            (Some(Node::File(inode)), _) => Ok(Arc::clone(inode)),
            (Some(Node::Directory(_)), _) => Err(ErrorKind::IsADirectory.into()),
            (Some(Node::Other), _) => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
            (None, Create::Never) => Err(ErrorKind::NotFound.into()),
            (None, Create::IfMissing | Create::Always) => {
                let inode = self.new_inode();
                dir.insert(name, Node::File(Arc::clone(&inode)), now_ms);
                Ok(inode)
            }
        }
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy)]
enum Create {
    Never,
    IfMissing,
    Always,
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inode = self.file(
            path,
            match mode {
                OpenMode::Read | OpenMode::Write => Create::Never,
                OpenMode::CreateNew => Create::Always,
                OpenMode::Truncate => Create::IfMissing,
            },
        )?;
        let file = MemoryFile { inode, writable: mode != OpenMode::Read };
        if mode == OpenMode::Truncate {
            file.set_len(0)?;
        }
        Ok(Arc::new(file))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut root = self.root();
        let entries = directory(&mut root, &names(dir)?)?.entries.iter();
        Ok(entries.map(|(name, node)| Entry { name: name.clone(), kind: node.kind() }).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let mut root = self.root();
        if names(path)?.is_empty() {
            return Ok(Metadata { len: 0, modified_ms: root.modified_ms, kind: EntryKind::Directory });
        }
        let (dir, name) = parent(&mut root, path)?;
        let node = dir.entries.get(&name).ok_or(ErrorKind::NotFound)?;
        let (len, modified_ms) = match node {
            Node::File(inode) => {
                let state = inode.read();
                (state.bytes.len() as u64, state.modified_ms)
            }
            Node::Directory(inner) => (0, inner.modified_ms),
            Node::Other => (0, 0),
        };
        Ok(Metadata { len, modified_ms, kind: node.kind() })
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.file(path, Create::Never)?.write().modified_ms = modified_ms;
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut root, now_ms) = (self.root(), self.now_ms());
        let (from_names, to_names) = (names(from)?, names(to)?);
        // The order of the checks is that of the system call.
        parent(&mut root, from)?;
        parent(&mut root, to)?;
        let (dir, name) = parent(&mut root, from)?;
        let moved = dir.entries.get(&name).ok_or(ErrorKind::NotFound)?.kind();
        if from_names == to_names {
            return Ok(());
        }
        if to_names.starts_with(&from_names) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let (to_dir, to_name) = parent(&mut root, to)?;
        match (moved, to_dir.entries.get(&to_name)) {
            (EntryKind::Directory, Some(Node::Directory(there))) if there.entries.is_empty() => {}
            (_, Some(Node::Directory(_))) if from_names.starts_with(&to_names) => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            (EntryKind::Directory, Some(Node::Directory(_))) => return Err(ErrorKind::DirectoryNotEmpty.into()),
            (EntryKind::Directory, Some(_)) => return Err(ErrorKind::NotADirectory.into()),
            (_, Some(Node::Directory(_))) => return Err(ErrorKind::IsADirectory.into()),
            (_, Some(_) | None) => {}
        }
        let (dir, name) = parent(&mut root, from)?;
        let node = dir.remove(&name, now_ms).ok_or(ErrorKind::NotFound)?;
        let (dir, name) = parent(&mut root, to)?;
        dir.insert(name, node, now_ms);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (mut root, now_ms) = (self.root(), self.now_ms());
        let (dir, name) = parent(&mut root, path)?;
        match dir.entries.get(&name).ok_or(ErrorKind::NotFound)? {
            Node::Directory(_) => Err(ErrorKind::IsADirectory.into()),
            Node::File(_) | Node::Other => {
                dir.remove(&name, now_ms);
                Ok(())
            }
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let (mut root, now_ms) = (self.root(), self.now_ms());
        if names(path)?.is_empty() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (dir, name) = parent(&mut root, path)?;
        if dir.entries.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        dir.insert(name, Node::Directory(Directory { entries: BTreeMap::new(), modified_ms: now_ms }), now_ms);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (mut root, now_ms) = (self.root(), self.now_ms());
        let (dir, name) = parent(&mut root, path)?;
        match dir.entries.get(&name).ok_or(ErrorKind::NotFound)? {
            Node::Directory(inner) if inner.entries.is_empty() => {
                dir.remove(&name, now_ms);
                Ok(())
            }
            Node::Directory(_) => Err(ErrorKind::DirectoryNotEmpty.into()),
            Node::File(_) | Node::Other => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        directory(&mut self.root(), &names(dir)?).map(|_| ())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let inode = self.file(path, Create::IfMissing)?;
        if inode.locked.swap(true, Ordering::SeqCst) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { inode }))
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.metadata(path)?;
        Ok(Path::new("/").join(names(path)?.iter().collect::<PathBuf>()))
    }

    fn now_ms(&self) -> i64 {
        self.world.clock.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.world.clock.monotonic_ms.load(Ordering::SeqCst))
    }
}

#[derive(Debug)]
struct MemoryFile {
    inode: Arc<Inode>,
    writable: bool,
}

impl MemoryFile {
    fn change(&self, len: u64) -> io::Result<RwLockWriteGuard<'_, FileState>> {
        if !self.writable {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "the file was opened for reading"));
        }
        if len > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut state = self.inode.write();
        state.modified_ms = self.inode.clock.now_ms.load(Ordering::SeqCst);
        Ok(state)
    }
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.read().bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.inode.read();
        let rest = usize::try_from(position).ok().and_then(|start| state.bytes.get(start..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let end = position.saturating_add(bytes.len() as u64);
        let mut state = self.change(end)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        // invariant: `change` bounds the end, and with it the start
        let (start, end) = (position as usize, end as usize);
        if state.bytes.len() < end {
            state.bytes.resize(end, 0);
        }
        state.bytes[start..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(len)?.bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        let state = self.inode.read();
        match usize::try_from(len).ok().and_then(|len| state.bytes.get(..len)) {
            Some(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            None => Err(io::Error::new(ErrorKind::InvalidInput, "a map can't reach past the end of the file")),
        }
    }
}

#[derive(Debug)]
struct MemoryLock {
    inode: Arc<Inode>,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.inode.locked.store(false, Ordering::SeqCst);
    }
}

impl Inode {
    fn image(&self, clock: &Arc<Clock>) -> Self {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let state = FileState { bytes: state.bytes.clone(), modified_ms: state.modified_ms };
        Self { state: RwLock::new(state), locked: AtomicBool::new(false), clock: Arc::clone(clock) }
    }

    // A panic while the contents are locked leaves them as some write left them, which any reader must bear.
    fn read(&self) -> RwLockReadGuard<'_, FileState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, FileState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory {
    fn image(&self, clock: &Arc<Clock>) -> Self {
        let copy = |node: &Node| match node {
            Node::File(inode) => Node::File(Arc::new(inode.image(clock))),
            Node::Directory(dir) => Node::Directory(dir.image(clock)),
            Node::Other => Node::Other,
        };
        Self { entries: self.entries.iter().map(|(name, node)| (name.clone(), copy(node))).collect(), modified_ms: self.modified_ms }
    }

    fn insert(&mut self, name: String, node: Node, now_ms: i64) {
        self.entries.insert(name, node);
        self.modified_ms = now_ms;
    }

    fn remove(&mut self, name: &str, now_ms: i64) -> Option<Node> {
        self.modified_ms = now_ms;
        self.entries.remove(name)
    }
}

impl Node {
    fn kind(&self) -> EntryKind {
        match self {
            Self::File(_) => EntryKind::File,
            Self::Directory(_) => EntryKind::Directory,
            Self::Other => EntryKind::Other,
        }
    }
}

/// The names from the root to `path`. There are no links, so `..` can be resolved by looking at the path alone.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
            Component::ParentDir => {
                names.pop();
            }
            Component::Normal(name) => names.push(name.to_str().ok_or(ErrorKind::InvalidInput)?.to_owned()),
        }
    }
    Ok(names)
}

fn directory<'a>(root: &'a mut Directory, names: &[String]) -> io::Result<&'a mut Directory> {
    names.iter().try_fold(root, |dir, name| match dir.entries.get_mut(name) {
        Some(Node::Directory(inner)) => Ok(inner),
        Some(Node::File(_) | Node::Other) => Err(ErrorKind::NotADirectory.into()),
        None => Err(ErrorKind::NotFound.into()),
    })
}

fn parent<'a>(root: &'a mut Directory, path: &Path) -> io::Result<(&'a mut Directory, String)> {
    let mut names = names(path)?;
    let name = names.pop().ok_or(ErrorKind::InvalidInput)?;
    Ok((directory(root, &names)?, name))
}
