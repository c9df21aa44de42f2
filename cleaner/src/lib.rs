//! Log compaction: of every key, the newest record stays.
//!
//! The rules are those of Apache Kafka's log cleaner, record for record; the way is another one. Kafka reads the
//! dirty section into a map of key to newest offset, then copies the whole log past that map. Here the log is
//! read once, newest first: the first record met of a key is the one that stays, so a set of the keys seen so far
//! is all the memory it takes, and what survives is written from the buffer that it was read into.
//!
//! ```text
//! plan        range, groups of segments that become one, what stays whatever its key    plan, end
//! scan        a chunk of a segment: read, checksums verified, decoded, keys hashed      cuts, feed, scan, hash
//! decide      newest to oldest, records in reverse: a key seen before is dead           work, decide, dedup
//! emit        whole batches verbatim, dead ones not at all, mixed ones written again    emit
//! write       what stays of a group of segments, oldest first                           assemble, output
//! swap        outputs on stable storage, then put in place, oldest first                pass, clean
//! ```
//! Any number of threads may work on one pass ([`CleanOptions::threads`]): only the decision is ordered.
//!
//! What only older data can tell (which transactions were aborted, which of their markers are still needed) is
//! settled by one ascending walk over batch headers, and only in logs that hold transactions: `transactions`.
//!
//! Differences from Kafka's cleaner, all of them on purpose:
//! - A batch with a damaged checksum stops the pass. Kafka copies it, or writes it again under a fresh checksum.
//! - Two keys are never taken for one by a hash that somebody prepared: the hash has a secret for each pass.
//! - A segment that loses nothing, and is not merged, is left untouched. Kafka writes it again.
//! - Where a pass begins inside a segment, Kafka can take a committed transaction for an aborted one while it fills
//!   its map, and keeps records that newer ones have replaced. Here they go.
//! - An output that outgrows the 2^31 bytes or offsets of a file goes on in a second one. Kafka fails on the bytes, and
//!   splits segments with too many offsets in a step of its own.
//! - Segments below the start of the log are not read, and where the policy deletes too, segments are merged only within
//!   one `segment_ms`, so that retention by age can tell their records apart. Kafka's merged segments may never age.
//! - A log that is dirty again after each pass does not keep the others from theirs (see [`schedule::choose`]).
//! - A v0 or v1 batch that ends the range and loses all its records leaves an empty v2 batch. Kafka fails there.
//! - A record dated in the future delays nothing (see [`schedule`]).
//!
//! This crate knows no file names, no order of syncs and no crash recovery: it sees segments, and the engine's
//! guard to replace them. It starts no threads but those that a pass is told to use, and reads no clock but the log's
//! storage.
#![deny(unsafe_code)] // but for some instructions, in dedup/cpu.rs

mod assemble;
mod chunk;
mod clean;
mod cuts;
mod decide;
mod dedup;
mod emit;
mod end;
pub mod explain;
mod feed;
mod hash;
mod options;
mod output;
mod pass;
mod plan;
mod progress;
mod scan;
pub mod schedule;
mod source;
mod target;
mod transactions;
mod walk;
mod work;

pub use clean::clean;
pub use options::{CleanOptions, CleanOutcome, CleanReport, Merge, Overflow, Progress, Watch};

/// The keys of a pass by themselves, to be measured. A pass hashes each key to a [`keys::Place`] and adds it to the
/// [`keys::DedupSet`]; nobody else has a use for them, and they change as the pass does.
pub mod keys {
    pub use crate::dedup::{DedupSet, NotAdded, Place, SEARCHES_AHEAD};
    pub use crate::hash::KeyHasher;
}

#[cfg(test)]
mod tests;
