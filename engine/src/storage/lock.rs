//! The lock between processes that a Kafka broker respects: a POSIX record lock over the whole file, which is
//! what Java's `FileChannel.lock` takes. (BSD `flock`, which Rust's own `File::lock` takes, does not conflict
//! with it on Linux.)
//!
//! A plain record lock belongs to the process: a second handle of the same process would be let in, and closing
//! any handle on the file would give the lock away. Linux has record locks that belong to the open file instead
//! and conflict with the plain ones; elsewhere a table of this process stands in for that.
//!
//! A lock on a file says nothing any more once a copy has taken its name. Nobody puts another directory in the place of
//! the one that is open: so that is locked too, by `flock`, which a broker neither takes nor minds.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::FileLock;
use super::real::{open_dir, open_regular};

#[cfg(target_os = "linux")]
pub(super) use of_open_file::exclusive;
#[cfg(not(target_os = "linux"))]
pub(super) use of_process::exclusive;

/// How often to start over when the lock file is replaced under our hands: a broker removes its own on exit.
const ATTEMPTS_MAX: u32 = 100;

#[cfg(target_os = "linux")]
mod of_open_file {
    use super::*;

    #[derive(Debug)]
    struct Lock(File);
    impl FileLock for Lock {}

    pub(in super::super) fn exclusive(path: &Path) -> io::Result<Box<dyn FileLock>> {
        for _ in 0..ATTEMPTS_MAX {
            let file = open_lock_file(path)?;
            apply(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK)))?;
            if is_still_named(&file, path)? {
                return Ok(Box::new(Lock(file)));
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    impl Drop for Lock {
        fn drop(&mut self) {
            // Closing is not enough while a child that is just being started still shares the open file. An error
            // leaves what closing does.
            let _ = apply(&self.0, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
        }
    }
}

#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", allow(dead_code))] // on Linux only tests use it, as a stand-in for a broker
pub(super) mod of_process {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    type Identity = (u64, u64);

    /// Device and inode of every lock file that this process holds.
    static HELD: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

    #[derive(Debug)]
    struct Lock {
        file: File,
        identity: Identity,
    }
    impl FileLock for Lock {}

    pub(in super::super) fn exclusive(path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut held = held();
        for _ in 0..ATTEMPTS_MAX {
            // Look before opening: closing a second handle would give up the lock that the first one holds.
            if path.symlink_metadata().is_ok_and(|found| held.contains(&(found.dev(), found.ino()))) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let file = open_lock_file(path)?;
            apply(&file, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK)))?;
            if is_still_named(&file, path)? {
                let found = file.metadata()?;
                let identity = (found.dev(), found.ino());
                held.insert(identity);
                return Ok(Box::new(Lock { file, identity }));
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    impl Drop for Lock {
        fn drop(&mut self) {
            let mut held = held();
            let _ = apply(&self.file, FcntlArg::F_SETLK(&whole_file(libc::F_UNLCK))); // closing does the same
            held.remove(&self.identity);
        }
    }

    fn held() -> MutexGuard<'static, BTreeSet<Identity>> {
        HELD.lock().unwrap_or_else(PoisonError::into_inner) // a set is whole between any two of its calls
    }
}

#[derive(Debug)]
struct DirLock(File);

impl FileLock for DirLock {}

impl Drop for DirLock {
    fn drop(&mut self) {
        let _ = self.0.unlock(); // closing does the same, unless a child still shares it
    }
}

pub(super) fn directory(dir: &Path) -> io::Result<Box<dyn FileLock>> {
    let opened = open_dir(dir)?;
    match opened.try_lock() {
        Ok(()) => Ok(Box::new(DirLock(opened))),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        // Some network file systems lock files only: there the lock file is all there is.
        Err(TryLockError::Error(_)) => Ok(Box::new(super::NoLock)),
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    open_regular(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
}

/// Whether the locked file is the one that others find: its last owner may have removed it on the way out.
fn is_still_named(file: &File, path: &Path) -> io::Result<bool> {
    let locked = file.metadata()?;
    match path.symlink_metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == (locked.dev(), locked.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn apply(file: &File, request: FcntlArg<'_>) -> io::Result<()> {
    match fcntl(file, request) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(io::ErrorKind::WouldBlock.into()),
        Err(e) => Err(e.into()),
    }
}

fn whole_file(kind: impl Into<libc::c_int>) -> libc::flock {
    // Length 0 reaches to the end, wherever that is; pid 0 is what locks of an open file ask for.
    let (l_type, l_whence) = (kind.into() as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock {
        l_type,
        l_whence,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
        #[cfg(target_os = "freebsd")]
        l_sysid: 0,
    }
}
