//! Everything that the command line uses of the libraries, in one place.

pub(crate) use keeplog_engine::checkpoint;
pub(crate) use keeplog_engine::names::{self, TopicPartition};
pub(crate) use keeplog_engine::record;
pub(crate) use keeplog_engine::scan;
pub(crate) use keeplog_engine::storage::{self, Storage};
pub(crate) use keeplog_engine::{DataDir, Log, LogOptions, RecoveryMode, RecoveryReport};
pub(crate) use keeplog_engine::{Error, ErrorKind, snapshot};
pub(crate) use keeplog_index as index;
