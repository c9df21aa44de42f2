//! What is committed, answered from memory. No lock here is one that a sync is waited for under.

use keeplog_engine::Result;
use keeplog_engine::sync::Arc;

use super::OffsetStore;
use super::types::{ListedOffset, OffsetAndMetadata, Unstable};
use crate::cache::GroupOffset;
use crate::record::OffsetKey;

/// From here on places are looked up side by side.
const MANY: usize = 8;

impl OffsetStore {
    /// What `group` has committed for each of `partitions` (topic, partition), in their order; `None` for nothing.
    ///
    /// # Errors
    /// `Loading` and `NotLeader` for a partition of the store that is not served; `Corrupt` and others for one whose load
    /// failed.
    pub fn fetch<T: AsRef<str>>(&self, group: &str, partitions: &[(T, i32)]) -> Result<Vec<Option<OffsetAndMetadata>>> {
        let shard = self.shard(group);
        if partitions.len() < MANY {
            return shard.read(|cache| partitions.iter().map(|place| cache.get(&key(group, place)).map(Into::into)).collect());
        }
        let keys: Vec<_> = partitions.iter().map(|place| key(group, place)).collect();
        let found = shard.read(|cache| cache.get_many(&keys))?;
        Ok(found.into_iter().map(|found| found.map(Into::into)).collect())
    }

    /// As [`OffsetStore::fetch`], and [`Unstable`] where a commit waits for the end of its transaction: what is answered
    /// stays true until somebody commits anew.
    #[allow(clippy::type_complexity)] // one answer a partition: refused, none, or one
    pub fn fetch_stable<T: AsRef<str>>(
        &self,
        group: &str,
        partitions: &[(T, i32)],
    ) -> Result<Vec<std::result::Result<Option<OffsetAndMetadata>, Unstable>>> {
        self.shard(group).replay(|replay| {
            let stable = |key: OffsetKey<'_>| {
                if replay.is_pending(&key) { Err(Unstable) } else { Ok(replay.cache().get(&key).map(Into::into)) }
            };
            partitions.iter().map(|place| stable(key(group, place))).collect()
        })
    }

    /// All that `group` has committed, by topic and partition.
    ///
    /// # Errors
    /// As [`OffsetStore::fetch`].
    pub fn fetch_all(&self, group: &str) -> Result<Vec<GroupOffset>> {
        self.shard(group).read(|cache| cache.list_group(group))
    }

    /// The groups with a committed offset in the partitions that are led, in ascending order.
    ///
    /// # Errors
    /// `Loading` while any of those is being loaded, `Corrupt` and others where it failed.
    pub fn groups(&self) -> Result<Vec<Arc<str>>> {
        let mut groups = Vec::new();
        for shard in self.led_shards() {
            groups.extend(shard.read(|cache| cache.groups().cloned().collect::<Vec<_>>())?);
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(groups)
    }

    /// Everything that is committed in the partitions that are led, by group, topic and partition.
    ///
    /// # Errors
    /// As [`OffsetStore::groups`].
    pub fn list(&self) -> Result<Vec<ListedOffset>> {
        let mut listed = Vec::new();
        for shard in self.led_shards() {
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
}

fn key<'a, T: AsRef<str>>(group: &'a str, (topic, partition): &'a (T, i32)) -> OffsetKey<'a> {
    OffsetKey { group, topic: topic.as_ref(), partition: *partition }
}
