//! Any key or value as a tree of named fields, read by its [`Schema`]. For looking at, not for speed.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::DecodeError;
use super::schema::{Field, Kind, Schema};
use super::wire::{Encoding, Reader};

/// The protocol type of groups whose members speak the consumer protocol.
const CONSUMER_PROTOCOL: &str = "consumer";

/// One value of a decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A string, byte string, array or struct that is not there.
    Null,
    /// An integer of any width.
    Int(i64),
    /// A string.
    Text(Box<str>),
    /// Bytes whose meaning is not known. Serialized as hex text.
    Bytes(Box<[u8]>),
    /// A topic id. Serialized as Kafka prints it: base64 with the alphabet for URLs, 22 characters.
    Uuid([u8; 16]),
    /// An array.
    List(Vec<Value>),
    /// A struct.
    Struct(Box<Struct>),
    /// Bytes that hold a layout with a version of its own.
    Embedded(Box<Versioned>),
}

impl Value {
    /// The integer, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_str(&hex(value)),
            Self::Uuid(value) => serializer.serialize_str(&uuid_text(*value)),
            Self::List(values) => values.serialize(serializer),
            Self::Struct(value) => value.serialize(serializer),
            Self::Embedded(value) => value.serialize(serializer),
        }
    }
}

/// Named fields in Kafka's order and with Kafka's names. A tagged field is there if it was written.
///
/// Serialized as a map; tagged fields that are not known follow as `unknownTags`, hex text by tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Struct {
    pub(crate) fields: Vec<(&'static str, Value)>,
    pub(crate) unknown_tags: Vec<(u32, Box<[u8]>)>,
}

impl Struct {
    /// The field called `name`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find_map(|(n, value)| (*n == name).then_some(value))
    }

    /// All known fields.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&'static str, &Value)> {
        self.fields.iter().map(|(name, value)| (*name, value))
    }

    /// Tagged fields that are not known: tag and content.
    pub fn unknown_tags(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        self.unknown_tags.iter().map(|(tag, content)| (*tag, &**content))
    }
}

impl Serialize for Struct {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        if !self.unknown_tags.is_empty() {
            map.serialize_entry("unknownTags", &UnknownTags(&self.unknown_tags))?;
        }
        map.end()
    }
}

struct UnknownTags<'a>(&'a [(u32, Box<[u8]>)]);

impl Serialize for UnknownTags<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(tag, content)| (tag, hex(content))))
    }
}

/// A version and the fields that it has.
///
/// Serialized as a map of `version`, `data` and, if the bytes go on after the known fields, `rest` as hex text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    pub(crate) version: i16,
    pub(crate) data: Struct,
    pub(crate) rest: Box<[u8]>,
}

impl Versioned {
    /// The version as written; a layout newer than the known ones is read as the newest known one.
    #[must_use]
    pub fn version(&self) -> i16 {
        self.version
    }

    /// The fields.
    #[must_use]
    pub fn data(&self) -> &Struct {
        &self.data
    }

    /// The bytes after the known fields, which a newer version may have.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Reads a version and the fields that `schema` gives it.
    pub(crate) fn decode(schema: &'static Schema, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.i16()?;
        if version < 0 {
            return Err(DecodeError::Version { version });
        }
        let known = version.min(schema.latest);
        let encoding = if known < schema.flexible_from { Encoding::Classic } else { Encoding::Flexible };
        let mut layout = Layout { version: known, encoding, consumer_protocol: true };
        let data = layout.decode_struct(&mut reader, schema.fields)?;
        Ok(Self { version, data, rest: reader.rest().into() })
    }
}

impl Serialize for Versioned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", &self.version)?;
        map.serialize_entry("data", &self.data)?;
        if !self.rest.is_empty() {
            map.serialize_entry("rest", &hex(&self.rest))?;
        }
        map.end()
    }
}

/// Reads the fields of a key, which come without tagged fields.
pub(crate) fn decode_key_fields(reader: &mut Reader<'_>, fields: &'static [Field]) -> Result<Struct, DecodeError> {
    Layout { version: 0, encoding: Encoding::Classic, consumer_protocol: false }.decode_struct(reader, fields)
}

/// How the fields of one value are to be read. The schemas are finite and do not refer to themselves, which bounds
/// the depth of the calls below.
struct Layout {
    version: i16,
    encoding: Encoding,
    consumer_protocol: bool,
}

impl Layout {
    fn decode_struct(&mut self, reader: &mut Reader<'_>, fields: &'static [Field]) -> Result<Struct, DecodeError> {
        let (mut decoded, version) = (Struct::default(), self.version);
        for field in fields.iter().filter(|f| f.tag.is_none() && f.is_in(version)) {
            decoded.fields.push((field.name, self.decode_value(reader, &field.kind)?));
        }
        if self.encoding == Encoding::Flexible {
            self.decode_tags(reader, fields, &mut decoded)?;
        }
        Ok(decoded)
    }

    fn decode_tags(&mut self, reader: &mut Reader<'_>, fields: &'static [Field], decoded: &mut Struct) -> Result<(), DecodeError> {
        for _ in 0..reader.uvarint()? {
            let tag = reader.uvarint()?;
            let size = reader.uvarint()? as usize;
            let at = reader.position();
            let content = reader.take(size)?;
            let Some(field) = fields.iter().find(|f| f.tag == Some(tag) && f.is_in(self.version)) else {
                decoded.unknown_tags.push((tag, content.into()));
                continue;
            };
            let mut inner = Reader::new(content);
            let value = match field.kind {
                Kind::NullableStruct(fields) => match inner.uvarint()? {
                    0 => Value::Null,
                    _ => Value::Struct(Box::new(self.decode_struct(&mut inner, fields)?)),
                },
                _ => self.decode_value(&mut inner, &field.kind)?,
            };
            if inner.left() > 0 {
                return Err(DecodeError::TagSize { at });
            }
            decoded.fields.push((field.name, value));
        }
        Ok(())
    }

    fn decode_value(&mut self, reader: &mut Reader<'_>, kind: &'static Kind) -> Result<Value, DecodeError> {
        Ok(match kind {
            Kind::Int8 => Value::Int(reader.i8()?.into()),
            Kind::Int16 => Value::Int(reader.i16()?.into()),
            Kind::Uint16 => Value::Int(reader.u16()?.into()),
            Kind::Int32 => Value::Int(reader.i32()?.into()),
            Kind::Int64 => Value::Int(reader.i64()?),
            Kind::Uuid => Value::Uuid(reader.array()?),
            Kind::String => text(reader.string(self.encoding)?),
            Kind::ProtocolType => {
                let name = reader.string(self.encoding)?;
                self.consumer_protocol = name == Some(CONSUMER_PROTOCOL);
                text(name)
            }
            Kind::Bytes => bytes(reader.bytes(self.encoding)?),
            Kind::Embedded(schema) => self.decode_embedded(reader, schema)?,
            Kind::Array(items) => match reader.count(self.encoding)? {
                None => Value::Null,
                Some(count) => Value::List((0..count).map(|_| self.decode_value(reader, items)).collect::<Result<_, _>>()?),
            },
            Kind::Struct(fields) => Value::Struct(Box::new(self.decode_struct(reader, fields)?)),
            Kind::NullableStruct(fields) => match reader.i8()? {
                ..0 => Value::Null,
                _ => Value::Struct(Box::new(self.decode_struct(reader, fields)?)),
            },
        })
    }

    /// Bytes that do not hold `schema` after all stay bytes: a group's members may write there what they like.
    fn decode_embedded(&self, reader: &mut Reader<'_>, schema: &'static Schema) -> Result<Value, DecodeError> {
        let content = reader.bytes(self.encoding)?;
        if self.consumer_protocol
            && let Some(content) = content
            && let Ok(inner) = Versioned::decode(schema, content)
        {
            return Ok(Value::Embedded(Box::new(inner)));
        }
        Ok(bytes(content))
    }
}

fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.into()))
}

fn bytes(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |bytes| Value::Bytes(bytes.into()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|nibble| char::from(DIGITS[usize::from(nibble)])).collect()
}

pub(crate) fn uuid_text(id: [u8; 16]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from_be_bytes(id);
    // 21 characters of six bits each from the top, then the last two bits with four zeros after them.
    let digit = |i: u32| if i < 21 { (bits >> (122 - 6 * i)) & 63 } else { (bits & 3) << 4 };
    (0..22).map(|i| char::from(ALPHABET[digit(i) as usize])).collect()
}
