//! Committed offsets of consumer groups, on compacted logs in the format of Kafka's `__consumer_offsets`.
//!
//! [`record`] reads and writes the records, [`Replay`] folds a log of them into an [`OffsetCache`].
#![forbid(unsafe_code)]

mod cache;
mod partition;
pub mod record;
mod replay;

pub use cache::{Commit, CommittedOffset, GroupOffset, OffsetCache};
pub use partition::partition_for;
pub use replay::{Origin, Outcome, RecordPart, Replay, ReplayCounts, ReplayError};
