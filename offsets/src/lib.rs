//! Committed offsets of consumer groups, on compacted logs in the format of Kafka's `__consumer_offsets`.
#![forbid(unsafe_code)]

mod partition;
pub mod record;

pub use partition::partition_for;
