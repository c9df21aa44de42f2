//! The machine's own file system and clock.
//!
//! Opening refuses whatever is not a regular file, without waiting (a FIFO planted among the segments must not
//! hang a start) and without following a link in the last part of the path.
#![allow(clippy::disallowed_methods)] // this is the one place where they are meant to be used

use std::fs::{self, FileTimes, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
#[cfg(target_os = "linux")]
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;

use super::{Entry, EntryKind, File, FileLock, Metadata, OpenMode, Storage, lock};

/// The file system and the clock of this machine.
#[derive(Clone, Debug)]
pub struct RealStorage {
    started: Instant,
}

impl RealStorage {
    /// The file system, with a monotonic clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for RealStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl Storage for RealStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        match mode {
            OpenMode::Read | OpenMode::Write => {}
            OpenMode::CreateNew => {
                options.create_new(true);
            }
            // Emptied below, once it is known to be a regular file.
            OpenMode::Truncate => {
                options.create(true).truncate(false);
            }
        }
        let file = open_regular(path, &mut options)?;
        if mode == OpenMode::Truncate {
            file.set_len(0)?;
        }
        Ok(Arc::new(RealFile { file }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                Ok(file_type) => kind_of(file_type),
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue, // removed while we were listing
                Err(e) => return Err(e),
            };
            entries.push(match entry.file_name().into_string() {
                Ok(name) => Entry { name, kind },
                Err(name) => Entry { name: name.to_string_lossy().into_owned(), kind: EntryKind::Other },
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let found = fs::metadata(path)?;
        let kind = kind_of(found.file_type());
        let modified_ms = found.mtime().saturating_mul(1000).saturating_add(found.mtime_nsec() / 1_000_000);
        Ok(Metadata { len: if kind == EntryKind::Directory { 0 } else { found.len() }, modified_ms, kind })
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let distance = Duration::from_millis(modified_ms.unsigned_abs());
        let time = if modified_ms < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        let time = time.ok_or(io::ErrorKind::InvalidInput)?;
        open_regular(path, OpenOptions::new().read(true))?.set_times(FileTimes::new().set_modified(time))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match open_dir(dir)?.sync_all() {
            // Some file systems have no such call: their names are as durable as they get.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => Ok(()),
            other => other,
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        lock::exclusive(path)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn FileLock>> {
        lock::directory(dir)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        }
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
}

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        FileExt::write_at(&self.file, bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Advice that the pages are not needed: of those that are not written yet, the system begins to write all, and waits for
    /// none. They stay readable.
    #[cfg(target_os = "linux")]
    fn start_write_back(&self) {
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        if len > self.len()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a map can't reach past the end of the file"));
        }
        match usize::try_from(len) {
            Ok(0) => Ok(Bytes::new()), // the system refuses empty maps
            Ok(len) => Ok(Bytes::from_owner(map_shared(&self.file, len)?)),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

/// Maps the first `len` bytes of `file` for reading.
#[allow(unsafe_code)]
fn map_shared(file: &fs::File, len: usize) -> io::Result<Mmap> {
    // SAFETY: the bytes behind the map must not change and must not go away while it lives. That is the contract
    // of `File::map`, and the engine keeps it: only sealed segments are mapped, a sealed segment is never cut
    // in place and never written but with the bytes that it holds, it is replaced by renaming a new file over it (the
    // old one lives on until it is unmapped), and the lock on the data directory keeps other engines and brokers out. `len` was checked against the file.
    unsafe { MmapOptions::new().len(len).map(file) }
}

/// Opens what must be a regular file, never following a link and never waiting for the other end of a pipe.
pub(super) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<fs::File> {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, which is not followed"),
        _ => e,
    })?;
    match kind_of(file.metadata()?.file_type()) {
        EntryKind::File => Ok(file),
        EntryKind::Directory => Err(io::ErrorKind::IsADirectory.into()),
        EntryKind::Other => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

pub(super) fn open_dir(dir: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK).open(dir)
}

fn kind_of(file_type: FileType) -> EntryKind {
    if file_type.is_file() {
        EntryKind::File
    } else if file_type.is_dir() {
        EntryKind::Directory
    } else {
        EntryKind::Other
    }
}
