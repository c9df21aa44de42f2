//! A storage over another one whose changes stay in memory: to see what work would come to, without doing it.
//!
//! A file is copied when it is first written to; cutting and renaming copy nothing. Locks are not taken: what is
//! never written needs none.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;

use crate::door::storage::{Entry, EntryKind, File, FileLock, Metadata, OpenMode, read_full_at};
use crate::door::{Storage, room};

/// The storage below, and what has changed in its stead.
#[derive(Debug)]
pub(crate) struct Shadow {
    below: Arc<dyn Storage>,
    names: Mutex<BTreeMap<PathBuf, Node>>,
}

#[derive(Clone, Debug)]
enum Node {
    Gone,
    Directory,
    File(Arc<ShadowFile>),
}

impl Shadow {
    pub(crate) fn new(below: Arc<dyn Storage>) -> Self {
        Self { below, names: Mutex::default() }
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Node>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner) // every change to it is a single step
    }

    /// The file at `path` as one that can be changed here.
    fn own(&self, path: &Path) -> io::Result<Arc<ShadowFile>> {
        let known = self.names().get(path).cloned();
        match known {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Gone) => Err(ErrorKind::NotFound.into()),
            Some(Node::Directory) => Err(ErrorKind::IsADirectory.into()),
            None => {
                let meta = self.below.metadata(path)?;
                let file = self.below.open(path, OpenMode::Read)?;
                let owned = Arc::new(ShadowFile::over(file, meta));
                self.names().insert(path.to_path_buf(), Node::File(Arc::clone(&owned)));
                Ok(owned)
            }
        }
    }

    fn create(&self, path: &Path) -> Arc<ShadowFile> {
        let content = Content::Here(Vec::new());
        let file = Arc::new(ShadowFile { state: RwLock::new(State { content, modified_ms: self.below.now_ms() }) });
        self.names().insert(path.to_path_buf(), Node::File(Arc::clone(&file)));
        file
    }
}

impl Storage for Shadow {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let changed = self.names().contains_key(path);
        match mode {
            OpenMode::Read if !changed => self.below.open(path, mode),
            OpenMode::Read | OpenMode::Write => Ok(self.own(path)?),
            OpenMode::CreateNew if self.metadata(path).is_ok() => Err(ErrorKind::AlreadyExists.into()),
            OpenMode::CreateNew | OpenMode::Truncate => Ok(self.create(path)),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let names = self.names();
        let listed = match names.get(dir) {
            Some(Node::Directory) => Vec::new(),
            _ => self.below.list(dir)?,
        };
        let mut found: BTreeMap<String, EntryKind> = listed.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        for (path, node) in names.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            match node {
                Node::Gone => drop(found.remove(name)),
                Node::Directory => drop(found.insert(name.to_owned(), EntryKind::Directory)),
                Node::File(_) => drop(found.insert(name.to_owned(), EntryKind::File)),
            }
        }
        Ok(found.into_iter().map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let known = self.names().get(path).cloned();
        match known {
            None => self.below.metadata(path),
            Some(Node::Gone) => Err(ErrorKind::NotFound.into()),
            Some(Node::Directory) => Ok(Metadata { len: 0, modified_ms: self.now_ms(), kind: EntryKind::Directory }),
            Some(Node::File(file)) => {
                let state = file.read();
                Ok(Metadata { len: state.content.len(), modified_ms: state.modified_ms, kind: EntryKind::File })
            }
        }
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.own(path)?.write().modified_ms = modified_ms;
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.own(from)?;
        let mut names = self.names();
        names.insert(from.to_path_buf(), Node::Gone);
        names.insert(to.to_path_buf(), Node::File(file));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.metadata(path)?;
        self.names().insert(path.to_path_buf(), Node::Gone);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if self.metadata(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.names().insert(path.to_path_buf(), Node::Directory);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.names().insert(path.to_path_buf(), Node::Gone);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(Unlocked))
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.below.canonicalize(path)
    }

    fn now_ms(&self) -> i64 {
        self.below.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.below.monotonic()
    }
}

#[derive(Debug)]
struct Unlocked;

impl FileLock for Unlocked {}

#[derive(Debug)]
struct ShadowFile {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    content: Content,
    modified_ms: i64,
}

#[derive(Debug)]
enum Content {
    /// The first `len` bytes of a file below.
    Below {
        file: Arc<dyn File>,
        len: u64,
    },
    Here(Vec<u8>),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Below { len, .. } => *len,
            Self::Here(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the file below has `bytes` at `position`.
    fn holds(&self, bytes: &[u8], position: u64) -> io::Result<bool> {
        let Self::Below { file, len } = self else { return Ok(false) };
        if position.saturating_add(bytes.len() as u64) > *len {
            return Ok(false);
        }
        let mut there = room::zeroed(bytes.len())?;
        Ok(read_full_at(&**file, &mut there, position)? == bytes.len() && there == bytes)
    }

    /// The bytes, copied here if they are not yet.
    fn here(&mut self) -> io::Result<&mut Vec<u8>> {
        if let Self::Below { file, len } = self {
            let mut bytes = room::zeroed(usize::try_from(*len).map_err(io::Error::other)?)?;
            let got = read_full_at(&**file, &mut bytes, 0)?;
            bytes.truncate(got);
            *self = Self::Here(bytes);
        }
        match self {
            Self::Here(bytes) => Ok(bytes),
            Self::Below { .. } => Err(io::Error::other("the copy of a file was lost")),
        }
    }
}

impl ShadowFile {
    fn over(file: Arc<dyn File>, meta: Metadata) -> Self {
        Self { state: RwLock::new(State { content: Content::Below { file, len: meta.len }, modified_ms: meta.modified_ms }) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner) // a failed change leaves the content as it was
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File for ShadowFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.read().content.len())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.read();
        let left = usize::try_from(state.content.len().saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        match &state.content {
            Content::Below { file, .. } => file.read_at(&mut buffer[..wanted], position),
            Content::Here(bytes) if wanted > 0 => {
                let from = position as usize;
                buffer[..wanted].copy_from_slice(&bytes[from..from + wanted]);
                Ok(wanted)
            }
            Content::Here(_) => Ok(0),
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let mut state = self.write();
        // What changes nothing copies nothing: recovery writes whole ends of segments anew.
        if state.content.holds(bytes, position)? {
            return Ok(bytes.len());
        }
        let here = state.content.here()?;
        let from = usize::try_from(position).map_err(io::Error::other)?;
        let to = from.checked_add(bytes.len()).ok_or(ErrorKind::FileTooLarge)?;
        if here.len() < to {
            room::resize(here, to)?;
        }
        here[from..to].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn set_len(&self, new_len: u64) -> io::Result<()> {
        let mut state = self.write();
        match &mut state.content {
            Content::Below { len, .. } if new_len <= *len => *len = new_len,
            content => room::resize(content.here()?, usize::try_from(new_len).map_err(io::Error::other)?)?,
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        match &self.read().content {
            Content::Below { file, .. } => file.map(len),
            Content::Here(bytes) => {
                let len = usize::try_from(len).map_err(io::Error::other)?;
                Ok(Bytes::copy_from_slice(bytes.get(..len).ok_or(ErrorKind::UnexpectedEof)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::storage::{MemoryStorage, write_all_at};

    fn content(storage: &dyn Storage, path: &str) -> io::Result<Vec<u8>> {
        let file = storage.open(Path::new(path), OpenMode::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        read_full_at(&*file, &mut bytes, 0)?;
        assert_eq!(file.map(bytes.len() as u64)?, bytes);
        Ok(bytes)
    }

    #[test]
    fn changes_are_seen_above_and_leave_the_storage_below_as_it_was() {
        let below = MemoryStorage::new();
        below.create_dir(Path::new("/d")).unwrap();
        for name in ["/d/a", "/d/b", "/d/c"] {
            write_all_at(&*below.open(Path::new(name), OpenMode::CreateNew).unwrap(), name.as_bytes(), 0).unwrap();
        }
        let shadow = Shadow::new(Arc::new(below.clone()));

        let file = shadow.open(Path::new("/d/a"), OpenMode::Write).unwrap();
        write_all_at(&*file, b"d/", 1).unwrap();
        assert!(format!("{file:?}").contains("Below"), "what changes nothing copies nothing");
        file.set_len(3).unwrap();
        assert_eq!(content(&shadow, "/d/a").unwrap(), b"/d/");
        write_all_at(&*file, b"xyz", 5).unwrap();
        assert_eq!(content(&shadow, "/d/a").unwrap(), b"/d/\0\0xyz");
        shadow.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        shadow.remove_file(Path::new("/d/c")).unwrap();
        write_all_at(&*shadow.open(Path::new("/d/new"), OpenMode::CreateNew).unwrap(), b"new", 0).unwrap();
        shadow.set_modified(Path::new("/d/new"), 5).unwrap();

        let names = |storage: &dyn Storage| storage.list(Path::new("/d")).unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(names(&shadow), ["b", "new"]);
        assert_eq!(content(&shadow, "/d/b").unwrap(), b"/d/\0\0xyz");
        assert_eq!(shadow.metadata(Path::new("/d/new")).unwrap().modified_ms, 5);
        assert_eq!(content(&shadow, "/d/c").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(shadow.open(Path::new("/d/b"), OpenMode::CreateNew).unwrap_err().kind(), ErrorKind::AlreadyExists);

        assert_eq!(names(&below), ["a", "b", "c"]);
        for name in ["/d/a", "/d/b", "/d/c"] {
            assert_eq!(content(&below, name).unwrap(), name.as_bytes());
        }
    }
}
