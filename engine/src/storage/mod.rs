//! The seam to the machine: every file operation, sync, rename and clock reading of the engine and of all
//! above it goes through [`Storage`] and [`File`], so that a test can put a simulated disk and clock beneath.
//!
//! Contract that an implementation keeps and the engine relies on:
//! - Written bytes are durable after [`File::sync_data`] of that file; a created, renamed or removed name is
//!   durable only after [`Storage::sync_dir`] of its directory. Nothing else makes anything durable.
//! - [`Storage::rename`] replaces atomically. An open file goes on working after its name is gone.
//! - Reads and writes may be short; [`read_exact_at`] and [`write_all_at`] deal with that.

mod clock;
mod layer;
mod lock;
mod memory;
mod real;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use clock::FixedClock;
pub use layer::{FileLayer, Layer};
pub use memory::MemoryStorage;
pub use real::RealStorage;

/// How [`Storage::open`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing file, reading only.
    Read,
    /// Existing file, reading and writing.
    Write,
    /// New file, reading and writing; an error if the name exists.
    CreateNew,
    /// Reading and writing; created if missing, emptied if there.
    Truncate,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File name without its directory. Names that are not UTF-8 are listed lossily and never opened.
    pub name: String,
    /// What the name stands for; links are not followed.
    pub kind: EntryKind,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, a socket, a device: never followed, never touched.
    Other,
}

/// Size and modification time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes; 0 for a directory.
    pub len: u64,
    /// Milliseconds since the Unix epoch.
    pub modified_ms: i64,
    /// What the path stands for (links are followed here).
    pub kind: EntryKind,
}

/// A file system and a clock.
pub trait Storage: Send + Sync + Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// The names in `dir`, in ascending order.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    /// Size, time and kind of `path`.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;
    /// Sets the modification time, in ms since the Unix epoch.
    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()>;
    /// Renames a file or directory, replacing a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Creates one directory; an error if it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive inter-process lock on `path` (created if missing). `WouldBlock` if somebody holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
    /// Keeps other handles that ask for the same out of `dir`, where the system can: a lock file says nothing any more once
    /// somebody has put another file in its place. `WouldBlock` if somebody is in.
    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn FileLock>> {
        let _ = dir;
        Ok(Box::new(NoLock))
    }
    /// The absolute path without links, dots or double slashes.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;
    /// Wall clock, ms since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// An open file. Positions are bytes from its start.
pub trait File: Send + Sync + Debug {
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads at `position`; 0 only at or past the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes at `position`, extending the file as needed.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize>;
    /// Cuts the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Begins to write what is not on the device yet, so that a later [`File::sync_data`] has less to wait for. Promises
    /// nothing.
    fn start_write_back(&self) {}
    /// The first `len` bytes as shared memory that stays readable after the name is gone. `len` must not
    /// exceed the file's length, and nobody may shorten the file while the view lives (the engine cuts a
    /// file that may be mapped by writing a new one and renaming it over).
    fn map(&self, len: u64) -> io::Result<Bytes>;
}

/// Held while a directory is owned; released when dropped.
pub trait FileLock: Send + Sync + Debug {}

#[derive(Debug)]
struct NoLock;

impl FileLock for NoLock {}

/// Fills `buffer` from `position`, or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn File, mut buffer: &mut [u8], mut position: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let n = read_some_at(file, buffer, position)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[n..];
        position += n as u64;
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; returns the bytes read.
pub fn read_full_at(file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let n = read_some_at(file, &mut buffer[done..], position + done as u64)?;
        if n == 0 {
            break;
        }
        done += n;
    }
    Ok(done)
}

fn read_some_at(file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, position) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes all of `bytes` at `position`. After an error some of them may be there.
pub fn write_all_at(file: &dyn File, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                position += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
