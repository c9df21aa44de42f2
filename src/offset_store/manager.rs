//! The embedded log as a place to keep committed offsets in.

use std::sync::Arc;

use keeplog_engine::Result;
use keeplog_offsets::{GroupOffsets, OffsetAndMetadata, OffsetManager, Pending};

use super::OffsetStore;

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
