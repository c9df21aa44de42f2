//! The embedded log as a place to keep committed offsets in.

use std::sync::Arc;

use keeplog_engine::Result;
use keeplog_offsets::{GroupOffset, GroupOffsets, OffsetAndMetadata, OffsetManager, Pending};

use super::OffsetStore;

// Without these, a trait in scope would be in the way of the methods of the store that this one stands for, which take any
// names and tell more.
impl OffsetStore {
    /// See [`keeplog_offsets::OffsetStore::commit`].
    pub fn commit<T: AsRef<str>>(&self, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Result<()> {
        self.offsets.commit(group, offsets)
    }

    /// See [`keeplog_offsets::OffsetStore::commit_async`].
    pub fn commit_async<T: AsRef<str>>(&self, group: &str, offsets: &[(T, i32, OffsetAndMetadata)]) -> Pending {
        self.offsets.commit_async(group, offsets)
    }

    /// See [`keeplog_offsets::OffsetStore::fetch`].
    pub fn fetch<T: AsRef<str>>(&self, group: &str, partitions: &[(T, i32)]) -> Result<Vec<Option<OffsetAndMetadata>>> {
        self.offsets.fetch(group, partitions)
    }

    /// See [`keeplog_offsets::OffsetStore::fetch_all`].
    pub fn fetch_all(&self, group: &str) -> Result<Vec<GroupOffset>> {
        self.offsets.fetch_all(group)
    }

    /// See [`keeplog_offsets::OffsetStore::delete_offsets`].
    pub fn delete_offsets<T: AsRef<str>>(&self, group: &str, partitions: &[(T, i32)]) -> Result<usize> {
        self.offsets.delete_offsets(group, partitions)
    }
}

impl OffsetManager for OffsetStore {
    fn commit(&self, group: &str, offsets: &[(&str, i32, OffsetAndMetadata)]) -> Result<()> {
        self.offsets.commit(group, offsets)
    }

    fn commit_async(&self, group: &str, offsets: &[(&str, i32, OffsetAndMetadata)]) -> Pending {
        self.offsets.commit_async(group, offsets)
    }

    fn fetch(&self, group: &str, partitions: &[(&str, i32)]) -> Result<Vec<Option<OffsetAndMetadata>>> {
        self.offsets.fetch(group, partitions)
    }

    fn fetch_all(&self, group: &str) -> Result<GroupOffsets> {
        let offsets = self.offsets.fetch_all(group)?;
        Ok(offsets.into_iter().map(|offset| (offset.topic, offset.partition, offset.committed.into())).collect())
    }

    fn delete_offsets(&self, group: &str, partitions: &[(&str, i32)]) -> Result<usize> {
        self.offsets.delete_offsets(group, partitions)
    }

    fn delete_group(&self, group: &str) -> Result<usize> {
        self.offsets.delete_group(group)
    }

    fn delete_topic(&self, topic: &str) -> Result<usize> {
        self.offsets.delete_topic(topic)
    }

    fn list_groups(&self) -> Result<Vec<Arc<str>>> {
        self.offsets.groups()
    }

    fn close(&self) -> Result<()> {
        Self::close(self)
    }
}
