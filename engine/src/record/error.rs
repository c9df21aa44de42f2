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
