//! What an application asks of a place that keeps committed offsets, wherever that is.

use std::fmt;
use std::sync::Arc;

use keeplog_engine::Result;

use crate::pending::Pending;
use crate::store::OffsetAndMetadata;

/// What a group has committed: (topic, partition, offset), by topic and partition.
pub type GroupOffsets = Vec<(Arc<str>, i32, OffsetAndMetadata)>;

/// A place that keeps the committed offsets of consumer groups: the embedded log, or a service elsewhere.
///
/// All of one group has one order, that of its calls. What is acknowledged is kept, and any later fetch answers it. An error
/// of kind `TimedOut` says that nothing is known: the commit may show later.
pub trait OffsetManager: fmt::Debug + Send + Sync {
    /// Commits (topic, partition, offset) of a group, all or none but for entries whose metadata is too long: those are
    /// refused by an error that names them, and the others are committed. Returns when it is safe.
    ///
    /// # Errors
    /// `InvalidInput` for what can't be committed; `TimedOut` where the outcome is not known; `Loading` and `NotLeader` where
    /// the group is not served now, or not here.
    fn commit(&self, group: &str, offsets: &[(&str, i32, OffsetAndMetadata)]) -> Result<()>;

    /// As [`OffsetManager::commit`], and answers later. Answers for one group come in the order of its commits.
    fn commit_async(&self, group: &str, offsets: &[(&str, i32, OffsetAndMetadata)]) -> Pending;

    /// What is committed for each of (topic, partition), in their order; `None` for nothing.
    ///
    /// # Errors
    /// `Loading` and `NotLeader` where the group is not served now, or not here.
    fn fetch(&self, group: &str, partitions: &[(&str, i32)]) -> Result<Vec<Option<OffsetAndMetadata>>>;

    /// As [`OffsetManager::fetch`], and answers later. One that answers from memory does so at once.
    fn fetch_async(&self, group: &str, partitions: &[(&str, i32)]) -> Pending<Vec<Option<OffsetAndMetadata>>> {
        Pending::ready(self.fetch(group, partitions))
    }

    /// All that `group` has committed, by topic and partition.
    ///
    /// # Errors
    /// As [`OffsetManager::fetch`].
    fn fetch_all(&self, group: &str) -> Result<GroupOffsets>;

    /// Deletes what `group` has committed for (topic, partition). Returns for how many of them there was anything.
    ///
    /// # Errors
    /// As [`OffsetManager::commit`].
    fn delete_offsets(&self, group: &str, partitions: &[(&str, i32)]) -> Result<usize>;

    /// Deletes a group with all that it has committed. Returns how many offsets went.
    ///
    /// # Errors
    /// As [`OffsetManager::commit`].
    fn delete_group(&self, group: &str) -> Result<usize>;

    /// Deletes what all groups have committed for a topic. Returns how many offsets went.
    ///
    /// # Errors
    /// As [`OffsetManager::commit`].
    fn delete_topic(&self, topic: &str) -> Result<usize>;

    /// The groups that have committed anything, in ascending order.
    ///
    /// # Errors
    /// As [`OffsetManager::fetch`].
    fn list_groups(&self) -> Result<Vec<Arc<str>>>;

    /// Ends it, after all that was committed is safe and answered. Later calls fail with `Closed`.
    ///
    /// # Errors
    /// What kept the last commits from being safe.
    fn close(&self) -> Result<()>;
}
