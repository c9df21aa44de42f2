//! The three sparse indexes of a log segment: offset index, time index and aborted-transaction index.
//!
//! Everything here is a view over bytes in Kafka's layout (big-endian, fixed-size entries, no header, no
//! checksum): the caller decides where the bytes live and who writes and syncs them. A lookup allocates
//! nothing. The length of the bytes *is* the number of entries, so a file with a preallocated tail must be
//! cut, or given as the used part only.
//!
//! Bytes from outside never panic. A lookup in a damaged index gives a useless answer, never an error: call
//! `check` once before trusting one.
#![forbid(unsafe_code)]

mod error;
mod interval;
mod offset;
mod search;
mod time;
mod txn;

pub use error::IndexError;
pub use interval::IndexInterval;
pub use offset::{OffsetEntry, OffsetIndex};
pub use time::{TimeEntry, TimeIndex};
pub use txn::{AbortedTxn, TxnIndex};

/// The widest distance between a segment's base offset and an offset in it (31 bits).
pub const RELATIVE_OFFSET_MAX: u64 = i32::MAX as u64;
