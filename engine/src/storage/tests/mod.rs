//! One suite for every storage, what only the real one can show, and a storage that fails on purpose.

pub(crate) mod conformance;
pub(crate) mod failing;
mod memory;
mod real;

use std::io;
use std::path::Path;

use super::{OpenMode, Storage, read_full_at, write_all_at};

/// Writes a whole file, not durably.
pub(crate) fn put(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    write_all_at(&*storage.open(path, OpenMode::Truncate).unwrap(), bytes, 0).unwrap();
}

/// Reads a whole file.
pub(crate) fn get(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap()];
    let n = read_full_at(&*file, &mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}
