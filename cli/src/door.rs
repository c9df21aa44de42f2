//! Everything that the command line uses of the library, in one place.

pub(crate) use keeplog::inspect::offsets::{CommitOptions, Escaped, OffsetAndMetadata, OffsetStore, RequiredAcks};
pub(crate) use keeplog::inspect::offsets::{partition_for, record as offsets_record};
pub(crate) use keeplog::inspect::{DataDir, is_known_compacted, names, record, room, scan, storage};
pub(crate) use keeplog::{
    CONSUMER_OFFSETS, Durability, Error, ErrorKind, Log, LogOptions, RecoveryMode, RecoveryReport, Store, StoreOptions, TRANSACTION_STATE,
    TopicPartition,
};
pub(crate) use keeplog_check as check;

pub(crate) use self::storage::Storage;

/// A pass of the cleaner.
pub(crate) mod cleaner {
    pub(crate) use keeplog::{CleanOptions, CleanOutcome, CleanReport, Merge, Overflow, Progress, Watch, clean};
}

/// What the next pass of the cleaner has to go by.
pub(crate) mod explain {
    pub(crate) use keeplog::inspect::explain::{Due, Explanation, Obstacle};
    pub(crate) use keeplog::inspect::schedule::{CheckpointFault, Rules};
}

/// Who is in the groups.
pub(crate) mod groups {
    pub(crate) use keeplog::inspect::offsets::expiry::Subscription;
    pub(crate) use keeplog::inspect::offsets::groups::{AssignedPartitions, GroupDescription, GroupKind, GroupState, MemberDescription};
}

/// Folding a log of commits into what is committed.
pub(crate) mod replay {
    pub(crate) use keeplog::inspect::offsets::{Origin, Outcome, Replay};
}
