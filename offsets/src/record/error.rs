use thiserror::Error;

/// Why the bytes of a key or a value are not what their type asks for. Positions are byte positions within that
/// key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It ends in the middle of a field.
    #[error("ends too early: {needed} bytes needed at byte {at}, {left} left")]
    Truncated {
        /// Where the field starts.
        at: usize,
        /// Bytes of the field.
        needed: u64,
        /// Bytes there are.
        left: u64,
    },
    /// A length or count that is negative or exceeds what is left.
    #[error("the length {length} at byte {at} cannot be: {left} bytes are left")]
    Length {
        /// Where the length is written.
        at: usize,
        /// What it says.
        length: i64,
        /// Bytes after it.
        left: u64,
    },
    /// A variable-length number of more than 32 bits.
    #[error("the number at byte {at} has more than 32 bits")]
    Varint {
        /// Where it starts.
        at: usize,
    },
    /// Text that is not UTF-8.
    #[error("the text at byte {at} is not UTF-8")]
    Utf8 {
        /// Where its length is written.
        at: usize,
    },
    /// A tagged field whose content does not fill its size.
    #[error("the tagged field at byte {at} is longer than its content")]
    TagSize {
        /// Where its content starts.
        at: usize,
    },
    /// Null where the format has no null.
    #[error("null at byte {at}, where a value is due")]
    Null {
        /// Where it is written.
        at: usize,
    },
    /// A version below zero.
    #[error("the version {version} is negative")]
    Version {
        /// As written.
        version: i16,
    },
    /// A key of a type that this library does not know.
    #[error("unknown record type {key_type}")]
    UnknownType {
        /// As written.
        key_type: i16,
    },
}
