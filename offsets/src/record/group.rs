//! The records of the groups themselves: their keys, and the value of a classic group, read without a copy.
//!
//! ```text
//! key:    type i16 (2 classic; 3 to 8 and 16 consumer; 9 to 15 share; 17 to 23 streams) | group string | by type
//! value of type 2:
//!         0  protocol type string | generation i32 | protocol string? | leader string? | members
//!            member: id string | client id string | client host string | session timeout i32
//!                    | subscription bytes | assignment bytes
//!         1  a member has its rebalance timeout i32 before its session timeout
//!         2  current state timestamp i64 (-1 unknown) before the members
//!         3  a member has its instance id string? after its id
//!         4  as 3 with the flexible encoding
//! ```

use super::DecodeError;
use super::commit::{OFFSET_KEY_V0, OFFSET_KEY_V1};
use super::wire::{Encoding, Reader, put_bytes, put_count, put_string};

/// Key type of a classic group.
pub const GROUP_METADATA_KEY: i16 = 2;
/// The highest type of key that is known.
const LATEST_KEY: i16 = 23;

/// The version that [`GroupMetadata::encode`] writes.
const VERSION_WRITTEN: i16 = 3;
/// The highest version that is known, and the first in the flexible encoding.
const LATEST_VERSION: i16 = 4;
const NO_TIMESTAMP: i64 = -1;

/// The key of a record about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupKey<'a> {
    /// What the record says about the group.
    pub key_type: i16,
    /// The group.
    pub group: &'a str,
    /// The rest of the key: by type the id of a member, a regular expression, or nothing.
    pub rest: &'a [u8],
}

impl<'a> GroupKey<'a> {
    /// Reads the key of a record about a group; `None` if `key` is a commit's, or of a type that is not known.
    pub fn decode(key: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(key);
        let key_type = reader.i16()?;
        if matches!(key_type, OFFSET_KEY_V0 | OFFSET_KEY_V1) || !(0..=LATEST_KEY).contains(&key_type) {
            return Ok(None);
        }
        Ok(Some(Self { key_type, group: present(&mut reader, Encoding::Classic)?, rest: reader.rest() }))
    }

    /// The key of a classic group.
    #[must_use]
    pub fn classic(group: &'a str) -> Self {
        Self { key_type: GROUP_METADATA_KEY, group, rest: &[] }
    }

    /// The member or regular expression that is the rest of a key.
    pub(crate) fn text_of(rest: &[u8]) -> Result<&str, DecodeError> {
        present(&mut Reader::new(rest), Encoding::Classic)
    }

    /// Appends the key. `false`, and `out` as it was, if the name has more than 32,767 bytes.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(&self.key_type.to_be_bytes());
        if !put_string(out, Encoding::Classic, Some(self.group)) {
            out.truncate(start);
            return false;
        }
        out.extend_from_slice(self.rest);
        true
    }
}

/// What is stored about a classic group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMetadata<'a> {
    /// What its members speak: "consumer", "connect". Empty for a group that only ever committed.
    pub protocol_type: &'a str,
    /// Counts its rebalances.
    pub generation: i32,
    /// What its members agreed on, such as the name of an assignor.
    pub protocol: Option<&'a str>,
    /// The member that made the assignment.
    pub leader: Option<&'a str>,
    /// When it got into its present state, ms, where the version has it.
    pub current_state_timestamp_ms: Option<i64>,
    /// Its members; none of an Empty group.
    pub members: Vec<GroupMember<'a>>,
}

/// A member of a classic group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupMember<'a> {
    /// Its id.
    pub member_id: &'a str,
    /// The id that it was configured with, if it was.
    pub instance_id: Option<&'a str>,
    /// What its client calls itself.
    pub client_id: &'a str,
    /// Where it is, with the slash before it that Kafka writes.
    pub client_host: &'a str,
    /// How long it has to join again, ms. Version 0 has none, and its session timeout counts.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent, ms.
    pub session_timeout_ms: i32,
    /// In the form of the group's protocol: [`subscribed_topics`] reads a consumer's.
    pub subscription: &'a [u8],
    /// In the form of the group's protocol: [`assigned_partitions`] reads a consumer's.
    pub assignment: &'a [u8],
}

impl<'a> GroupMetadata<'a> {
    /// Reads the value of a classic group. A version above 4 is read as 4; what else it holds is left out.
    pub fn decode(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut members = Vec::new();
        let head = Self::read(value, |member| members.push(member))?;
        Ok(Self { members, ..head })
    }

    /// Whether [`decode`](Self::decode) can read it, without the memory that its members take.
    pub fn check(value: &'a [u8]) -> Result<(), DecodeError> {
        Self::read(value, |_| {}).map(|_| ())
    }

    /// Reads all of it, and gives everything but the members, of which `each` is told.
    fn read(value: &'a [u8], mut each: impl FnMut(GroupMember<'a>)) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let version = reader.i16()?;
        if version < 0 {
            return Err(DecodeError::Version { version });
        }
        let encoding = if version < LATEST_VERSION { Encoding::Classic } else { Encoding::Flexible };
        let protocol_type = reader.string(encoding)?.unwrap_or_default();
        let generation = reader.i32()?;
        let protocol = reader.string(encoding)?;
        let leader = reader.string(encoding)?;
        let timestamp = if version >= 2 { reader.i64()? } else { NO_TIMESTAMP };
        let count = reader.count(encoding)?.unwrap_or(0);
        for _ in 0..count {
            each(GroupMember::decode(&mut reader, version, encoding)?);
        }
        let current_state_timestamp_ms = (timestamp >= 0).then_some(timestamp);
        Ok(Self { protocol_type, generation, protocol, leader, current_state_timestamp_ms, members: Vec::new() })
    }

    /// Appends the value, in version 3. `false`, and `out` as it was, if a text has more than 32,767 bytes.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let written = self.try_encode(out).is_some();
        if !written {
            out.truncate(start);
        }
        written
    }

    fn try_encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let classic = Encoding::Classic;
        out.extend_from_slice(&VERSION_WRITTEN.to_be_bytes());
        put_string(out, classic, Some(self.protocol_type)).then_some(())?;
        out.extend_from_slice(&self.generation.to_be_bytes());
        put_string(out, classic, self.protocol).then_some(())?;
        put_string(out, classic, self.leader).then_some(())?;
        out.extend_from_slice(&self.current_state_timestamp_ms.unwrap_or(NO_TIMESTAMP).to_be_bytes());
        put_count(out, classic, Some(self.members.len())).then_some(())?;
        self.members.iter().try_for_each(|member| member.encode(out))
    }
}

impl<'a> GroupMember<'a> {
    fn decode(reader: &mut Reader<'a>, version: i16, encoding: Encoding) -> Result<Self, DecodeError> {
        let member_id = reader.string(encoding)?.unwrap_or_default();
        let instance_id = if version >= 3 { reader.string(encoding)? } else { None };
        let client_id = reader.string(encoding)?.unwrap_or_default();
        let client_host = reader.string(encoding)?.unwrap_or_default();
        let rebalance_timeout = if version >= 1 { Some(reader.i32()?) } else { None };
        let session_timeout_ms = reader.i32()?;
        let subscription = reader.bytes(encoding)?.unwrap_or_default();
        let assignment = reader.bytes(encoding)?.unwrap_or_default();
        if encoding == Encoding::Flexible {
            skip_tags(reader)?;
        }
        let rebalance_timeout_ms = rebalance_timeout.unwrap_or(session_timeout_ms);
        Ok(Self { member_id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms, subscription, assignment })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let classic = Encoding::Classic;
        put_string(out, classic, Some(self.member_id)).then_some(())?;
        put_string(out, classic, self.instance_id).then_some(())?;
        put_string(out, classic, Some(self.client_id)).then_some(())?;
        put_string(out, classic, Some(self.client_host)).then_some(())?;
        out.extend_from_slice(&self.rebalance_timeout_ms.to_be_bytes());
        out.extend_from_slice(&self.session_timeout_ms.to_be_bytes());
        put_bytes(out, classic, Some(self.subscription)).then_some(())?;
        put_bytes(out, classic, Some(self.assignment)).then_some(())
    }
}

/// The topics of a consumer's subscription, of any version: all begin alike, and Kafka reads no more of them either
/// when it asks for topics.
pub fn subscribed_topics(subscription: &[u8]) -> Result<Vec<&str>, DecodeError> {
    let mut reader = versioned(subscription)?;
    let count = reader.count(Encoding::Classic)?.unwrap_or(0);
    let topics = (0..count).map(|_| present(&mut reader, Encoding::Classic)).collect::<Result<_, _>>()?;
    reader.bytes(Encoding::Classic)?;
    Ok(topics)
}

/// The partitions of a consumer's assignment, of any version, by topic. An empty assignment is that of a member that
/// has none yet.
pub fn assigned_partitions(assignment: &[u8]) -> Result<Vec<(&str, Vec<i32>)>, DecodeError> {
    if assignment.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = versioned(assignment)?;
    let count = reader.count(Encoding::Classic)?.unwrap_or(0);
    (0..count)
        .map(|_| {
            let topic = present(&mut reader, Encoding::Classic)?;
            let count = reader.count(Encoding::Classic)?.unwrap_or(0);
            Ok((topic, (0..count).map(|_| reader.i32()).collect::<Result<_, _>>()?))
        })
        .collect()
}

fn versioned(blob: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut reader = Reader::new(blob);
    let version = reader.i16()?;
    if version < 0 { Err(DecodeError::Version { version }) } else { Ok(reader) }
}

fn present<'a>(reader: &mut Reader<'a>, encoding: Encoding) -> Result<&'a str, DecodeError> {
    let at = reader.position();
    reader.string(encoding)?.ok_or(DecodeError::Null { at })
}

fn skip_tags(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    for _ in 0..reader.uvarint()? {
        reader.uvarint()?;
        let size = reader.uvarint()? as usize;
        reader.take(size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
