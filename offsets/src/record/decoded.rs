//! A record of `__consumer_offsets` or `__transaction_state` as a tree to look at.
//!
//! Decoding never fails: what cannot be read is kept as bytes, with the reason.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::DecodeError;
use super::schema::{OFFSETS, RecordSchema, Schema, TRANSACTIONS};
use super::tree::{Struct, Versioned, decode_key_fields, hex};
use super::wire::Reader;

/// The topic that a record is from, which gives its key types their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InternalTopic {
    /// `__consumer_offsets`: commits, and the state of consumer, share and streams groups.
    ConsumerOffsets,
    /// `__transaction_state`: the transactions of each transactional id.
    TransactionState,
}

impl InternalTopic {
    /// Whether the layout of the topic's keys of this type is known.
    #[must_use]
    pub fn knows(self, key_type: i16) -> bool {
        self.schemas().iter().any(|schema| schema.key_type == key_type)
    }

    fn schemas(self) -> &'static [RecordSchema] {
        match self {
            Self::ConsumerOffsets => OFFSETS,
            Self::TransactionState => TRANSACTIONS,
        }
    }
}

/// One record of an [`InternalTopic`]. Serialized as a map of `key` and `value`; a tombstone has a null value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DecodedRecord {
    key: Option<DecodedKey>,
    value: Option<DecodedValue>,
}

impl DecodedRecord {
    /// Decodes a record of `topic`.
    #[must_use]
    pub fn decode(topic: InternalTopic, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        let key = key.map(|key| DecodedKey::decode(topic, key));
        let schema = if let Some(DecodedKey::Known { schema, .. }) = key { Some(schema) } else { None };
        Self { key, value: value.map(|value| DecodedValue::decode(schema, value)) }
    }

    /// The key; `None` if the record has none, which only damage explains.
    #[must_use]
    pub fn key(&self) -> Option<&DecodedKey> {
        self.key.as_ref()
    }

    /// The value; `None` for a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&DecodedValue> {
        self.value.as_ref()
    }

    /// Whether key and value were read to their last byte, by layouts that are known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let key = matches!(&self.key, Some(DecodedKey::Known { rest, .. }) if rest.is_empty());
        let value = match &self.value {
            None => true,
            Some(DecodedValue::Known(value)) => value.rest().is_empty(),
            Some(DecodedValue::Raw { .. }) => false,
        };
        key && value
    }
}

/// A decoded key.
///
/// Serialized as a map of `type`, `name` and `data`, and `rest` as hex text if the key goes on after its known
/// fields; an unread one as `raw`, hex text, and `reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodedKey {
    /// A key of a known type.
    #[non_exhaustive]
    Known {
        /// The type of record.
        schema: RecordType,
        /// The fields.
        data: Struct,
        /// Bytes after the fields.
        rest: Box<[u8]>,
    },
    /// A key that could not be read.
    #[non_exhaustive]
    Raw {
        /// The whole key.
        bytes: Box<[u8]>,
        /// Why.
        reason: DecodeError,
    },
}

impl DecodedKey {
    fn decode(topic: InternalTopic, key: &[u8]) -> Self {
        Self::try_decode(topic, key).unwrap_or_else(|reason| Self::Raw { bytes: key.into(), reason })
    }

    fn try_decode(topic: InternalTopic, key: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(key);
        let key_type = reader.i16()?;
        let schema = topic.schemas().iter().find(|s| s.key_type == key_type).ok_or(DecodeError::UnknownType { key_type })?;
        let data = decode_key_fields(&mut reader, schema.key)?;
        Ok(Self::Known { schema: RecordType(schema), data, rest: reader.rest().into() })
    }
}

impl Serialize for DecodedKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known { schema, data, rest } => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("type", &schema.key_type())?;
                map.serialize_entry("name", schema.name())?;
                map.serialize_entry("data", data)?;
                if !rest.is_empty() {
                    map.serialize_entry("rest", &hex(rest))?;
                }
                map.end()
            }
            Self::Raw { bytes, reason } => serialize_raw(serializer, bytes, *reason),
        }
    }
}

/// A type of record, given by the version of its key.
#[derive(Clone, Copy)]
pub struct RecordType(&'static RecordSchema);

impl RecordType {
    /// The number that keys of this type start with.
    #[must_use]
    pub fn key_type(self) -> i16 {
        self.0.key_type
    }

    /// Kafka's name of it, such as `OffsetCommit`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.value.name
    }
}

impl PartialEq for RecordType {
    fn eq(&self, other: &Self) -> bool {
        (self.key_type(), self.name()) == (other.key_type(), other.name())
    }
}

impl Eq for RecordType {}

impl std::fmt::Debug for RecordType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.key_type())
    }
}

/// A decoded value. Serialized as its [`Versioned`]; an unread one as a map of `raw`, hex text, and `reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodedValue {
    /// A value of a known type.
    Known(Versioned),
    /// A value that could not be read.
    #[non_exhaustive]
    Raw {
        /// The whole value.
        bytes: Box<[u8]>,
        /// Why; `None` if it was not tried, because the key could not be read either.
        reason: Option<DecodeError>,
    },
}

impl DecodedValue {
    fn decode(schema: Option<RecordType>, value: &[u8]) -> Self {
        let reason = match schema.map(|schema| Versioned::decode(schema.0.value, value)) {
            Some(Ok(decoded)) => return Self::Known(decoded),
            Some(Err(reason)) => Some(reason),
            None => None,
        };
        Self::Raw { bytes: value.into(), reason }
    }
}

impl Serialize for DecodedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(value) => value.serialize(serializer),
            Self::Raw { bytes, reason } => serialize_raw(serializer, bytes, *reason),
        }
    }
}

/// Of the value of a record of `__consumer_offsets` whose key has this type: the fields with these names, at any depth.
pub(crate) fn decode_fields(key_type: i16, value: &[u8], names: &'static [&'static str]) -> Result<Struct, DecodeError> {
    Versioned::decode_only(value_schema(key_type)?, value, Some(names)).map(|decoded| decoded.data)
}

/// Whether such a value can be read at all.
pub(crate) fn check_value(key_type: i16, value: &[u8]) -> Result<(), DecodeError> {
    Versioned::check(value_schema(key_type)?, value)
}

fn value_schema(key_type: i16) -> Result<&'static Schema, DecodeError> {
    let schema = OFFSETS.iter().find(|schema| schema.key_type == key_type);
    schema.map(|schema| schema.value).ok_or(DecodeError::UnknownType { key_type })
}

fn serialize_raw<S: Serializer>(serializer: S, bytes: &[u8], reason: impl Into<Option<DecodeError>>) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("raw", &hex(bytes))?;
    if let Some(reason) = reason.into() {
        map.serialize_entry("reason", &reason.to_string())?;
    }
    map.end()
}
