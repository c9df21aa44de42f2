//! What one open of a log may still say about it.

use super::*;

/// One open of a partition, from [`DataDir::opened`] to its close. What is set through it counts only as long as it
/// lasts: a thread that is late must not speak for a log that was removed and made anew under the same name.
#[derive(Debug)]
pub(crate) struct Lease {
    data_dir: Arc<DataDir>,
    name: TopicPartition,
    id: u64,
}

impl Lease {
    /// Of the open that is in force now.
    pub(crate) fn of(data_dir: &Arc<DataDir>, name: &TopicPartition) -> Self {
        let id = match data_dir.state().partitions.get(name) {
            Some(Use::Open(id)) => *id,
            _ => 0,
        };
        Self { data_dir: Arc::clone(data_dir), name: name.clone(), id }
    }

    pub(crate) fn set_recovery_point(&self, offset: u64) {
        self.set(Checkpoint::RecoveryPoint, Some(offset));
    }

    pub(crate) fn set_log_start(&self, offset: Option<u64>) {
        self.set(Checkpoint::LogStart, offset);
    }

    pub(crate) fn set_high_watermark(&self, offset: u64) {
        self.set(Checkpoint::HighWatermark, Some(offset));
    }

    pub(crate) fn set_cleaner_offset(&self, offset: u64) {
        self.set(Checkpoint::Cleaner, Some(offset));
        self.data_dir.note_change(&self.name);
    }

    fn set(&self, which: Checkpoint, offset: Option<u64>) {
        let mut state = self.data_dir.state();
        if state.partitions.get(&self.name) == Some(&Use::Open(self.id)) {
            state.set(which, &self.name, offset);
        }
    }
}
