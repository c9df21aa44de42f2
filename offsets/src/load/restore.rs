//! A snapshot first, and then the end of the log.

use keeplog_engine::{Fingerprint, Log, Result};

use super::{LoadReport, load_with, plain, reported, size_bytes};
use crate::replay::Replay;
use crate::snapshot::{self, NAME, Restored, Unusable};

/// Up to so many bytes of the log are read in its order, however little there is beside them.
const TAIL_BYTES: u64 = 32 << 20;
/// Beyond that, up to this share of the log: reading all of it, newest first, is about as much faster a byte.
const TAIL_SHARE: u64 = 4;

/// A snapshot that is there.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fingerprint: Fingerprint,
    /// Length of the file.
    pub(crate) bytes: u64,
}

/// As [`load_with`], from a snapshot as far as there is one that is of use; that is given as well.
pub(crate) fn load_restoring(log: &Log, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<(Replay, LoadReport, Option<Kept>)> {
    let restored = match restore(log, threads, progress) {
        Ok(restored) => restored,
        Err(why) => {
            refuse(log, &why);
            let (replay, report) = load_with(log, threads, progress)?;
            return Ok((replay, report, None));
        }
    };
    let Restored { mut replay, from_offset, fingerprint, bytes } = restored;
    let (known, from_snapshot) = (replay.counts(), replay.cache().len() as u64);
    let read = plain::go_on(log, &mut replay, from_offset, progress)?;
    let (replay, report) = reported(replay, read);
    let (records, tombstones) = (report.records - known.records, report.tombstones - known.tombstones);
    let report = LoadReport { records, tombstones, from_snapshot, snapshot_bytes: bytes, ..report };
    Ok((replay, report, Some(Kept { fingerprint, bytes })))
}

fn restore(log: &Log, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<Restored, Unusable> {
    let snapshot = snapshot::open(log)?;
    let log_bytes = size_bytes(log);
    let after = snapshot.bytes_after(log_bytes);
    if after > TAIL_BYTES.max(log_bytes / TAIL_SHARE) {
        return Err(Unusable::Old(after));
    }
    snapshot.read(threads, progress)
}

/// Says why a snapshot is not used, and removes one that never will be: what it stands for must not come back when the log,
/// longer again, looks like that which it was made of.
fn refuse(log: &Log, why: &Unusable) {
    let path = log.path().join(NAME);
    match why {
        Unusable::Missing => return,
        Unusable::Old(_) => {
            tracing::info!(path = %path.display(), %why, "a snapshot of committed offsets is not used: reading all of the log takes no longer");
            return;
        }
        _ => tracing::warn!(path = %path.display(), %why, "a snapshot of committed offsets is not used: all of the log is read"),
    }
    if matches!(why, Unusable::Log(_)) {
        return;
    }
    if let Err(error) = log.storage().remove_file(&path).and_then(|()| log.storage().sync_dir(log.path())) {
        tracing::warn!(path = %path.display(), %error, "it could not be removed either; it is looked at again at the next start");
    }
}
