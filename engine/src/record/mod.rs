//! Record batches: Apache Kafka's format v2 read and written, v0 and v1 read.
//!
//! No I/O here, and no panic on any bytes: what comes from outside gives a [`DecodeError`]. An *entry* is one
//! unit of a `.log` file: a v2 batch, or a v0/v1 message (perhaps the compressed wrapper of several).

mod checksum;
mod codec;
mod control;
mod decode;
mod error;
mod header;
mod legacy;
mod patch;
mod types;
mod varint;
mod write;

pub use checksum::crc32c;
pub use control::{ControlType, EndMarker, TxnResult, coordinator_epoch_of, write_end_marker};
pub use decode::{Decoder, OwnedRecords, Records, base_offset_of, decode_owned};
pub use error::{DecodeError, EncodeError};
pub use header::{Attributes, BatchHeader, Codec, TimestampType};
pub use header::{ENTRY_PREFIX_BYTES, HEADER_V2_BYTES, MAGIC_POSITION, SCAN_PEEK_BYTES};
pub use patch::{set_append_time, set_base_offset, set_leader_epoch};
pub use types::{Header, HeaderIter, RawHeaders, Record, RecordRef, StoredRecord};
pub use write::{BatchSpec, BatchWriter, write_empty};

/// "No timestamp", "no producer", "no epoch" and "no sequence" on disk.
pub const NONE: i64 = -1;

#[cfg(test)]
mod tests;
