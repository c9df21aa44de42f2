//! Keeplog: an embedded log engine that keeps the newest record of every key.
//!
//! Its directories are Apache Kafka partition directories, byte for byte: a broker can open what Keeplog wrote, and
//! Keeplog opens, checks, compacts and repairs what a broker left behind.
//!
//! - [`Log`]: one log. Append, read, truncate; [`clean`] keeps the newest record of every key.
//! - [`Store`]: many logs under one directory, with a background cleaner.
//! - [`OffsetStore`]: committed offsets of consumer groups, served from a cache that is back moments after a restart.
//! - [`inspect`]: what tools need, such as batches, positions, files and indexes.
//!
//! ```
//! use keeplog::{Durability, Log, LogOptions, Record};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("prices-0");
//! let log = Log::open(path, LogOptions::new())?; // a directory named topic-partition; recovers and locks it
//! let placed = log.append(&[Record::new("EURUSD", "1.0842"), Record::tombstone("GBPUSD")], Durability::Synced)?;
//! let first = log.read_from(placed.base_offset)?.next().unwrap()?;
//! assert_eq!(first.key().unwrap(), "EURUSD");
//! log.close()?;
//! # Ok::<(), keeplog::Error>(())
//! ```
//!
//! What each acknowledgement means is said at [`Durability`] and in `docs/DURABILITY.md`. Settings have Kafka's names.
//! Errors have a [`ErrorKind`] that says what can be done, and name file and position.
#![forbid(unsafe_code)]

mod metrics;
mod offset_store;
mod store;

pub use crate::metrics::{Metric, MetricKind};
pub use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, Merge, Overflow, Progress, Watch, clean};
pub use keeplog_engine::record::{Codec, Header, Record, StoredRecord, TimestampType, TxnResult};
pub use keeplog_engine::{
    ActiveProducer, Appended, CleanupPolicy, Durability, Error, ErrorKind, Log, LogOptions, Records, RecoveryMode, RecoveryReport, Result,
    RetentionReport, TopicPartition, TransactionEnd,
};
pub use keeplog_offsets::{
    CommitOptions, CommittedOffset, Expired, GroupOffset, GroupOffsets, Lead, ListedOffset, LoadReport, OffsetAndMetadata, OffsetCounters,
    OffsetManager, Outcome, PartitionState, Pending, Producer, Promise, Refusal, RequiredAcks, SavedSnapshots, Unstable,
};
pub use offset_store::{CONSUMER_OFFSETS, OFFSET_METRICS, OffsetOptions, OffsetStore, TRANSACTION_STATE};
pub use store::{CleanerSettings, CleanerStatus, CleaningPause, LastClean, METRICS, PassProgress, Store, StoreOptions};

/// What tools need and applications don't: batches, positions, raw bytes, files, recovery reports.
pub mod inspect {
    pub use keeplog_cleaner::{explain, schedule};
    pub use keeplog_engine::{
        Batches, Cut, Damage, DataDir, Rebuilt, Segment, SegmentSet, StoredBatch, checkpoint, data_dir, names, record, room, scan,
        snapshot, storage,
    };
    /// The three sparse indexes of a segment.
    pub use keeplog_index as index;
    /// Records of offsets and transaction logs, and the fold that loads a cache.
    pub use keeplog_offsets as offsets;

    pub use crate::store::is_known_compacted;
}
