//! Snapshots of partitions, beside their logs: when one is due, and how it is saved while commits go on.
//!
//! A crash has as much of the logs read again as was written behind the snapshots, and that is bounded for all partitions
//! together. To save one costs its whole size. So they are saved once what is not in them has become as much as they have
//! bytes, and first those that spare most for what they cost.
//!
//! The cache is looked at for a few blocks at a time, and commits wait no longer than for those. What was taken out is
//! true as of different moments; see `snapshot` for why that is right.

use std::fmt;
use std::io;
use std::sync::Weak;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::sync::{Mutex, PoisonError, map_each};
use keeplog_engine::{Error, Fingerprint, Log, Result, SegmentSet};

use super::OffsetStore;
use super::leading::{Served, Shown};
use super::shard::Shard;
use crate::load::{Kept, size_bytes};
use crate::snapshot::{Encoder, Moved, NAME, Writer, give_up};

/// About the bytes that an entry takes in a file.
const ENTRY_BYTES: u64 = 26;
/// A close saves what an open would have to read, down to this share of what is bearable after a crash.
const SHARE_AT_CLOSE: u64 = 16;
/// So often a save begins anew because the cache was put in order meanwhile.
const ATTEMPTS: usize = 3;

/// What saving snapshots came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SavedSnapshots {
    /// Partitions whose snapshot was saved.
    pub partitions: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl fmt::Display for SavedSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} snapshots of committed offsets, {} bytes", self.partitions, self.bytes)
    }
}

/// The snapshot of a partition.
#[derive(Default)]
pub(super) struct Snapshots {
    /// Held by the one who saves.
    saving: Mutex<()>,
    /// The one that is there, if any is that counts.
    saved: Mutex<Option<Saved>>,
}

struct Saved {
    kept: Kept,
    /// The segments when it was last compared with the log: as long as they are the same nothing below has changed.
    segments: Weak<SegmentSet>,
}

/// What a partition would have to read after a crash, and what it takes to make that nothing.
#[derive(Clone, Copy, Debug)]
struct Unsaved {
    log_bytes: u64,
    file_bytes: u64,
}

impl OffsetStore {
    /// Saves the snapshots that are due, of the partitions that are served: as many as bring what a load after a crash would
    /// have to read of the logs down to half of what [`CommitOptions::snapshot_interval_bytes`](super::CommitOptions) allows, once it
    /// is more. For a background thread, every few seconds; commits go on.
    ///
    /// # Errors
    /// The first failure. Nothing else depends on a snapshot.
    pub fn save_snapshots(&self) -> Result<SavedSnapshots> {
        self.save_due(1)
    }

    /// As [`OffsetStore::save_snapshots`], before a close: so that the next open has next to nothing to read.
    pub fn save_snapshots_at_close(&self) -> Result<SavedSnapshots> {
        self.save_due(SHARE_AT_CLOSE)
    }

    fn save_due(&self, share: u64) -> Result<SavedSnapshots> {
        let options = self.inner.options();
        if !options.snapshots {
            return Ok(SavedSnapshots::default());
        }
        let mut unsaved: Vec<_> = self.led_shards().filter_map(|shard| Some((shard.unsaved()?, shard))).collect();
        let bytes: u64 = unsaved.iter().map(|(unsaved, _)| unsaved.file_bytes).sum();
        let bearable = options.snapshot_interval_bytes.max(bytes) / share;
        let mut left: u64 = unsaved.iter().map(|(unsaved, _)| unsaved.log_bytes).sum();
        if left <= bearable {
            return Ok(SavedSnapshots::default());
        }
        // Those first that save most for what they cost.
        unsaved.sort_by_key(|(unsaved, _)| std::cmp::Reverse(unsaved.gain()));
        let mut due = Vec::new();
        for (unsaved, shard) in unsaved.into_iter().take_while(|(unsaved, _)| unsaved.log_bytes > 0) {
            if left <= bearable / 2 {
                break;
            }
            left -= unsaved.log_bytes;
            due.push(shard);
        }
        let save = |shard: &std::sync::Arc<Shard>| shard.save_snapshot(&mut || {});
        // Nobody commits any more when it is closed.
        let saved = if share > 1 { map_each(due, save) } else { due.into_iter().map(save).collect() };
        let mut all = SavedSnapshots::default();
        let mut failure = Ok(());
        for saved in saved {
            match saved {
                Ok(bytes) => {
                    all.partitions += u64::from(bytes > 0);
                    all.bytes += bytes;
                }
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        failure.map(|()| all)
    }
}

impl Unsaved {
    /// Bytes of the log for 1024 of the file.
    fn gain(&self) -> u64 {
        self.log_bytes.saturating_mul(1024) / self.file_bytes.max(1)
    }
}

impl Saved {
    /// Whether it counts for the log as it is now.
    fn is_of(&mut self, log: &Log) -> bool {
        let fingerprint = &self.kept.fingerprint;
        let segments = log.segments();
        let segments = std::sync::Arc::downgrade(&segments);
        if Weak::ptr_eq(&self.segments, &segments) && fingerprint.start_offset() == log.start_offset() {
            return true;
        }
        self.segments = segments;
        log.fingerprint(fingerprint.end_offset()).is_ok_and(|now| fingerprint.difference(&now).is_none())
    }
}

impl Shard {
    /// A load has found this snapshot, or none of use.
    pub(super) fn note_snapshot(&self, kept: Option<Kept>) {
        *self.saved() = kept.map(|kept| Saved { kept, segments: Weak::new() });
    }

    fn saved(&self) -> keeplog_engine::sync::MutexGuard<'_, Option<Saved>> {
        self.snapshots.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if it is not served, or must be loaded anew before it can be saved.
    fn unsaved(&self) -> Option<Unsaved> {
        let entries = match &*self.served() {
            Served::Loaded(shown) if self.can_be_saved(shown) => shown.replay.cache().len() as u64,
            _ => return None,
        };
        let log_bytes = size_bytes(self.log());
        let mut saved = self.saved();
        if saved.as_mut().is_some_and(|saved| !saved.is_of(self.log())) {
            *saved = None;
        }
        Some(match &*saved {
            Some(Saved { kept, .. }) => Unsaved { log_bytes: log_bytes.saturating_sub(kept.fingerprint.bytes()), file_bytes: kept.bytes },
            None => Unsaved { log_bytes, file_bytes: entries * ENTRY_BYTES },
        })
    }

    /// Whether what is shown is what a load would find below its end.
    fn can_be_saved(&self, shown: &Shown) -> bool {
        let log = self.log();
        !shown.has_gaps && shown.start_offset == log.start_offset() && shown.truncations == log.truncations()
    }

    /// Saves a snapshot of what is shown. Returns its length, 0 if none can be saved now. `between` is called while commits
    /// go on.
    pub(super) fn save_snapshot(&self, between: &mut dyn FnMut()) -> Result<u64> {
        let _saving = self.snapshots.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.log().path().join(NAME);
        for _ in 0..ATTEMPTS {
            match self.write_snapshot(between) {
                Ok(Some(kept)) => {
                    let bytes = kept.bytes;
                    tracing::debug!(path = %path.display(), bytes, "a snapshot of committed offsets is saved");
                    self.note_snapshot(Some(kept));
                    return Ok(bytes);
                }
                Ok(None) => break,
                Err(Failure::Moved) => {}
                Err(Failure::Io(error)) => {
                    give_up(&**self.log().storage(), &path);
                    return Err(Error::io("save a snapshot of committed offsets as", &path, error));
                }
                Err(Failure::Log(error)) => {
                    give_up(&**self.log().storage(), &path);
                    return Err(error);
                }
            }
        }
        give_up(&**self.log().storage(), &path);
        Ok(0)
    }

    fn write_snapshot(&self, between: &mut dyn FnMut()) -> std::result::Result<Option<Kept>, Failure> {
        let (log, path) = (self.log(), self.log().path().join(NAME));
        let shown_below = |shown: &Shown| if is_planted(Defect::SnapshotSaysTooMuch) { log.end_offset() } else { shown.end_offset };
        let (mut encoder, life, start_offset, truncations) = {
            let Served::Loaded(shown) = &*self.served() else { return Ok(None) };
            if !self.can_be_saved(shown) {
                return Ok(None);
            }
            (Encoder::begin(&shown.replay, shown_below(shown)), shown.life, shown.start_offset, shown.truncations)
        };
        let mut writer = Writer::create(log.storage(), path.clone())?;
        let end_offset = loop {
            let (is_last, end_offset) = match &*self.served() {
                Served::Loaded(shown) if shown.life == life && !shown.has_gaps => (encoder.take(&shown.replay)?, shown_below(shown)),
                _ => return Ok(None),
            };
            encoder.write(&mut writer)?;
            if is_last {
                break end_offset;
            }
            between();
        };
        // What it says must not outlive what it was made of.
        if log.recovery_point() < end_offset && !is_planted(Defect::SnapshotBeforeSync) {
            log.sync()?;
        }
        let fingerprint: Fingerprint = log.fingerprint(end_offset)?;
        if fingerprint.start_offset() != start_offset || log.truncations() != truncations {
            return Ok(None);
        }
        let bytes = encoder.finish(writer, fingerprint.clone())?;
        if log.truncations() != truncations {
            log.storage().remove_file(&path)?;
            return Ok(None);
        }
        Ok(Some(Kept { fingerprint, bytes }))
    }
}

enum Failure {
    Moved,
    Io(io::Error),
    Log(Error),
}

impl From<Moved> for Failure {
    fn from(_: Moved) -> Self {
        Self::Moved
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}
