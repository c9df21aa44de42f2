//! Which check of the record format failed.

/// Why bytes are not a sound entry. Knows no file: whoever knows the file adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside the entry.
    #[error("the entry needs {needed} bytes, {available} are there")]
    Truncated {
        /// Bytes that the entry takes.
        needed: u64,
        /// Bytes that are left.
        available: u64,
    },
    /// The length field is below what any entry of this format takes, or negative.
    #[error("length field {length} is below the minimum of {minimum}")]
    Length {
        /// The field as stored.
        length: i32,
        /// The smallest sound value.
        minimum: i32,
    },
    /// A format that this version does not know.
    #[error("magic byte {0} is unknown: a newer format, or damage")]
    Magic(u8),
    /// The checksum does not match the bytes.
    #[error("checksum is {computed:#010x}, stored is {stored:#010x}")]
    Checksum {
        /// The field as stored.
        stored: u32,
        /// Over the bytes as they are.
        computed: u32,
    },
    /// A header field is out of its range.
    #[error("header field {field} has the impossible value {value}")]
    Field {
        /// Its name in the format.
        field: &'static str,
        /// The field as stored.
        value: i64,
    },
    /// A codec that does not exist, or not in this format.
    #[error("codec {0} does not exist in this format")]
    UnknownCodec(u8),
    /// A compressed area that can't be decompressed.
    #[error("{codec} data is damaged: {reason}")]
    Compression {
        /// Name of the codec.
        codec: &'static str,
        /// What the decompressor found.
        reason: &'static str,
    },
    /// Decompressed data would exceed the limit of the caller.
    #[error("decompressed data exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// There is no memory for what it decompresses to. The entry may be sound.
    #[error("there is no memory for {bytes} decompressed bytes: give the process more, or let fewer run at a time")]
    OutOfMemory {
        /// So many were to be held.
        bytes: u64,
    },
    /// The compressed message set of a v0 or v1 entry is malformed.
    #[error("compressed message set is malformed: {0}")]
    MessageSet(&'static str),
    /// A control record that does not parse.
    #[error("control record is malformed: {0}")]
    Control(&'static str),
    /// A record inside the batch is malformed.
    #[error("record {index} is malformed: {reason}")]
    Record {
        /// Its place in the batch, from 0.
        index: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Bytes are left where the format allows none.
    #[error("{0} bytes are left over after the last record")]
    LeftOver(u64),
}

/// Why a batch cannot be written. What was asked for is at fault, not any stored byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Offsets in a batch must rise.
    #[error("offset {offset} does not rise above {least}")]
    Offset {
        /// The offset given.
        offset: u64,
        /// The offset before it, or the batch's base.
        least: u64,
    },
    /// A batch spans at most 2^31 offsets, and offsets end at 2^63 - 2.
    #[error("offset {offset} is out of reach of a batch with base offset {base}")]
    OffsetSpan {
        /// The offset given.
        offset: u64,
        /// The batch's base offset.
        base: u64,
    },
    /// A timestamp below -1.
    #[error("timestamp {0} is negative")]
    Timestamp(i64),
    /// More bytes or records than a batch can count.
    #[error("the batch would hold {0} bytes or more, above what its length field can say")]
    TooLarge(u64),
    /// A batch without records is written by `write_empty`.
    #[error("the batch has no records")]
    Empty,
    /// A level that the codec does not have.
    #[error("{codec} has no compression level {level}")]
    Level {
        /// Name of the codec.
        codec: &'static str,
        /// The level asked for.
        level: i32,
    },
    /// The compressor gave up.
    #[error("{codec} could not compress: {reason}")]
    Compression {
        /// Name of the codec.
        codec: &'static str,
        /// What it said.
        reason: &'static str,
    },
}
