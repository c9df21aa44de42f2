//! Deleting offsets: by tombstones, for what is there only.

use std::collections::BTreeSet;
use std::sync::Arc;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::Record;
use keeplog_engine::sync::MutexGuard;
use keeplog_engine::{Error, Result};

use super::OffsetStore;
use super::shard::{Order, Shard};
use crate::cache::OffsetCache;
use crate::groups::GroupState;
use crate::record::{OFFSET_KEY_V0, OFFSET_KEY_V1, OffsetKey};

/// More than what any batch header and the framing of one record take.
const BATCH_OVERHEAD_BYTES: usize = 128;
const RECORD_OVERHEAD_BYTES: usize = 32;
/// Groups that are looked at under one hold of a lock that commits wait for.
pub(super) const GROUPS_AT_A_TIME: usize = 256;

impl OffsetStore {
    /// Deletes what `group` has committed for `partitions` (topic, partition), and what it has waiting in open
    /// transactions. Returns for how many of them there was anything; where there was nothing, nothing is written.
    pub fn delete_offsets<T: AsRef<str>>(&self, group: &str, partitions: &[(T, i32)]) -> Result<usize> {
        let shard = self.shard(group);
        let keys: Vec<_> =
            partitions.iter().map(|(topic, partition)| OffsetKey { group, topic: topic.as_ref(), partition: *partition }).collect();
        let order = shard.order();
        let held = shard.replay(|replay| {
            let held = |key: &&OffsetKey<'_>| replay.cache().get(key).is_some() || replay.is_pending(key);
            keys.iter().filter(held).filter_map(encoded).collect::<BTreeSet<_>>()
        })?;
        let unshown = order.unshown_keys();
        let asked = keys.iter().filter_map(encoded).filter(|key| unshown.contains(&key[..]));
        let doomed: BTreeSet<_> = asked.chain(held).collect();
        let count = doomed.len();
        self.write_tombstones(shard, order, doomed)?;
        shard.counters().deleted(count as u64);
        Ok(count)
    }

    /// Deletes a group: everything that it has committed or has waiting in open transactions, and what its own records say of
    /// it. Returns how many offsets went. Where they do not fit one batch, a crash may leave some of them.
    ///
    /// # Errors
    /// `InvalidInput` for a group that has members by its records.
    pub fn delete_group(&self, group: &str) -> Result<usize> {
        let shard = self.shard(group);
        let order = shard.order();
        let (mut doomed, of_the_group) = shard.replay(|replay| {
            if replay.groups().state(group) != GroupState::Empty {
                let detail = format!("{group:?} has members, by what the log says of it: they must leave it first");
                return Err(Error::invalid("delete a consumer group", detail).at(shard.log().path()));
            }
            let committed = replay.cache().list_group(group);
            let committed = committed.iter().map(|o| OffsetKey { group, topic: &o.topic, partition: o.partition });
            let places = committed.chain(replay.pending_of(group)).filter_map(|key| encoded(&key)).collect::<BTreeSet<_>>();
            Ok((places, replay.groups().tombstones_of(group)))
        })??;
        doomed.extend(places_of(&order.unshown_keys()).filter(|key| key.group == group).filter_map(|key| encoded(&key)));
        let count = doomed.len();
        self.write_tombstones(shard, order, doomed.into_iter().chain(of_the_group))?;
        shard.counters().deleted(count as u64);
        Ok(count)
    }

    /// Deletes what all groups have committed for `topic`, and what they have waiting in open transactions: for a topic that
    /// is deleted, so that one made anew under its name starts without. Returns how many offsets went.
    ///
    /// It goes by some groups at a time, and commits go on in between; an interrupted one is completed by calling it again.
    pub fn delete_topic(&self, topic: &str) -> Result<usize> {
        let mut deleted = 0;
        for shard in self.led_shards() {
            let order = shard.order();
            let unshown = places_of(&order.unshown_keys()).map(|key| Arc::from(key.group)).collect::<Vec<Arc<str>>>();
            let groups = shard.replay(|replay| {
                let pending = replay.pending_places().filter(|key| key.topic == topic).map(|key| Arc::from(key.group));
                pending.chain(replay.cache().groups().cloned()).chain(unshown).collect::<BTreeSet<Arc<str>>>()
            })?;
            drop(order);
            let groups: Vec<_> = groups.into_iter().collect();
            for some in groups.chunks(GROUPS_AT_A_TIME) {
                let order = shard.order();
                let is_meant = |key: &OffsetKey<'_>| key.topic == topic && some.iter().any(|group| **group == *key.group);
                let unshown = order.unshown_keys();
                let doomed = shard.replay(|replay| {
                    let committed = some.iter().flat_map(|group| of_topic(replay.cache(), group, topic));
                    let waiting = replay.pending_places().chain(places_of(&unshown)).filter(is_meant);
                    committed.chain(waiting.filter_map(|key| encoded(&key))).collect::<BTreeSet<_>>()
                })?;
                let count = doomed.len();
                drop(unshown);
                self.write_tombstones(shard, order, doomed)?;
                shard.counters().deleted(count as u64);
                deleted += count;
            }
            shard.compact();
        }
        Ok(deleted)
    }

    /// Writes tombstones for `keys`, in their order and as many batches as they need, and shows them.
    pub(super) fn write_tombstones(
        &self,
        shard: &Shard,
        mut order: MutexGuard<'_, Order>,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<()> {
        let mut keys = keys.into_iter().peekable();
        if keys.peek().is_none() || is_planted(Defect::ForgetDeletion) {
            return Ok(());
        }
        // The cleaner tells the two key versions of one place apart: when the one tombstone is gone, a record under the other
        // key would count again.
        let has_v0_keys = shard.replay(|replay| replay.counts().old_keys > 0)?;
        let keys = keys.flat_map(|key| has_v0_keys.then(|| v0_of(&key)).flatten().into_iter().chain([key]));
        let until = self.until(&order);
        let limit = shard.log().options().max_message_bytes.min(shard.log().options().segment_bytes) as usize;
        let (mut batch, mut bytes) = (Vec::new(), BATCH_OVERHEAD_BYTES);
        for key in keys {
            bytes += key.len() + RECORD_OVERHEAD_BYTES;
            if bytes > limit && !batch.is_empty() {
                shard.append(&mut order, None, std::mem::take(&mut batch), None)?;
                bytes = BATCH_OVERHEAD_BYTES + key.len() + RECORD_OVERHEAD_BYTES;
            }
            batch.push(Record::tombstone(key));
        }
        let last_offset = shard.append(&mut order, None, batch, None)?;
        drop(order);
        self.finish(shard, until, last_offset)
    }
}

/// The key of the same place as 0.8.2 wrote it; `None` for one that is no commit's.
fn v0_of(key: &[u8]) -> Option<Vec<u8>> {
    let rest = key.strip_prefix(&OFFSET_KEY_V1.to_be_bytes())?;
    Some([&OFFSET_KEY_V0.to_be_bytes(), rest].concat())
}

/// As written. `None` for names that no record can hold, and so none does.
pub(super) fn encoded(key: &OffsetKey<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes).then_some(bytes)
}

fn of_topic(cache: &OffsetCache, group: &str, topic: &str) -> Vec<Vec<u8>> {
    let committed = cache.list_group(group).into_iter().filter(|committed| *committed.topic == *topic);
    committed.filter_map(|o| encoded(&OffsetKey { group, topic, partition: o.partition })).collect()
}

/// What the keys of commits among `keys` stand for.
fn places_of<'a>(keys: &'a BTreeSet<&'a [u8]>) -> impl Iterator<Item = OffsetKey<'a>> {
    keys.iter().filter_map(|key| OffsetKey::decode(key).ok().flatten())
}
