//! Files in memory, and one that reads in pieces.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use keeplog_engine::storage::{File, MemoryStorage, OpenMode, Storage, read_exact_at, write_all_at};

/// A file system whose one directory `dir` holds one file.
pub(crate) fn with_file(path: &str, bytes: &[u8]) -> MemoryStorage {
    let disk = MemoryStorage::new();
    let dir = Path::new(path).parent().expect("a file in a directory");
    disk.create_dir(dir).expect("a new directory");
    write(&disk, Path::new(path), bytes);
    disk
}

/// Replaces the contents of a file, or makes it.
pub(crate) fn write(disk: &dyn Storage, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::Truncate).expect("a file can be made in memory");
    write_all_at(&*file, bytes, 0).expect("memory takes what is written");
}

/// All bytes of a file.
pub(crate) fn read(disk: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    read_exact_at(&*file, &mut bytes, 0)?;
    Ok(bytes)
}

/// A file that gives fewer bytes than asked for, and now and then none but an interruption, as a kernel may.
#[derive(Debug)]
pub(crate) struct Piecemeal {
    inner: Arc<dyn File>,
    piece_bytes: usize,
    calls: AtomicU32,
}

impl Piecemeal {
    pub(crate) fn new(inner: Arc<dyn File>, piece_bytes: usize) -> Self {
        Self { inner, piece_bytes: piece_bytes.max(1), calls: AtomicU32::new(0) }
    }
}

impl File for Piecemeal {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if self.calls.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = buffer.len().min(self.piece_bytes);
        self.inner.read_at(&mut buffer[..len], position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.inner.map(len)
    }
}
