//! The record of one committed offset: the key and value that a store reads by the million, without a copy.
//!
//! ```text
//! key:    version i16 (0 or 1, the same fields) | group string | topic string | partition i32
//! value:  0  offset i64 | metadata string | commit timestamp i64
//!         1  as 0, then expire timestamp i64 (-1 none)
//!         2  as 0
//!         3  offset i64 | leader epoch i32 (-1 none) | metadata string | commit timestamp i64
//!         4  as 3 with the flexible encoding; tag 0: topic id
//! ```

use super::DecodeError;
use super::wire::{Encoding, Reader, put_string, put_uvarint};

/// Key version of commits, written by Kafka 0.8.2.
pub const OFFSET_KEY_V0: i16 = 0;
/// Key version of commits since 0.9, and the one written here.
pub const OFFSET_KEY_V1: i16 = 1;

const NONE_I32: i32 = -1;
const NONE_I64: i64 = -1;
const TAG_TOPIC_ID: u32 = 0;

/// What a commit is for. The two key versions stand for the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetKey<'a> {
    /// The consumer group.
    pub group: &'a str,
    /// The topic it reads.
    pub topic: &'a str,
    /// The partition of it.
    pub partition: i32,
}

impl<'a> OffsetKey<'a> {
    /// Reads the key of a commit; `None` if `key` is of another type. What follows the known fields is ignored.
    #[inline]
    pub fn decode(key: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        Self::sound(key).map_or_else(|| Self::decode_any(key), |key| Ok(Some(key)))
    }

    /// The key of a commit in which nothing is wrong, as nearly all are.
    #[inline]
    fn sound(key: &'a [u8]) -> Option<Self> {
        let (&[0, 0 | 1], rest) = key.split_first_chunk()? else { return None };
        let (group, rest) = text(rest)?;
        let (topic, rest) = text(rest)?;
        Some(Self { group, topic, partition: i32::from_be_bytes(*rest.first_chunk()?) })
    }

    fn decode_any(key: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(key);
        if !matches!(reader.i16()?, OFFSET_KEY_V0 | OFFSET_KEY_V1) {
            return Ok(None);
        }
        Ok(Some(Self { group: name(&mut reader)?, topic: name(&mut reader)?, partition: reader.i32()? }))
    }

    /// Appends the key in version 1. `false`, and `out` as it was, if a name has more than 32,767 bytes.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(&OFFSET_KEY_V1.to_be_bytes());
        if !(put_string(out, Encoding::Classic, Some(self.group)) && put_string(out, Encoding::Classic, Some(self.topic))) {
            out.truncate(start);
            return false;
        }
        out.extend_from_slice(&self.partition.to_be_bytes());
        true
    }
}

/// Takes a text off, with its length of 16 bits before it, if that is what `bytes` begins with.
#[inline]
fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(i16::from_be_bytes(*length)).ok()?)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// As [`text`], with its length of one byte in the flexible encoding.
#[inline]
fn short_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (&length @ 1..0x80, rest) = bytes.split_first()? else { return None };
    let (text, rest) = rest.split_at_checked(usize::from(length) - 1)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let at = reader.position();
    reader.string(Encoding::Classic)?.ok_or(DecodeError::Null { at })
}

/// What a commit says, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetValue<'a> {
    /// The offset to read next. Kafka stores what it is given: it may be negative, which clients take for "none".
    pub offset: i64,
    /// Epoch of the leader that the last record came from.
    pub leader_epoch: Option<i32>,
    /// Whatever the group wants to remember.
    pub metadata: &'a str,
    /// When it was committed, ms.
    pub commit_timestamp_ms: i64,
    /// When it goes, ms; `None`: by the store's retention.
    pub expire_timestamp_ms: Option<i64>,
    /// Id of the topic, where the writer knew it.
    pub topic_id: Option<[u8; 16]>,
}

impl<'a> OffsetValue<'a> {
    /// The highest version that is known, and the first in the flexible encoding.
    pub const LATEST_VERSION: i16 = 4;

    /// Reads the value of a commit. Versions above 4 are read as 4, without its tagged fields; what else they hold
    /// is left out.
    #[inline]
    pub fn decode(value: &'a [u8]) -> Result<Self, DecodeError> {
        Self::sound(value).map_or_else(|| Self::decode_any(value), Ok)
    }

    /// A value in which nothing is wrong, as brokers of today write it.
    #[inline]
    fn sound(value: &'a [u8]) -> Option<Self> {
        let (&[0, version], rest) = value.split_first_chunk()? else { return None };
        let (offset, rest) = rest.split_first_chunk()?;
        let (leader_epoch, rest) = rest.split_first_chunk()?;
        let (metadata, rest) = match version {
            3 => text(rest)?,
            4 => short_text(rest)?,
            _ => return None,
        };
        let (commit_timestamp_ms, rest) = rest.split_first_chunk()?;
        let topic_id = match (version, rest) {
            (3, _) | (_, [0, ..]) => None,
            // One tagged field: its tag, its size, and the id.
            (_, [1, 0, 16, id @ ..]) => Some(*id.first_chunk()?),
            _ => return None,
        };
        let leader_epoch = i32::from_be_bytes(*leader_epoch);
        Some(Self {
            offset: i64::from_be_bytes(*offset),
            leader_epoch: (leader_epoch != NONE_I32).then_some(leader_epoch),
            metadata,
            commit_timestamp_ms: i64::from_be_bytes(*commit_timestamp_ms),
            expire_timestamp_ms: None,
            topic_id,
        })
    }

    fn decode_any(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let version = reader.i16()?;
        if version < 0 {
            return Err(DecodeError::Version { version });
        }
        let encoding = if version < Self::LATEST_VERSION { Encoding::Classic } else { Encoding::Flexible };
        let offset = reader.i64()?;
        let leader_epoch = if version >= 3 { reader.i32()? } else { NONE_I32 };
        let metadata = reader.string(encoding)?.unwrap_or_default();
        let commit_timestamp_ms = reader.i64()?;
        let expire_timestamp_ms = if version == 1 { reader.i64()? } else { NONE_I64 };
        Ok(Self {
            offset,
            leader_epoch: (leader_epoch != NONE_I32).then_some(leader_epoch),
            metadata,
            commit_timestamp_ms,
            expire_timestamp_ms: (expire_timestamp_ms != NONE_I64).then_some(expire_timestamp_ms),
            topic_id: if version == Self::LATEST_VERSION { topic_id(&mut reader)? } else { None },
        })
    }

    /// The version that [`OffsetValue::encode`] writes: 1 where an expire timestamp has to be kept (that version
    /// has no leader epoch), 4 where a topic id has, 3 otherwise.
    #[must_use]
    pub fn version(&self) -> i16 {
        match (self.expire_timestamp_ms, self.topic_id) {
            (Some(_), _) => 1,
            (None, Some(_)) => 4,
            (None, None) => 3,
        }
    }

    /// Appends the value. `false`, and `out` as it was, if the metadata has more than 32,767 bytes (in version 4,
    /// more than 2^31 - 1).
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let (start, version) = (out.len(), self.version());
        let encoding = if version < Self::LATEST_VERSION { Encoding::Classic } else { Encoding::Flexible };
        out.extend_from_slice(&version.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        if version >= 3 {
            out.extend_from_slice(&self.leader_epoch.unwrap_or(NONE_I32).to_be_bytes());
        }
        if !put_string(out, encoding, Some(self.metadata)) {
            out.truncate(start);
            return false;
        }
        out.extend_from_slice(&self.commit_timestamp_ms.to_be_bytes());
        if let Some(expire_timestamp_ms) = self.expire_timestamp_ms {
            out.extend_from_slice(&expire_timestamp_ms.to_be_bytes());
        } else if let Some(id) = self.topic_id {
            put_uvarint(out, 1);
            put_uvarint(out, TAG_TOPIC_ID);
            put_uvarint(out, id.len() as u32);
            out.extend_from_slice(&id);
        }
        true
    }
}

fn topic_id(reader: &mut Reader<'_>) -> Result<Option<[u8; 16]>, DecodeError> {
    let mut id = None;
    for _ in 0..reader.uvarint()? {
        let tag = reader.uvarint()?;
        let size = reader.uvarint()? as usize;
        let at = reader.position();
        let content = reader.take(size)?;
        if tag == TAG_TOPIC_ID {
            id = Some(<[u8; 16]>::try_from(content).map_err(|_| DecodeError::TagSize { at })?);
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests;
