//! What is wrong with an index, exactly; no file name, which the caller adds.

use thiserror::Error;

/// Why an index is unusable or an append to it is refused. `entry` counts from 0; offsets are record offsets,
/// positions are bytes in the segment, timestamps are ms since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The bytes are not a whole number of entries.
    #[error("{bytes} bytes are not a whole number of {entry_bytes}-byte entries")]
    Ragged {
        /// Bytes given.
        bytes: usize,
        /// Bytes of one entry.
        entry_bytes: usize,
    },
    /// An offset-index entry with position 0, which no writer makes: the preallocated tail was never cut.
    #[error("entry {entry} is unused space: the preallocated tail was not cut")]
    Unused {
        /// The entry.
        entry: usize,
    },
    /// An offset that does not follow the one before it.
    #[error("entry {entry}: offset {offset} does not follow {previous}")]
    OffsetNotRising {
        /// The entry, or the number of entries when appending.
        entry: usize,
        /// Its offset.
        offset: u64,
        /// The offset before it.
        previous: u64,
    },
    /// An offset that the segment can't hold.
    #[error("entry {entry}: offset {offset} is outside {base}..{next}")]
    OffsetOutside {
        /// The entry, or the number of entries when appending.
        entry: usize,
        /// Its offset.
        offset: u64,
        /// The segment's base offset.
        base: u64,
        /// One past the last offset allowed.
        next: u64,
    },
    /// An offset below 0 in the aborted-transaction index.
    #[error("entry {entry}: offset {offset} is negative")]
    OffsetNegative {
        /// The entry.
        entry: usize,
        /// The offset as stored.
        offset: i64,
    },
    /// A position that does not follow the one before it.
    #[error("entry {entry}: position {position} does not follow {previous}")]
    PositionNotRising {
        /// The entry, or the number of entries when appending.
        entry: usize,
        /// Its position.
        position: u32,
        /// The position before it.
        previous: u32,
    },
    /// A position past the segment's data, or beyond what a segment can hold.
    #[error("entry {entry}: position {position} is past the {log_bytes} bytes of the log")]
    PositionOutside {
        /// The entry, or the number of entries when appending.
        entry: usize,
        /// Its position.
        position: u32,
        /// Bytes in the segment.
        log_bytes: u32,
    },
    /// A timestamp that does not follow the one before it (-1 before the first).
    #[error("entry {entry}: timestamp {timestamp} does not follow {previous}")]
    TimestampNotRising {
        /// The entry.
        entry: usize,
        /// Its timestamp.
        timestamp: i64,
        /// The timestamp before it.
        previous: i64,
    },
    /// An aborted-transaction entry of a later format.
    #[error("entry {entry} has version {version}, and only 0 is known: a newer version of the format wrote it")]
    Version {
        /// The entry.
        entry: usize,
        /// Its version byte.
        version: i8,
    },
    /// An aborted transaction whose offsets contradict each other.
    #[error("entry {entry}: a transaction of {first}..={last} with last stable offset {stable} can't be")]
    Transaction {
        /// The entry, or the number of entries when appending.
        entry: usize,
        /// First offset of the transaction.
        first: u64,
        /// Offset of its abort marker.
        last: u64,
        /// Last stable offset when it was aborted.
        stable: u64,
    },
    /// Part of an aborted-transaction entry at the end, as a crash leaves it.
    #[error("{bytes} bytes of an incomplete entry follow entry {entries}")]
    Fragment {
        /// Whole entries before it.
        entries: usize,
        /// Bytes of the fragment.
        bytes: usize,
    },
}
