//! Directories to work in.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::Outcome;
use crate::args::Common;

/// A new directory, removed when dropped.
pub(crate) fn directory(common: &Common) -> Outcome<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("keeplog-benches-");
    let made = match &common.dir {
        Some(dir) => fs::create_dir_all(dir).and_then(|()| builder.tempdir_in(dir)),
        None => builder.tempdir(),
    };
    Ok(made?)
}

/// Copies `from`, with all that is in it, to the new directory `to`.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { self::copy(&path, &copy)? } else { _ = fs::copy(path, copy)? }
    }
    Ok(())
}

/// Lets everything that was written so far reach the disk, so that it does not do so during a measurement.
pub(crate) fn settle() -> Outcome<()> {
    let status = Command::new("sync").status()?;
    if status.success() { Ok(()) } else { Err(format!("`sync` ended with {status}").into()) }
}
