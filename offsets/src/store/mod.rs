//! Commit and fetch, over the logs of `__consumer_offsets`.

mod options;
mod shard;
mod types;

use std::fmt;
use std::num::NonZeroU32;

use keeplog_engine::names::check_topic;
use keeplog_engine::record::Record;
use keeplog_engine::sync::{Arc, Mutex, PoisonError, map_each};
use keeplog_engine::{Error, ErrorKind, Log, Result};

pub use options::CommitOptions;
pub use types::{Escaped, ListedOffset, LoadReport, OffsetAndMetadata};

use crate::cache::GroupOffset;
use crate::partition::partition_for;
use crate::record::{OffsetKey, OffsetValue};
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
    shards: Vec<Shard>,
    partitions: NonZeroU32,
    options: CommitOptions,
    last_load: Mutex<LoadReport>,
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
        let partitions = check_logs(&logs)?;
        logs.iter().try_for_each(check_whole)?;
        let storage = Arc::clone(logs[0].storage());
        let started = storage.monotonic();
        let loaded = map_each(logs, Shard::open).into_iter().collect::<Result<Vec<_>>>()?;
        let (shards, reports): (Vec<_>, Vec<_>) = loaded.into_iter().unzip();
        let store = Self { inner: Arc::new(Inner { shards, partitions, options, last_load: Mutex::default() }) };
        let seconds = (storage.monotonic() - started).as_secs_f64();
        store.note_load(&reports, seconds)?;
        Ok(store)
    }

    /// Commits `offsets` of a group, all or none, in one batch: (topic, partition, offset) each; of several for one
    /// partition the last counts. An offset may go back. Returns when it is safe, and fetches answer it.
    ///
    /// After an error, none of it is shown. If it is one of storage, the batch may be in the log all the same, and show
    /// after the next load.
    ///
    /// # Errors
    /// `InvalidInput`, naming the entry at fault: for topics outside Kafka's grammar, negative partitions or leader
    /// epochs, offsets above 2^63 - 1, metadata above `offset_metadata_max_bytes`, a batch above `max_message_bytes`.
    /// Otherwise as [`Log::append`].
    pub fn commit<T: AsRef<str>>(&self, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Result<()> {
        let shard = self.shard(group);
        let now_ms = shard.log().storage().now_ms();
        let mut records = Vec::with_capacity(offsets.len());
        for (topic, partition, committed) in offsets {
            let key = OffsetKey { group, topic: topic.as_ref(), partition: *partition };
            records.push(self.encode(&key, committed, now_ms)?);
        }
        if records.is_empty() {
            return Ok(());
        }
        shard.write(self.inner.options.durability, records)
    }

    /// What `group` has committed for each of `partitions` (topic, partition), in their order; `None` for nothing.
    pub fn fetch<T: AsRef<str>>(&self, group: &str, partitions: &[(T, i32)]) -> Result<Vec<Option<OffsetAndMetadata>>> {
        self.shard(group).read(|cache| {
            let key = |(topic, partition): &(T, i32)| cache.get(&OffsetKey { group, topic: topic.as_ref(), partition: *partition });
            partitions.iter().map(|place| key(place).map(Into::into)).collect()
        })
    }

    /// All that `group` has committed, by topic and partition.
    pub fn fetch_all(&self, group: &str) -> Result<Vec<GroupOffset>> {
        self.shard(group).read(|cache| cache.list_group(group))
    }

    /// The groups with a committed offset, in ascending order.
    pub fn groups(&self) -> Result<Vec<Arc<str>>> {
        let mut groups = Vec::new();
        for shard in &self.inner.shards {
            groups.extend(shard.read(|cache| cache.groups().cloned().collect::<Vec<_>>())?);
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(groups)
    }

    /// Everything that is committed, by group, topic and partition.
    pub fn list(&self) -> Result<Vec<ListedOffset>> {
        let mut listed = Vec::new();
        for shard in &self.inner.shards {
            shard.read(|cache| {
                for group in cache.groups() {
                    let of_group = cache.list_group(group).into_iter();
                    listed.extend(of_group.map(|GroupOffset { topic, partition, committed }| {
                        let group = Arc::clone(group);
                        ListedOffset { group, topic, partition, committed }
                    }));
                }
            })?;
        }
        listed.sort_unstable_by(|a, b| (&a.group, &a.topic, a.partition).cmp(&(&b.group, &b.topic, b.partition)));
        Ok(listed)
    }

    /// Deletes what `group` has committed for `partitions` (topic, partition), and what it has waiting in open
    /// transactions. Returns for how many of them there was anything; where there was nothing, nothing is written.
    pub fn delete_offsets<T: AsRef<str>>(&self, group: &str, partitions: &[(T, i32)]) -> Result<usize> {
        let keys: Vec<_> =
            partitions.iter().map(|(topic, partition)| OffsetKey { group, topic: topic.as_ref(), partition: *partition }).collect();
        self.shard(group).delete(self.inner.options.durability, &keys)
    }

    /// Deletes everything that `group` has committed, and what it has waiting in open transactions. Records of its
    /// membership stay. Returns how many offsets went. Where they do not fit one batch, a crash may leave some of them.
    pub fn delete_group(&self, group: &str) -> Result<usize> {
        self.shard(group).delete_group(self.inner.options.durability, group)
    }

    /// Loads all partitions anew. One that fails serves nothing until a later reload succeeds.
    pub fn reload(&self) -> Result<LoadReport> {
        let storage = Arc::clone(self.inner.shards[0].log().storage());
        let started = storage.monotonic();
        let reports = map_each(self.inner.shards.iter().collect(), Shard::reload);
        let reports = reports.into_iter().collect::<Result<Vec<_>>>()?;
        self.note_load(&reports, (storage.monotonic() - started).as_secs_f64())?;
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

    /// Its settings.
    #[must_use]
    pub fn options(&self) -> &CommitOptions {
        &self.inner.options
    }

    fn shard(&self, group: &str) -> &Shard {
        &self.inner.shards[partition_for(group, self.inner.partitions) as usize]
    }

    fn encode(&self, key: &OffsetKey<'_>, committed: &OffsetAndMetadata, now_ms: i64) -> Result<Record> {
        let OffsetKey { group, topic, partition } = *key;
        let refuse =
            |why: &str| Err(Error::invalid("commit offsets", format!("{topic:?} partition {partition} of group {group:?}: {why}")));
        check_topic(topic)?;
        let Ok(offset) = i64::try_from(committed.offset) else { return refuse("the offset is above 2^63 - 1") };
        if partition < 0 {
            return refuse("the partition is negative");
        }
        if committed.leader_epoch.is_some_and(|epoch| epoch < 0) {
            return refuse("the leader epoch is negative; leave it out if it is not known");
        }
        let (units, limit) = (committed.metadata.encode_utf16().count(), self.inner.options.offset_metadata_max_bytes);
        if units > limit {
            return refuse(&format!("the metadata has {units} UTF-16 units, offset_metadata_max_bytes allows {limit}"));
        }
        let value = OffsetValue {
            offset,
            leader_epoch: committed.leader_epoch,
            metadata: &committed.metadata,
            commit_timestamp_ms: now_ms,
            expire_timestamp_ms: None,
            topic_id: None,
        };
        let (mut key_bytes, mut value_bytes) = (Vec::new(), Vec::new());
        if !key.encode(&mut key_bytes) {
            return refuse("the name of the group has more than 32767 bytes");
        }
        if !value.encode(&mut value_bytes) {
            return refuse("the metadata has more than 32767 bytes");
        }
        Ok(Record::new(key_bytes, value_bytes))
    }

    fn note_load(&self, reports: &[LoadReport], seconds: f64) -> Result<()> {
        let mut report = reports.iter().copied().fold(LoadReport::default(), LoadReport::and);
        report.seconds = seconds;
        for (partition, shard) in (0u32..).zip(&self.inner.shards) {
            let misplaced = |group: &&Arc<str>| partition_for(group, self.inner.partitions) != partition;
            report.misplaced_groups += shard.read(|cache| cache.groups().filter(misplaced).count() as u64)?;
        }
        if report.misplaced_groups > 0 {
            tracing::warn!(groups = report.misplaced_groups, "groups lie in partitions where fetches do not look for them");
        }
        tracing::info!(%report, "committed offsets are loaded");
        *self.inner.last_load.lock().unwrap_or_else(PoisonError::into_inner) = report;
        Ok(())
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
