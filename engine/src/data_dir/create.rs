//! Making a data directory, so that its name lasts.

use std::io;
use std::path::Path;

use crate::storage::Storage;
use crate::{Error, Result};

/// Creates `path` and what is missing above it, durably.
pub(super) fn create_dirs(storage: &dyn Storage, path: &Path) -> Result<()> {
    let above = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    match storage.metadata(path) {
        // Whoever made it may have been killed before its name was durable.
        Ok(_) => return above.map_or(Ok(()), |above| sync_name(storage, above)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io("look at", path, e)),
    }
    if let Some(above) = above {
        create_dirs(storage, above)?;
    }
    match storage.create_dir(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()), // made by someone else meanwhile
        Err(e) => return Err(Error::io("create", path, e)),
    }
    sync_name(storage, above.unwrap_or(path))
}

/// Makes a name in `dir` durable. A directory that may not be read holds names that somebody else has made.
fn sync_name(storage: &dyn Storage, dir: &Path) -> Result<()> {
    match storage.sync_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::PermissionDenied => Err(Error::io("sync", dir, e)),
        _ => Ok(()),
    }
}
