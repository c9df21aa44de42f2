//! Record batches: Apache Kafka's format v2 read and written, v0 and v1 read.
//!
//! No I/O here, and no panic on any bytes: what comes from outside gives a [`DecodeError`]. An *entry* is one
//! unit of a `.log` file: a v2 batch, or a v0/v1 message (perhaps the compressed wrapper of several).

mod error;
mod header;

pub use error::DecodeError;
pub use header::{Attributes, BatchHeader, Codec, TimestampType};
pub use header::{ENTRY_PREFIX_BYTES, HEADER_V2_BYTES, MAGIC_POSITION, SCAN_PEEK_BYTES};

/// "No timestamp", "no producer", "no epoch" and "no sequence" on disk.
pub const NONE: i64 = -1;
