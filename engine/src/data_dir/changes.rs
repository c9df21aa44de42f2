//! Which logs somebody has to look at again.

use std::collections::BTreeSet;

use super::*;

impl DataDir {
    /// Notes that something has changed in a partition that bears on when it is cleaned, trimmed or rolled. Called after
    /// the change, so that who takes the note sees it.
    pub fn note_change(&self, name: &TopicPartition) {
        self.changed().insert(name.clone());
    }

    /// The partitions in which something has changed since the last call, in the sense of [`DataDir::note_change`]: one was
    /// opened, closed or removed, or a failure stopped its writes; its segments are others, its start or the cleaner's offset moved, its active segment got its first
    /// record, or a transaction ended that had kept closed segments from the cleaner. An append changes nothing else.
    #[must_use]
    pub fn take_changed(&self) -> BTreeSet<TopicPartition> {
        std::mem::take(&mut *self.changed())
    }

    /// Whether there is any such partition.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        !self.changed().is_empty()
    }

    fn changed(&self) -> MutexGuard<'_, BTreeSet<TopicPartition>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner) // names, whole at any time
    }
}
