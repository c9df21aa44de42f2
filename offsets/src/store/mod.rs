//! Commit and fetch, over the logs of `__consumer_offsets`.

mod bell;
mod commit;
mod counters;
mod delete;
mod expire;
mod fetch;
mod lead;
mod leading;
mod options;
mod shard;
mod snapshots;
mod types;

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use keeplog_engine::sync::{Arc, Mutex, PoisonError, RwLock, map_each};
use keeplog_engine::{Error, ErrorKind, Log, Result};

pub use counters::OffsetCounters;
pub use expire::Expired;
pub use leading::{Lead, PartitionState};
pub use options::{CommitOptions, RequiredAcks};
pub use snapshots::SavedSnapshots;
pub use types::{Escaped, ListedOffset, LoadReport, OffsetAndMetadata, Producer, Refusal, Unstable};

use crate::load::size_bytes;
use crate::partition::partition_for;
use bell::Bell;
use counters::Counters;
use shard::Shard;

/// The committed offsets of consumer groups: kept in logs, served from memory.
///
/// All of a group lies in one partition, so its commits have one order. A commit is appended, made durable as the
/// options say, and only then shown: what a fetch answers, no crash takes back.
///
/// A handle is cheap to clone and usable from any thread. The store must be the only writer of its logs; after anyone
/// else has written to them, [`OffsetStore::reload`].
#[derive(Clone)]
pub struct OffsetStore {
    inner: Arc<Inner>,
}

struct Inner {
    /// By partition.
    shards: Vec<Arc<Shard>>,
    partitions: NonZeroU32,
    options: RwLock<CommitOptions>,
    last_load: Mutex<LoadReport>,
    counters: Arc<Counters>,
    /// Rung when there is something for the background thread.
    bell: Bell,
}

impl OffsetStore {
    /// Loads the store from `logs`: all partitions of one topic, in order from 0. They are loaded at the same time, as
    /// far as there are processors. The number of logs decides where groups are looked for, so it must
    /// never change.
    ///
    /// # Errors
    /// `InvalidInput` if `logs` is not the partitions of a topic from 0 on; `Corrupt` for anything that cannot be read, and
    /// for a log of which recovery found something gone that was safe once: a part of what is committed is never served
    /// without a word. What recovery has cut off it finds no more the next time: so opening the logs again accepts what is
    /// left.
    pub fn open(logs: Vec<Log>, options: CommitOptions) -> Result<Self> {
        let store = Self::open_unled(logs, options)?;
        store.inner.shards.iter().for_each(|shard| shard.lead_at_open());
        store.load_all(store.inner.options().snapshots)?;
        Ok(store)
    }

    /// As [`OffsetStore::open`], but serves nothing yet: each partition from the moment on when it is led, see
    /// [`OffsetStore::lead`].
    pub fn open_unled(logs: Vec<Log>, options: CommitOptions) -> Result<Self> {
        options.check()?;
        let partitions = check_logs(&logs)?;
        logs.iter().try_for_each(check_whole)?;
        let counters = Arc::<Counters>::default();
        let shards = logs.into_iter().map(|log| Arc::new(Shard::new(log, Arc::clone(&counters)))).collect();
        let (options, last_load) = (RwLock::new(options), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { shards, partitions, options, last_load, counters, bell: Bell::default() }) })
    }

    /// Syncs and shows everything that was committed before this call, by anyone.
    ///
    /// # Errors
    /// The first failure; those who wait for what it concerns are told, too.
    pub fn flush(&self) -> Result<()> {
        self.inner.shards.iter().map(|shard| shard.flush()).fold(Ok(()), Result::and)
    }

    /// For a background thread: waits until commits wait for a sync that nobody makes, no longer than `at_most`, and makes
    /// it. Failures are told to those who wait, and to the log of the process.
    pub fn flush_what_waits(&self, at_most: Duration) {
        if !self.inner.bell.wait(at_most) {
            return;
        }
        let linger = self.inner.options().append_linger;
        if !linger.is_zero() {
            self.inner.bell.pause(linger);
        }
        let _span = tracing::debug_span!("sync commits").entered();
        if let Err(error) = self.flush() {
            tracing::error!(%error, "commits could not be made durable");
        }
    }

    /// Wakes [`OffsetStore::flush_what_waits`] from its wait, or from its next one.
    pub fn wake(&self) {
        self.inner.bell.ring();
    }

    /// Loads all partitions that are led anew, from their logs alone. One that fails serves nothing until a later reload
    /// succeeds.
    pub fn reload(&self) -> Result<LoadReport> {
        self.load_all(false)
    }

    fn load_all(&self, restores: bool) -> Result<LoadReport> {
        let storage = Arc::clone(self.inner.shards[0].log().storage());
        let started = storage.monotonic();
        let all_bytes = self.led_shards().map(|shard| size_bytes(shard.log())).sum();
        let reports = map_each(self.led_shards().collect(), |shard| shard.reload(all_bytes, restores));
        let reports = reports.into_iter().collect::<Result<Vec<_>>>()?;
        self.note_load(&reports, (storage.monotonic() - started).as_secs_f64());
        Ok(self.load_report())
    }

    /// What the last load met.
    #[must_use]
    pub fn load_report(&self) -> LoadReport {
        *self.inner.last_load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of partitions.
    #[must_use]
    pub fn partitions(&self) -> NonZeroU32 {
        self.inner.partitions
    }

    /// Its settings as they are now.
    #[must_use]
    pub fn options(&self) -> CommitOptions {
        self.inner.options()
    }

    /// Changes its settings. They count from the next call on.
    ///
    /// # Errors
    /// `InvalidInput` for settings that can't work; nothing has changed then.
    pub fn set_options(&self, options: CommitOptions) -> Result<()> {
        options.check()?;
        *self.inner.options.write().unwrap_or_else(PoisonError::into_inner) = options;
        Ok(())
    }

    fn shard(&self, group: &str) -> &Arc<Shard> {
        &self.inner.shards[partition_for(group, self.inner.partitions) as usize]
    }

    /// The partitions that are led, loaded or not.
    fn led_shards(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.inner.shards.iter().filter(|shard| shard.is_led())
    }

    fn note_load(&self, reports: &[LoadReport], seconds: f64) {
        let mut report = reports.iter().copied().fold(LoadReport::default(), LoadReport::and);
        report.seconds = seconds;
        for (partition, shard) in (0u32..).zip(&self.inner.shards).filter(|(_, shard)| shard.is_led()) {
            let misplaced = |group: &&Arc<str>| partition_for(group, self.inner.partitions) != partition;
            // One that was resigned since has nothing to say.
            report.misplaced_groups += shard.read(|cache| cache.groups().filter(misplaced).count() as u64).unwrap_or_default();
        }
        if report.misplaced_groups > 0 {
            tracing::warn!(groups = report.misplaced_groups, "groups lie in partitions where fetches do not look for them");
        }
        tracing::info!(%report, "committed offsets are loaded");
        *self.inner.last_load.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

impl Inner {
    fn options(&self) -> CommitOptions {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for OffsetStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffsetStore").field("partitions", &self.inner.partitions).finish_non_exhaustive()
    }
}

/// Refuses a log that has lost something which was known to be on stable storage.
fn check_whole(log: &Log) -> Result<()> {
    let report = log.recovery_report();
    let known = report.damage.iter().find(|damage| report.read_only || report.clean || damage.offset < report.recovery_point);
    let what = match (known, &report.lost) {
        (Some(damage), _) => format!("{} at byte {}: {}", damage.file, damage.position, damage.what),
        (None, Some(lost)) => format!("offsets {} to {} are gone", lost.start, lost.end),
        (None, None) if report.clean && report.ended_below_start.is_some() => {
            format!("by its checkpoint it starts at {}, above its end", report.log_start_offset)
        }
        (None, None) => return Ok(()),
    };
    let detail = format!("recovery found something gone that was safe once ({what}): restore it; see `keeplog verify` for what is left");
    Err(Error::new(ErrorKind::Corrupt, "load committed offsets from", detail).at(log.path()))
}

fn check_logs(logs: &[Log]) -> Result<NonZeroU32> {
    let refuse = |why: String| Error::invalid("open an offset store", why);
    let count = u32::try_from(logs.len()).ok().and_then(NonZeroU32::new).ok_or_else(|| refuse("it needs at least one log".into()))?;
    let topic = logs[0].topic_partition().topic();
    for (partition, log) in (0u32..).zip(logs) {
        let given = log.topic_partition();
        if given.topic() != topic || given.partition() != partition {
            return Err(refuse(format!("log {partition} is {given}, {topic}-{partition} is due")));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
