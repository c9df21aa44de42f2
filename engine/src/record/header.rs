//! Entry headers: the fields that can be read without touching the records.
//!
//! Layout (big-endian), from Kafka's format; byte 16 holds the magic in every format:
//! ```text
//! v2:     0 baseOffset i64 | 8 length i32 | 12 leaderEpoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16
//!         23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64 | 43 producerId i64
//!         51 producerEpoch i16 | 53 baseSequence i32 | 57 count i32 | 61 records
//! v0, v1: 0 offset i64 | 8 length i32 | 12 crc u32 | 16 magic i8 | 17 attributes i8 | (v1) 18 timestamp i64 | key, value
//! ```
//! The checksum covers neither the first 21 bytes of a v2 batch nor the first 16 of the older formats.

use super::DecodeError;
use super::checksum::crc32c;

/// Offset field and length field, before the bytes that the length counts.
pub const ENTRY_PREFIX_BYTES: usize = 12;
/// Size of a v2 header, and of a v2 batch without records.
pub const HEADER_V2_BYTES: usize = 61;
/// Where the magic byte stands in every format.
pub const MAGIC_POSITION: usize = 16;
/// A file is scanned for entries while more than this many bytes are left.
pub const SCAN_PEEK_BYTES: usize = 17;

const MESSAGE_V0_BYTES: usize = 26;
const MESSAGE_V1_BYTES: usize = 34;
const LENGTH_POSITION: usize = 8;
const LENGTH_MIN: i32 = 14;
const LENGTH_MIN_V2: i32 = (HEADER_V2_BYTES - ENTRY_PREFIX_BYTES) as i32;
const CRC_START_V2: usize = 21;
const CRC_START_LEGACY: usize = 16;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not compressed.
    None,
    /// One gzip member.
    Gzip,
    /// Snappy blocks in xerial's framing.
    Snappy,
    /// An LZ4 frame with independent blocks.
    Lz4,
    /// Zstandard frames; in v2 only.
    Zstd,
}

impl Codec {
    /// The codec of an attributes field's low three bits.
    pub fn from_bits(bits: u8) -> Result<Self, DecodeError> {
        Ok(match bits & 7 {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            other => return Err(DecodeError::UnknownCodec(other)),
        })
    }

    /// Its three bits in an attributes field.
    #[must_use]
    pub fn bits(self) -> u8 {
        self as u8
    }

    /// Kafka's name of it: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// What the timestamps of a batch mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// Format v0 has none.
    None,
    /// Each record carries the time that its producer gave it.
    Create,
    /// One time for the whole batch: when it was appended (`max_timestamp`).
    LogAppend,
}

impl TimestampType {
    /// Kafka's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NoTimestampType",
            Self::Create => "CreateTime",
            Self::LogAppend => "LogAppendTime",
        }
    }
}

/// The attribute bits of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub u16);

impl Attributes {
    /// The codec's three bits.
    const CODEC: u16 = 0x07;
    /// Timestamps are append times.
    pub const LOG_APPEND_TIME: u16 = 0x08;
    /// Part of a transaction.
    pub const TRANSACTIONAL: u16 = 0x10;
    /// Holds control records, never shown to applications.
    pub const CONTROL: u16 = 0x20;
    /// The base timestamp is a delete horizon.
    pub const DELETE_HORIZON: u16 = 0x40;

    /// The codec, or the error for the three unused values.
    pub fn codec(self) -> Result<Codec, DecodeError> {
        Codec::from_bits((self.0 & Self::CODEC) as u8)
    }

    /// Whether all bits of `mask` are set.
    #[must_use]
    #[inline]
    pub fn has(self, mask: u16) -> bool {
        self.0 & mask == mask
    }
}

/// The header of one entry. Fields that a format lacks hold -1 (`count` and all after `max_timestamp` in v0
/// and v1; `max_timestamp` in v0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// v2: offset of the first record that was ever in the batch. v0, v1: as `last_offset`.
    pub base_offset: u64,
    /// Offset of the last record that was ever in the batch. The next batch starts above it.
    pub last_offset: u64,
    /// Bytes of the whole entry, prefix included.
    pub size: u32,
    /// Epoch of the leader that wrote it; -1 unknown.
    pub leader_epoch: i32,
    /// Format: 0, 1 or 2.
    pub magic: u8,
    /// Checksum as stored: CRC-32C in v2, CRC-32 before.
    pub crc: u32,
    /// Attribute bits as stored.
    pub attributes: Attributes,
    /// Base of the records' timestamp deltas, or the delete horizon; ms.
    pub base_timestamp: i64,
    /// Largest timestamp, ms.
    pub max_timestamp: i64,
    /// Producer; -1 none.
    pub producer_id: i64,
    /// Its epoch; -1 none.
    pub producer_epoch: i16,
    /// Sequence number of the first record; -1 none.
    pub base_sequence: i32,
    /// Records in the batch; -1 where only decoding tells (v0, v1).
    pub count: i32,
}

impl BatchHeader {
    /// Reads the header of the entry that `bytes` starts with. `bytes` need not hold the whole entry, only its
    /// header; with less than that, [`DecodeError::Truncated`] says how much is needed. The checksum is not
    /// looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        if let Some(header) = Self::parse_v2(bytes) {
            return Ok(header);
        }
        let available = bytes.len() as u64;
        if bytes.len() < SCAN_PEEK_BYTES {
            return Err(DecodeError::Truncated { needed: SCAN_PEEK_BYTES as u64, available });
        }
        let length = i32_at(bytes, LENGTH_POSITION);
        if length < LENGTH_MIN {
            return Err(DecodeError::Length { length, minimum: LENGTH_MIN });
        }
        let magic = bytes[MAGIC_POSITION];
        let minimum = match magic {
            0 => MESSAGE_V0_BYTES,
            1 => MESSAGE_V1_BYTES,
            2 => HEADER_V2_BYTES,
            other => return Err(DecodeError::Magic(other)),
        };
        let least = (minimum - ENTRY_PREFIX_BYTES) as i32;
        if length < least {
            return Err(DecodeError::Length { length, minimum: least });
        }
        if bytes.len() < minimum {
            return Err(DecodeError::Truncated { needed: minimum as u64, available });
        }
        let size = length.unsigned_abs() + ENTRY_PREFIX_BYTES as u32;
        if magic == 2 { Err(fault_v2(bytes)) } else { Self::parse_legacy(bytes, size, magic) }
    }

    /// The header of the v2 batch that `bytes` starts with; `None` where [`BatchHeader::parse`] gives something else or says
    /// what is wrong. For loops over many batches, nearly all of them sound: it is inlined, and moves no header about.
    #[inline(always)]
    pub fn parse_v2(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; HEADER_V2_BYTES] = bytes.first_chunk()?;
        let length = i32_at(head, LENGTH_POSITION);
        let base = i64_at(head, 0);
        let delta = i32_at(head, 23);
        let count = i32_at(head, 57);
        // One past the last offset must be one, too.
        let next = base.wrapping_add(i64::from(delta)).wrapping_add(1);
        if head[MAGIC_POSITION] != 2 || length < LENGTH_MIN_V2 || base < 0 || delta < 0 || count < 0 || next <= 0 {
            return None;
        }
        Some(Self {
            base_offset: base.cast_unsigned(),
            last_offset: (next - 1).cast_unsigned(),
            size: length.cast_unsigned() + ENTRY_PREFIX_BYTES as u32,
            leader_epoch: i32_at(head, 12),
            magic: 2,
            crc: u32_at(head, 17),
            attributes: Attributes(u16::from_be_bytes([head[21], head[22]])),
            base_timestamp: i64_at(head, 27),
            max_timestamp: i64_at(head, 35),
            producer_id: i64_at(head, 43),
            producer_epoch: i16::from_be_bytes([head[51], head[52]]),
            base_sequence: i32_at(head, 53),
            count,
        })
    }

    /// The header that `bytes` would start with if its magic were 2. The checksum leaves the magic out, so it tells a batch
    /// of a newer format, or with a flipped bit there, from noise.
    pub(crate) fn parse_as_v2(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut head = [0; HEADER_V2_BYTES];
        let needed = head.len() as u64;
        head.copy_from_slice(bytes.get(..HEADER_V2_BYTES).ok_or(DecodeError::Truncated { needed, available: bytes.len() as u64 })?);
        head[MAGIC_POSITION] = 2;
        Self::parse(&head)
    }

    fn parse_legacy(bytes: &[u8], size: u32, magic: u8) -> Result<Self, DecodeError> {
        let value = i64_at(bytes, 0);
        let offset = non_negative("offset", value)?;
        if offset >= i64::MAX as u64 {
            return Err(DecodeError::Field { field: "offset", value });
        }
        let timestamp = if magic == 0 { -1 } else { i64_at(bytes, 18) };
        Ok(Self {
            base_offset: offset,
            last_offset: offset,
            size,
            leader_epoch: -1,
            magic,
            crc: u32_at(bytes, 12),
            attributes: Attributes(u16::from(bytes[17])),
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count: -1,
        })
    }

    /// Compares the stored checksum with the bytes of the whole entry (`bytes.len() == self.size`).
    #[inline(always)]
    pub fn verify_crc(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        if bytes.len() as u64 != u64::from(self.size) {
            return Err(DecodeError::Truncated { needed: u64::from(self.size), available: bytes.len() as u64 });
        }
        let computed = if self.magic == 2 { crc32c(&bytes[CRC_START_V2..]) } else { crc32fast::hash(&bytes[CRC_START_LEGACY..]) };
        if computed == self.crc { Ok(()) } else { Err(DecodeError::Checksum { stored: self.crc, computed }) }
    }

    /// The codec of the records.
    pub fn codec(&self) -> Result<Codec, DecodeError> {
        match self.attributes.codec()? {
            Codec::Zstd if self.magic < 2 => Err(DecodeError::UnknownCodec(Codec::Zstd.bits())),
            codec => Ok(codec),
        }
    }

    /// Whether it is of a v2 batch that is not compressed.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.magic == 2 && self.attributes.0 & Attributes::CODEC == 0
    }

    /// What the timestamps mean.
    #[must_use]
    #[inline]
    pub fn timestamp_type(&self) -> TimestampType {
        match self.magic {
            0 => TimestampType::None,
            _ if self.attributes.has(Attributes::LOG_APPEND_TIME) => TimestampType::LogAppend,
            _ => TimestampType::Create,
        }
    }

    /// Whether the batch is part of a transaction.
    #[must_use]
    #[inline]
    pub fn is_transactional(&self) -> bool {
        self.magic == 2 && self.attributes.has(Attributes::TRANSACTIONAL)
    }

    /// Whether the batch holds control records.
    #[must_use]
    #[inline]
    pub fn is_control(&self) -> bool {
        self.magic == 2 && self.attributes.has(Attributes::CONTROL)
    }

    /// When the tombstones of this batch may go, ms; `None` before a first clean has stamped it.
    #[must_use]
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.magic == 2 && self.attributes.has(Attributes::DELETE_HORIZON)).then_some(self.base_timestamp)
    }

    /// Whether a producer wrote it with an id, so that its sequence numbers count.
    #[must_use]
    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The offset after this batch.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.last_offset + 1
    }

    /// Sequence number of the last record, wrapping from 2^31 - 1 to 0; -1 without sequence.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let span = (self.last_offset - self.base_offset) % (1 << 31);
        ((self.base_sequence as u64 + span) % (1 << 31)) as i32
    }
}

/// Which field of a v2 header is wrong.
fn fault_v2(bytes: &[u8]) -> DecodeError {
    let base = i64_at(bytes, 0);
    let fields = [("baseOffset", base), ("lastOffsetDelta", i32_at(bytes, 23).into()), ("recordsCount", i32_at(bytes, 57).into())];
    let (field, value) = fields.into_iter().find(|(_, value)| *value < 0).unwrap_or(("baseOffset", base));
    DecodeError::Field { field, value }
}

fn non_negative(field: &'static str, value: i64) -> Result<u64, DecodeError> {
    u64::try_from(value).map_err(|_| DecodeError::Field { field, value })
}

// The callers have checked the length of `bytes` against the header's size.
#[inline]
fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut buffer = [0; 8];
    buffer.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(buffer)
}

#[inline]
fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut buffer = [0; 4];
    buffer.copy_from_slice(&bytes[at..at + 4]);
    i32::from_be_bytes(buffer)
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    i32_at(bytes, at).cast_unsigned()
}
