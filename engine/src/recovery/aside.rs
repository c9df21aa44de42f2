//! Bytes that recovery takes out of a log although they may be more than a torn write: they are kept beside it.
//!
//! A copy has the name of its file, `.cut-` and the position that it began at. No reader of the log, and no broker, opens
//! files of such names.

use std::io;
use std::path::{Path, PathBuf};

use crate::names::{FileKind, FileState, file_name};
use crate::segment::Place;
use crate::storage::{File, OpenMode, read_full_at, write_all_at};
use crate::{Error, Result};

const COPY_BYTES: usize = 1 << 20;

/// Copies what stands from `position` on in the log file `base`, and syncs it. Returns the copy's name.
pub(super) fn copy(place: &Place, base: u64, position: u64) -> Result<String> {
    let source = place.path(base, FileKind::Log, FileState::Live);
    let from = place.storage.open(&source, OpenMode::Read).map_err(|e| Error::io("open", &source, e))?;
    let mut taken = 0;
    loop {
        let (name, path) = nth_name(place, base, position, taken);
        taken += 1;
        // Of a copy that a crash interrupted, more is written; what another cut left is not touched.
        if place.exists(&path) && !is_start_of(place, &path, &*from, position)? {
            continue;
        }
        let op = "keep the bytes that recovery cuts, in";
        let to = place.storage.open(&path, OpenMode::Truncate).map_err(|e| Error::io(op, &path, e))?;
        if let Err(cause) = copy_rest(&*from, position, &*to) {
            // A device that is full must not be left with less room than before.
            let _ = place.storage.remove_file(&path);
            return Err(Error::io(op, &path, cause));
        }
        place.sync_dir()?;
        return Ok(name);
    }
}

fn copy_rest(from: &dyn File, position: u64, to: &dyn File) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut done = 0;
    loop {
        let held = read_full_at(from, &mut buffer, position + done)?;
        if held == 0 {
            return to.sync_data();
        }
        write_all_at(to, &buffer[..held], done)?;
        done += held as u64;
    }
}

/// Gives the log file `base` such a name. Not synced here.
pub(super) fn rename(place: &Place, base: u64) -> Result<String> {
    let source = place.path(base, FileKind::Log, FileState::Live);
    let mut nth = 0;
    let (mut name, mut path) = nth_name(place, base, 0, nth);
    while place.exists(&path) {
        nth += 1;
        (name, path) = nth_name(place, base, 0, nth);
    }
    place.storage.rename(&source, &path).map_err(|e| Error::io("rename", &source, e))?;
    Ok(name)
}

fn nth_name(place: &Place, base: u64, position: u64, nth: u64) -> (String, PathBuf) {
    let file = file_name(base, FileKind::Log);
    let name = if nth == 0 { format!("{file}.cut-{position}") } else { format!("{file}.cut-{position}-{nth}") };
    let path = place.dir.join(&name);
    (name, path)
}

/// Whether the file at `path` holds the first bytes of what stands at `position` in `from`.
fn is_start_of(place: &Place, path: &Path, from: &dyn File, position: u64) -> Result<bool> {
    let copied = place.storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let (mut ours, mut theirs) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    let mut done = 0;
    loop {
        let held = read_full_at(&*copied, &mut ours, done).map_err(|e| Error::io("read", path, e))?;
        let there = read_full_at(from, &mut theirs[..held], position + done).map_err(|e| Error::io("read", path, e))?;
        if ours[..held] != theirs[..there] {
            return Ok(false);
        }
        if held == 0 {
            return Ok(true);
        }
        done += held as u64;
    }
}
