//! The records of Kafka's internal topics: `__consumer_offsets`, of 0.8.2 to 4.x, and `__transaction_state`.
//!
//! [`OffsetKey`] and [`OffsetValue`] read and write commits, fast and without a copy. [`DecodedRecord`] shows a
//! record of any type. No I/O here, and no panic on any bytes: what comes from outside gives a [`DecodeError`].

mod commit;
mod decoded;
mod error;
mod group;
mod schema;
mod tree;
mod wire;

pub use commit::{OFFSET_KEY_V0, OFFSET_KEY_V1, OffsetKey, OffsetValue};
pub use decoded::{DecodedKey, DecodedRecord, DecodedValue, InternalTopic, RecordType};
pub(crate) use decoded::{check_value, decode_fields};
pub use error::DecodeError;
pub use group::{GROUP_METADATA_KEY, GroupKey, GroupMember, GroupMetadata, assigned_partitions, subscribed_topics};
#[cfg(test)]
pub(crate) use tree::LEAVES;
pub(crate) use tree::uuid_text;
pub use tree::{Struct, Value, Versioned};

/// The version that every key and value starts with; a key's is its type.
pub fn version_of(bytes: &[u8]) -> Result<i16, DecodeError> {
    wire::Reader::new(bytes).i16()
}

#[cfg(test)]
mod tests;
