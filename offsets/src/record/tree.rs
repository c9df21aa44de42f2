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
        Self::decode_only(schema, bytes, None)
    }

    /// As [`decode`](Self::decode), with the same verdict; of the fields, at any depth, only those with one of these names are kept.
    pub(crate) fn decode_only(schema: &'static Schema, bytes: &[u8], names: Option<&'static [&'static str]>) -> Result<Self, DecodeError> {
        let (version, mut layout, mut reader) = begin(schema, bytes)?;
        layout.names = names;
        let data = layout.decode_struct::<Tree>(&mut reader, schema.fields)?;
        Ok(Self { version, data, rest: reader.rest().into() })
    }

    /// Whether [`decode`](Self::decode) can read it, without the memory that a tree takes: of small fields, many times their own.
    pub(crate) fn check(schema: &'static Schema, bytes: &[u8]) -> Result<(), DecodeError> {
        let (_, mut layout, mut reader) = begin(schema, bytes)?;
        layout.decode_struct::<Nothing>(&mut reader, schema.fields)
    }
}

fn begin<'a>(schema: &Schema, bytes: &'a [u8]) -> Result<(i16, Layout, Reader<'a>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    if version < 0 {
        return Err(DecodeError::Version { version });
    }
    let known = version.min(schema.latest);
    let encoding = if known < schema.flexible_from { Encoding::Classic } else { Encoding::Flexible };
    Ok((version, Layout { version: known, encoding, consumer_protocol: true, names: None }, reader))
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
    Layout { version: 0, encoding: Encoding::Classic, consumer_protocol: false, names: None }.decode_struct::<Tree>(reader, fields)
}

#[cfg(test)]
thread_local! {
    /// How many leaves were made.
    pub(crate) static LEAVES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// What is made of the fields that are read.
trait Build {
    type Value;
    type Struct: Default;

    fn field(to: &mut Self::Struct, name: &'static str, value: Self::Value);
    fn unknown_tag(to: &mut Self::Struct, tag: u32, content: &[u8]);
    /// A value that holds no others, which is made when it is wanted.
    fn leaf(value: impl FnOnce() -> Value) -> Self::Value;
    fn list(items: Vec<Self::Value>) -> Self::Value;
    fn of_struct(fields: Self::Struct) -> Self::Value;
}

/// A tree.
struct Tree;

impl Build for Tree {
    type Value = Value;
    type Struct = Struct;

    fn field(to: &mut Struct, name: &'static str, value: Value) {
        to.fields.push((name, value));
    }

    fn unknown_tag(to: &mut Struct, tag: u32, content: &[u8]) {
        to.unknown_tags.push((tag, content.into()));
    }

    fn leaf(value: impl FnOnce() -> Value) -> Value {
        #[cfg(test)]
        LEAVES.set(LEAVES.get() + 1);
        value()
    }

    fn list(items: Vec<Value>) -> Value {
        Value::List(items)
    }

    fn of_struct(fields: Struct) -> Value {
        Value::Struct(Box::new(fields))
    }
}

/// Nothing at all: only the verdict counts. A vector of nothings takes no memory either.
struct Nothing;

impl Build for Nothing {
    type Value = ();
    type Struct = ();

    fn field((): &mut (), _: &'static str, (): ()) {}
    fn unknown_tag((): &mut (), _: u32, _: &[u8]) {}
    fn leaf(_: impl FnOnce() -> Value) {}
    fn list(_: Vec<()>) {}
    fn of_struct((): ()) {}
}

/// How the fields of one value are to be read. The schemas are finite and do not refer to themselves, which bounds
/// the depth of the calls below.
struct Layout {
    version: i16,
    encoding: Encoding,
    consumer_protocol: bool,
    /// If not all fields are kept: the names of those that are.
    names: Option<&'static [&'static str]>,
}

impl Layout {
    fn decode_struct<B: Build>(&mut self, reader: &mut Reader<'_>, fields: &'static [Field]) -> Result<B::Struct, DecodeError> {
        let (mut decoded, version) = (B::Struct::default(), self.version);
        for field in fields.iter().filter(|f| f.tag.is_none() && f.is_in(version)) {
            if self.keeps(field) {
                B::field(&mut decoded, field.name, self.decode_value::<B>(reader, &field.kind)?);
            } else {
                self.decode_value::<Nothing>(reader, &field.kind)?;
            }
        }
        if self.encoding == Encoding::Flexible {
            self.decode_tags::<B>(reader, fields, &mut decoded)?;
        }
        Ok(decoded)
    }

    fn keeps(&self, field: &Field) -> bool {
        self.names.is_none_or(|names| names.contains(&field.name))
    }

    fn decode_tags<B: Build>(
        &mut self,
        reader: &mut Reader<'_>,
        fields: &'static [Field],
        decoded: &mut B::Struct,
    ) -> Result<(), DecodeError> {
        for _ in 0..reader.uvarint()? {
            let tag = reader.uvarint()?;
            let size = reader.uvarint()? as usize;
            let at = reader.position();
            let content = reader.take(size)?;
            let Some(field) = fields.iter().find(|f| f.tag == Some(tag) && f.is_in(self.version)) else {
                if self.names.is_none() {
                    B::unknown_tag(decoded, tag, content);
                }
                continue;
            };
            let mut inner = Reader::new(content);
            if self.keeps(field) {
                B::field(decoded, field.name, self.decode_tagged::<B>(&mut inner, &field.kind)?);
            } else {
                self.decode_tagged::<Nothing>(&mut inner, &field.kind)?;
            }
            if inner.left() > 0 {
                return Err(DecodeError::TagSize { at });
            }
        }
        Ok(())
    }

    fn decode_tagged<B: Build>(&mut self, reader: &mut Reader<'_>, kind: &'static Kind) -> Result<B::Value, DecodeError> {
        match kind {
            Kind::NullableStruct(fields) => match reader.uvarint()? {
                0 => Ok(B::leaf(|| Value::Null)),
                _ => Ok(B::of_struct(self.decode_struct::<B>(reader, fields)?)),
            },
            _ => self.decode_value::<B>(reader, kind),
        }
    }

    fn decode_value<B: Build>(&mut self, reader: &mut Reader<'_>, kind: &'static Kind) -> Result<B::Value, DecodeError> {
        let int = |value: i64| B::leaf(|| Value::Int(value));
        Ok(match kind {
            Kind::Int8 => int(reader.i8()?.into()),
            Kind::Int16 => int(reader.i16()?.into()),
            Kind::Uint16 => int(reader.u16()?.into()),
            Kind::Int32 => int(reader.i32()?.into()),
            Kind::Int64 => int(reader.i64()?),
            Kind::Uuid => {
                let id = reader.array()?;
                B::leaf(|| Value::Uuid(id))
            }
            Kind::String => {
                let string = reader.string(self.encoding)?;
                B::leaf(|| text(string))
            }
            Kind::ProtocolType => {
                let name = reader.string(self.encoding)?;
                self.consumer_protocol = name == Some(CONSUMER_PROTOCOL);
                B::leaf(|| text(name))
            }
            Kind::Bytes => {
                let content = reader.bytes(self.encoding)?;
                B::leaf(|| bytes(content))
            }
            Kind::Embedded(schema) => {
                let content = reader.bytes(self.encoding)?;
                B::leaf(|| self.embedded(schema, content))
            }
            Kind::Array(items) => match reader.count(self.encoding)? {
                None => B::leaf(|| Value::Null),
                Some(count) => B::list((0..count).map(|_| self.decode_value::<B>(reader, items)).collect::<Result<_, _>>()?),
            },
            Kind::Struct(fields) => B::of_struct(self.decode_struct::<B>(reader, fields)?),
            Kind::NullableStruct(fields) => match reader.i8()? {
                ..0 => B::leaf(|| Value::Null),
                _ => B::of_struct(self.decode_struct::<B>(reader, fields)?),
            },
        })
    }

    /// Bytes that do not hold `schema` after all stay bytes: a group's members may write there what they like.
    fn embedded(&self, schema: &'static Schema, content: Option<&[u8]>) -> Value {
        if self.consumer_protocol
            && let Some(content) = content
            && let Ok(inner) = Versioned::decode_only(schema, content, self.names)
        {
            return Value::Embedded(Box::new(inner));
        }
        bytes(content)
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
