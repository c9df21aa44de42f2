//! Everything that the command line uses of the libraries, in one place.

pub(crate) use keeplog_engine::checkpoint;
pub(crate) use keeplog_engine::names::{self, TopicPartition};
pub(crate) use keeplog_engine::record;
pub(crate) use keeplog_engine::scan;
pub(crate) use keeplog_engine::storage::{self, Storage};
pub(crate) use keeplog_engine::{DataDir, Log, LogOptions, RecoveryMode, RecoveryReport};
pub(crate) use keeplog_engine::{Error, ErrorKind, snapshot};
pub(crate) use keeplog_index as index;
pub(crate) use keeplog_offsets::partition_for;
pub(crate) use keeplog_offsets::record as offsets_record;

pub(crate) use keeplog_cleaner as cleaner;

/// Folding a log of commits into what is committed.
pub(crate) mod replay {
    pub(crate) use keeplog_offsets::{Origin, Outcome, Replay};
}

/// The topic that holds committed offsets.
pub(crate) const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The topic that holds the state of transactions.
pub(crate) const TRANSACTION_STATE: &str = "__transaction_state";
