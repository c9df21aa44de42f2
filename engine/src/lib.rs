//! Record batches, segments and logs in Apache Kafka's directory format.
//!
//! This crate knows bytes, files and crash recovery. It does not know that keys mean anything, that a
//! cleaner, a consumer group or a command line exist, and it starts no thread.
#![deny(unsafe_code)] // but for mapping sealed files (storage/real.rs) and two instructions (record/checksum.rs, prefetch.rs)

pub mod checkpoint;
mod config;
pub mod data_dir;
mod error;
mod latency;
mod log;
pub mod names;
#[doc(hidden)]
pub mod planted;
#[doc(hidden)]
pub mod prefetch;
mod producers;
pub mod record;
mod recovery;
pub mod room;
pub mod scan;
mod segment;
mod segment_set;
pub mod storage;
#[doc(hidden)]
pub mod sync;

pub use config::{CleanupPolicy, Durability, LogOptions, RecoveryMode, SEGMENT_BYTES_MIN};
pub use data_dir::DataDir;
pub use error::{Error, ErrorKind, Result};
pub use latency::AppendLatency;
pub use log::{
    Appended, Batches, Chunk, ChunkBuffer, Chunks, Fingerprint, Log, OutputSegment, Records, Replaced, RetentionReport, Rewrite,
    SealedOutput, StoredBatch, TransactionEnd,
};
pub use names::TopicPartition;
pub use producers::{ActiveProducer, snapshot};
pub use recovery::{Cut, Damage, Rebuilt, RecoveryReport};
pub use segment::Segment;
pub use segment_set::SegmentSet;
