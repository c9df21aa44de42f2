//! Keeplog: an embedded log engine that keeps the newest record of every key.
//!
//! Its directories are Apache Kafka partition directories, byte for byte.
#![forbid(unsafe_code)]

mod store;

pub use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, Progress, Watch, clean};
pub use keeplog_engine::record::{Codec, Header, Record, StoredRecord, TimestampType, TxnResult};
pub use keeplog_engine::{
    ActiveProducer, Appended, CleanupPolicy, Durability, Error, ErrorKind, Log, LogOptions, Records, RecoveryMode, RecoveryReport, Result,
    RetentionReport, TopicPartition, TransactionEnd,
};
pub use store::{CleanerStatus, LastClean, Store, StoreOptions};

/// What tools need and applications don't: batches, positions, raw bytes, files, recovery reports.
pub mod inspect {
    pub use keeplog_cleaner::schedule;
    pub use keeplog_engine::{
        Batches, Cut, Damage, DataDir, Rebuilt, Segment, SegmentSet, StoredBatch, checkpoint, data_dir, names, record, scan, snapshot,
        storage,
    };
    /// The three sparse indexes of a segment.
    pub use keeplog_index as index;
    /// Records of offsets and transaction logs, and the fold that loads a cache.
    pub use keeplog_offsets as offsets;
}
