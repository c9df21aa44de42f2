//! The oracle: what was written and acknowledged, and so what must be there, may be there, and must not be there.

mod log;
mod offsets;

use std::collections::BTreeMap;

use keeplog::TopicPartition;

pub(crate) use log::read_around;
pub use log::{Fate, LogModel, end_of_last_batch, end_of_last_batch_below};
pub use offsets::{GROUPS, OffsetsModel, Partition, Place, Served, TOPICS, Until, What, check_fold, log_of};

/// What is known of everything under one directory.
#[derive(Clone, Debug, Default)]
pub struct Models {
    /// By name.
    pub logs: BTreeMap<TopicPartition, LogModel>,
    /// The committed offsets.
    pub offsets: OffsetsModel,
}
