//! Committed offsets of consumer groups, on compacted logs in the format of Kafka's `__consumer_offsets`.
//!
//! [`record`] reads and writes the records, [`Replay`] folds a log of them into an [`OffsetCache`], and [`OffsetStore`]
//! commits and fetches over the logs of all partitions. [`groups`] knows who is in the groups, and [`expiry`] which of
//! their offsets go.
//!
//! ```
//! # use std::{path::Path, sync::Arc};
//! # use keeplog_engine::{Log, LogOptions, storage::MemoryStorage};
//! use keeplog_offsets::{CommitOptions, OffsetAndMetadata, OffsetStore};
//!
//! # let storage = Arc::new(MemoryStorage::new());
//! let log = Log::open_with(storage, Path::new("/__consumer_offsets-0"), LogOptions::new())?;
//! let store = OffsetStore::open(vec![log], CommitOptions::new())?;
//! store.commit("billing", &[("orders", 0, OffsetAndMetadata::new(42))])?; // returns when it is safe
//! assert_eq!(store.fetch("billing", &[("orders", 0), ("orders", 1)])?, [Some(OffsetAndMetadata::new(42)), None]);
//! # Ok::<(), keeplog_engine::Error>(())
//! ```
#![forbid(unsafe_code)]

mod cache;
pub mod expiry;
pub mod groups;
pub mod load;
mod manager;
mod partition;
mod pending;
pub mod record;
mod replay;
#[doc(hidden)]
pub mod snapshot;
mod store;

pub use cache::{Commit, CommittedOffset, GroupOffset, OffsetCache};
pub use manager::{GroupOffsets, OffsetManager};
pub use partition::partition_for;
pub use pending::{Pending, Promise};
pub use replay::{Origin, Outcome, RecordPart, Replay, ReplayCounts, ReplayError};
pub use store::{
    CommitOptions, Escaped, Expired, Lead, ListedOffset, LoadReport, OffsetAndMetadata, OffsetCounters, OffsetStore, PartitionState,
    Producer, Refusal, RequiredAcks, SavedSnapshots, Unstable,
};
