//! Everything that the command line uses of the library, in one place.

pub(crate) use keeplog::inspect::offsets::{CommitOptions, Escaped, OffsetAndMetadata, OffsetStore};
pub(crate) use keeplog::inspect::offsets::{partition_for, record as offsets_record};
pub(crate) use keeplog::inspect::{DataDir, checkpoint, index, names, record, scan, snapshot, storage};
pub(crate) use keeplog::{
    Durability, Error, ErrorKind, Log, LogOptions, RecoveryMode, RecoveryReport, Store, StoreOptions, TopicPartition,
};

pub(crate) use self::storage::Storage;

/// A pass of the cleaner.
pub(crate) mod cleaner {
    pub(crate) use keeplog::{CleanOptions, CleanOutcome, CleanReport, Progress, Watch, clean};
}

/// Folding a log of commits into what is committed.
pub(crate) mod replay {
    pub(crate) use keeplog::inspect::offsets::{Origin, Outcome, Replay};
}

/// The topic that holds committed offsets.
pub(crate) const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The topic that holds the state of transactions.
pub(crate) const TRANSACTION_STATE: &str = "__transaction_state";
