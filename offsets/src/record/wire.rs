//! Kafka's primitive types, big-endian, read from and written to byte slices.
//!
//! Every length and count is checked against the bytes that are left before anything is sized by it.

use super::DecodeError;

/// How lengths are written, and whether structs end with tagged fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Strings with an `i16` length, bytes and arrays with an `i32`; no tagged fields.
    Classic,
    /// Lengths as unsigned varints of n + 1; tagged fields after every struct.
    Flexible,
}

/// The unread rest of a key or a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let left = self.left();
        if n > left {
            return Err(DecodeError::Truncated { at: self.at, needed: n as u64, left: left as u64 });
        }
        let taken = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn i8(&mut self) -> Result<i8, DecodeError> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, DecodeError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| DecodeError::Varint { at });
            }
        }
        Err(DecodeError::Varint { at })
    }

    /// A nullable string.
    pub(crate) fn string(&mut self, encoding: Encoding) -> Result<Option<&'a str>, DecodeError> {
        let at = self.at;
        let length = match encoding {
            Encoding::Classic => self.i16()?.into(),
            Encoding::Flexible => i64::from(self.uvarint()?) - 1,
        };
        let Some(bytes) = self.sized(at, length)? else { return Ok(None) };
        std::str::from_utf8(bytes).map(Some).map_err(|_| DecodeError::Utf8 { at })
    }

    /// A nullable byte string.
    pub(crate) fn bytes(&mut self, encoding: Encoding) -> Result<Option<&'a [u8]>, DecodeError> {
        let at = self.at;
        let length = self.wide_length(encoding)?;
        self.sized(at, length)
    }

    /// The item count of a nullable array. Every item has at least one byte, so a count larger than what is left
    /// cannot be true.
    pub(crate) fn count(&mut self, encoding: Encoding) -> Result<Option<usize>, DecodeError> {
        let at = self.at;
        let count = self.wide_length(encoding)?;
        match usize::try_from(count) {
            Ok(n) if n <= self.left() => Ok(Some(n)),
            _ if count == -1 => Ok(None),
            _ => Err(DecodeError::Length { at, length: count, left: self.left() as u64 }),
        }
    }

    fn wide_length(&mut self, encoding: Encoding) -> Result<i64, DecodeError> {
        Ok(match encoding {
            Encoding::Classic => self.i32()?.into(),
            Encoding::Flexible => i64::from(self.uvarint()?) - 1,
        })
    }

    fn sized(&mut self, at: usize, length: i64) -> Result<Option<&'a [u8]>, DecodeError> {
        match usize::try_from(length) {
            Ok(n) if n <= self.left() => self.take(n).map(Some),
            _ if length == -1 => Ok(None),
            _ => Err(DecodeError::Length { at, length, left: self.left() as u64 }),
        }
    }
}

pub(crate) fn put_uvarint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a nullable string. `false` (and nothing written) if it is too long for its length field.
#[must_use]
pub(crate) fn put_string(out: &mut Vec<u8>, encoding: Encoding, text: Option<&str>) -> bool {
    let length = match (encoding, text) {
        (Encoding::Flexible, _) => return put_bytes(out, encoding, text.map(str::as_bytes)),
        (Encoding::Classic, Some(text)) => i16::try_from(text.len()).ok(),
        (Encoding::Classic, None) => Some(-1),
    };
    let Some(length) = length else { return false };
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
    true
}

/// Writes a nullable byte string. `false` (and nothing written) if it is too long for its length field.
#[must_use]
pub(crate) fn put_bytes(out: &mut Vec<u8>, encoding: Encoding, bytes: Option<&[u8]>) -> bool {
    let fits = put_count(out, encoding, bytes.map(<[u8]>::len));
    if fits {
        out.extend_from_slice(bytes.unwrap_or_default());
    }
    fits
}

/// Writes the item count of a nullable array. `false` (and nothing written) if it is too large.
#[must_use]
pub(crate) fn put_count(out: &mut Vec<u8>, encoding: Encoding, count: Option<usize>) -> bool {
    let Ok(signed) = count.map_or(Ok(-1), i32::try_from) else { return false };
    match encoding {
        Encoding::Classic => out.extend_from_slice(&signed.to_be_bytes()),
        Encoding::Flexible => put_uvarint(out, signed.wrapping_add(1).cast_unsigned()),
    }
    true
}
