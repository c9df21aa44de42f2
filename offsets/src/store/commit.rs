//! Committing: checked and encoded first, appended in the order of the calls, shown when it is safe.

use keeplog_engine::names::check_topic;
use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::Record;
use keeplog_engine::sync::Arc;
use keeplog_engine::{Error, ErrorKind, Result};

use super::OffsetStore;
use super::options::{CommitOptions, RequiredAcks};
use super::shard::{Order, Shard, Until};
use super::types::{OffsetAndMetadata, Producer, Refusal};
use crate::pending::Pending;
use crate::record::{OffsetKey, OffsetValue};
use crate::replay::Outcome;

const OP: &str = "commit offsets";

/// What is to be written of a commit.
struct Encoded {
    records: Vec<Record>,
    /// By entry of the call.
    refused: Vec<Result<(), Refusal>>,
}

impl OffsetStore {
    /// Commits `offsets` of a group in one batch, all or none: (topic, partition, offset) each; of several for one
    /// partition the last counts. An offset may go back. Returns when it is safe, and fetches answer it.
    ///
    /// After an error, none of it is shown. If it is one of storage, the batch may be in the log all the same, and show
    /// after the next load.
    ///
    /// # Errors
    /// `InvalidInput`, naming the entry at fault, where nothing is committed: for topics outside Kafka's grammar, negative partitions or
    /// leader epochs, offsets above 2^63 - 1, a batch above `max_message_bytes`. `InvalidInput` for metadata above
    /// `offset_metadata_max_bytes`, where the other entries are committed: [`OffsetStore::commit_each`] tells which.
    /// `TimedOut` after `offsets_commit_timeout`: whether it is committed is not known. `Loading` and `NotLeader` for a
    /// partition that is not served. Otherwise as [`Log::append`](keeplog_engine::Log::append).
    pub fn commit<T: AsRef<str>>(&self, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Result<()> {
        first_refusal(group, offsets, self.commit_each(group, offsets)?)
    }

    /// As [`OffsetStore::commit`], and tells for each entry whether it was refused; the others are committed.
    pub fn commit_each<T: AsRef<str>>(&self, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Result<Vec<Result<(), Refusal>>> {
        self.commit_for(None, group, offsets)
    }

    /// As [`OffsetStore::commit`], but returns at once: the commit has its place in the log already, before all that are
    /// made after this call returned, and is answered when it is safe. Answers for one group come in the order of its
    /// commits. Many commits that wait share one sync.
    pub fn commit_async<T: AsRef<str>>(&self, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Pending {
        let options = self.inner.options();
        let Encoded { records, refused } = match encode(&options, self.now_ms(), group, offsets) {
            Ok(encoded) => encoded,
            Err(error) => return Pending::ready(Err(error)),
        };
        let refused = first_refusal(group, offsets, refused);
        let shard = self.shard(group);
        if records.is_empty() {
            return Pending::ready(shard.replay(|_| ()).and(refused));
        }
        let (mut promise, pending) = Pending::new();
        if is_planted(Defect::AnswerBeforeSync) {
            promise.answer(Ok(()));
            promise = Pending::new().0;
        }
        let pending = pending.driven_by(Arc::clone(shard) as _);
        let mut order = shard.order();
        let until = options.until(&order);
        // Answers keep their order: one that needs no wait comes behind those that do.
        let is_answered_at_once = until == Until::Queued && !order.owes();
        let promise = (!is_answered_at_once).then_some(promise);
        let appended = shard.replay(|_| ()).and_then(|()| shard.append(&mut order, None, records, promise));
        drop(order);
        match appended {
            Err(error) => return Pending::ready(Err(error)),
            Ok(last_offset) if until == Until::Written => {
                if let Err(error) = self.finish(shard, until, last_offset) {
                    return Pending::ready(Err(error));
                }
            }
            // The answer of a sync comes from whoever makes it.
            Ok(_) => self.inner.bell.ring(),
        }
        if is_answered_at_once {
            return Pending::ready(refused);
        }
        if refused.is_ok() {
            return pending;
        }
        let (outer, answered) = Pending::new();
        pending.on_answer(move |answer| outer.answer(answer.and(refused)));
        answered.driven_by(Arc::clone(shard) as _)
    }

    /// As [`OffsetStore::commit`], within the transaction of `producer`: nobody sees it before
    /// [`OffsetStore::end_transaction`] commits that, and then only where no later commit stands. Until then
    /// [`OffsetStore::fetch_stable`] refuses these partitions.
    ///
    /// # Errors
    /// As [`OffsetStore::commit`]; `ProducerFenced` for an epoch below the producer's, `InvalidInput` for a negative id or
    /// epoch.
    pub fn commit_in_transaction<T: AsRef<str>>(
        &self,
        producer: Producer,
        group: &str,
        offsets: &[(T, i32, OffsetAndMetadata)],
    ) -> Result<()> {
        first_refusal(group, offsets, self.commit_for(Some(producer), group, offsets)?)
    }

    /// Ends the transaction of `producer`, in all partitions where it is open: what it committed is shown, or forgotten.
    /// Returns in how many partitions it was open. After an error, call it again.
    ///
    /// # Errors
    /// `ProducerFenced` for an epoch below the producer's. Otherwise as [`OffsetStore::commit`].
    pub fn end_transaction(&self, producer: Producer, outcome: Outcome) -> Result<usize> {
        let mut ended = 0;
        for shard in self.led_shards() {
            let mut order = shard.order();
            let is_open = match order.opens_transaction(producer.id) {
                Some(is_open) => is_open,
                None => shard.replay(|replay| replay.is_in_transaction(producer.id))?,
            };
            let until = self.until(&order);
            if !is_open {
                // Whoever ended it before may not know yet whether that is safe.
                if let Some(last_offset) = order.unshown_end(producer.id) {
                    drop(order);
                    self.finish(shard, until, last_offset)?;
                }
                continue;
            }
            let last_offset = shard.append_marker(&mut order, producer, outcome)?;
            drop(order);
            self.finish(shard, until, last_offset)?;
            ended += 1;
        }
        Ok(ended)
    }

    fn commit_for<T: AsRef<str>>(
        &self,
        producer: Option<Producer>,
        group: &str,
        offsets: &[(T, i32, OffsetAndMetadata)],
    ) -> Result<Vec<Result<(), Refusal>>> {
        let options = self.inner.options();
        let Encoded { records, refused } = encode(&options, self.now_ms(), group, offsets)?;
        let shard = self.shard(group);
        if records.is_empty() {
            return shard.replay(|_| refused);
        }
        let mut order = shard.order();
        shard.replay(|_| ())?;
        let until = options.until(&order);
        let last_offset = shard.append(&mut order, producer, records, None)?;
        drop(order);
        self.finish(shard, until, last_offset)?;
        Ok(refused)
    }

    /// When a write is to be shown that is about to be appended behind all that `order` holds.
    pub(super) fn until(&self, order: &Order) -> Until {
        self.inner.options().until(order)
    }

    /// Does what `until` asks for, and leaves the rest to the background thread.
    pub(super) fn finish(&self, shard: &Shard, until: Until, last_offset: u64) -> Result<()> {
        if until == Until::Queued {
            if !is_planted(Defect::ForgetToWake) {
                self.inner.bell.ring();
            }
            return Ok(());
        }
        let finished = shard.finish(until, last_offset);
        if until == Until::Written || matches!(&finished, Err(error) if error.kind() == ErrorKind::TimedOut) {
            self.inner.bell.ring();
        }
        finished
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.inner.shards[0].log().storage().now_ms()
    }
}

impl CommitOptions {
    fn until(&self, order: &Order) -> Until {
        match self.offsets_commit_required_acks {
            RequiredAcks::Synced => Until::Synced(Some(self.offsets_commit_timeout)),
            // What waits for a sync comes first.
            RequiredAcks::Written if order.waits() => Until::Synced(Some(self.offsets_commit_timeout)),
            RequiredAcks::Written => Until::Written,
            RequiredAcks::Queued => Until::Queued,
        }
    }
}

fn encode<T: AsRef<str>>(options: &CommitOptions, now_ms: i64, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Result<Encoded> {
    let mut encoded = Encoded { records: Vec::with_capacity(offsets.len()), refused: Vec::with_capacity(offsets.len()) };
    for (topic, partition, committed) in offsets {
        let key = OffsetKey { group, topic: topic.as_ref(), partition: *partition };
        let checked = check(options, &key, committed)?;
        if checked.is_ok() {
            encoded.records.push(record(&key, committed, now_ms)?);
        }
        encoded.refused.push(checked);
    }
    Ok(encoded)
}

/// Refuses the whole call, or this entry of it.
fn check(options: &CommitOptions, key: &OffsetKey<'_>, committed: &OffsetAndMetadata) -> Result<Result<(), Refusal>> {
    check_topic(key.topic)?;
    let refuse = |why: &str| Err(refusal(key, why));
    if committed.offset > i64::MAX as u64 {
        return refuse("the offset is above 2^63 - 1");
    }
    if key.partition < 0 {
        return refuse("the partition is negative");
    }
    if committed.leader_epoch.is_some_and(|epoch| epoch < 0) {
        return refuse("the leader epoch is negative; leave it out if it is not known");
    }
    if committed.commit_timestamp_ms.is_some_and(|timestamp| timestamp < 0) {
        return refuse("the commit timestamp is negative; leave it out for now");
    }
    let (units, limit) = (committed.metadata.encode_utf16().count(), options.offset_metadata_max_bytes);
    Ok(if units > limit { Err(Refusal::MetadataTooLarge { units, limit }) } else { Ok(()) })
}

fn record(key: &OffsetKey<'_>, committed: &OffsetAndMetadata, now_ms: i64) -> Result<Record> {
    let value = OffsetValue {
        offset: committed.offset as i64,
        leader_epoch: committed.leader_epoch,
        metadata: &committed.metadata,
        commit_timestamp_ms: committed.commit_timestamp_ms.unwrap_or(now_ms),
        expire_timestamp_ms: None,
        topic_id: committed.topic_id,
    };
    let (mut key_bytes, mut value_bytes) = (Vec::new(), Vec::new());
    if !key.encode(&mut key_bytes) {
        return Err(refusal(key, "the name of the group has more than 32767 bytes"));
    }
    if !value.encode(&mut value_bytes) {
        return Err(refusal(key, "the metadata has more than 32767 bytes"));
    }
    Ok(Record::new(key_bytes, value_bytes))
}

fn refusal(key: &OffsetKey<'_>, why: &str) -> Error {
    let OffsetKey { group, topic, partition } = *key;
    Error::invalid(OP, format!("{topic:?} partition {partition} of group {group:?}: {why}"))
}

fn first_refusal<T: AsRef<str>>(group: &str, offsets: &[(T, i32, OffsetAndMetadata)], refused: Vec<Result<(), Refusal>>) -> Result<()> {
    let mut entries = offsets.iter().zip(refused).filter_map(|(entry, refused)| Some((entry, refused.err()?)));
    let Some(((topic, partition, _), why)) = entries.next() else { return Ok(()) };
    let others = match entries.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Err(refusal(&OffsetKey { group, topic: topic.as_ref(), partition: *partition }, &format!("{why}{others}; all others are committed")))
}
