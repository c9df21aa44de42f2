//! A data directory that is to get its partitions of `__consumer_offsets` by an import.

use std::path::{Path, PathBuf};

use crate::door::{CONSUMER_OFFSETS, Error, Storage};
use crate::failure::Failure;
use crate::target::{Partition, Target, is_data_dir};

/// Partitions that are made, at most.
const MADE_MAX: u32 = 10_000;
/// What a directory may hold in which nothing was ever written.
const HARMLESS: [&str; 2] = [".lock", ".kafka_cleanshutdown"];

/// What a directory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To change what is there.
    Change,
    /// To bring something there, where nothing may be yet.
    Import,
}

pub(super) fn find(storage: &dyn Storage, dir: &Path, purpose: Purpose) -> Result<Target, Failure> {
    match Target::find(storage, dir) {
        Ok(found) => Ok(found),
        Err(_) if purpose == Purpose::Import && may_be_filled(storage, dir) => Target::find_to_fill(storage, dir),
        Err(failure) => Err(failure),
    }
}

/// Whether nothing is in `dir` but what any data directory has, and partitions with nothing in them.
fn may_be_filled(storage: &dyn Storage, dir: &Path) -> bool {
    let of_topic = |name: &str| name.strip_prefix(CONSUMER_OFFSETS).is_some_and(|rest| rest.starts_with('-'));
    let is_blank = |name: &str| HARMLESS.contains(&name) || of_topic(name);
    storage.list(dir).is_ok_and(|entries| entries.iter().all(|entry| is_blank(&entry.name)) || is_data_dir(storage, dir))
}

/// Makes all partitions of the topic in `dir`, of which none is there; gives the paths.
pub(super) fn make_partitions(storage: &dyn Storage, dir: &Path, target: &mut Target, count: Option<u32>) -> Result<Vec<PathBuf>, Failure> {
    let shown = dir.display();
    let Some(count) = count else {
        return Err(Failure::new(format!("could not take offsets: {shown} holds no partition of {CONSUMER_OFFSETS}")).advise(
            "check the path; or say with --offsets-topic-num-partitions how many there are to be, to make them (a broker makes 50)",
        ));
    };
    if count > MADE_MAX {
        return Err(Failure::new(format!("could not make {count} partitions in {shown}")).advise(format!("{MADE_MAX} are made at most")));
    }
    let mut made = Vec::new();
    for number in 0..count {
        let name = format!("{CONSUMER_OFFSETS}-{number}");
        let path = dir.join(&name);
        storage.create_dir(&path).map_err(|e| Error::io("create", &path, e))?;
        made.push(path.clone());
        target.empty.push(Partition { name, path });
    }
    storage.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    Ok(made)
}
