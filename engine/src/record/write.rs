//! Writing v2 batches.

use std::fmt;

use super::checksum::crc32c;
use super::codec::Compressor;
use super::types::{Header, RecordRef};
use super::varint;
use super::{Attributes, BatchHeader, Codec, DecodeError, ENTRY_PREFIX_BYTES, EncodeError, HEADER_V2_BYTES, NONE, TimestampType};

const CRC_POSITION: usize = 17;
const CRC_START: usize = 21;
/// What the length field can say, less the part of the header that it counts.
const AREA_BYTES_MAX: usize = i32::MAX as usize - (HEADER_V2_BYTES - ENTRY_PREFIX_BYTES);
const NULL: i64 = -1;

/// What a batch is to be, besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSpec {
    /// Base of the offsets; no record is below it.
    pub base_offset: u64,
    /// Epoch of the leader that writes it; -1 unknown.
    pub leader_epoch: i32,
    /// How its records are compressed.
    pub codec: Codec,
    /// How hard; `None` is Kafka's default. LZ4 has only the default way, snappy no levels.
    pub level: Option<i32>,
    /// What its timestamps mean; [`TimestampType::None`] writes as [`TimestampType::Create`].
    pub timestamp_type: TimestampType,
    /// Producer; -1 none.
    pub producer_id: i64,
    /// Its epoch; -1 none.
    pub producer_epoch: i16,
    /// Sequence number at the base offset; -1 none.
    pub base_sequence: i32,
    /// Part of a transaction.
    pub transactional: bool,
    /// Holds control records.
    pub control: bool,
    /// When its tombstones may go, ms; takes the place of the base timestamp.
    pub delete_horizon_ms: Option<i64>,
    /// Last offset that it stands for; `None` is that of the last record.
    pub last_offset: Option<u64>,
    /// Largest timestamp, ms; `None` is that of the records.
    pub max_timestamp: Option<i64>,
}

impl Default for BatchSpec {
    fn default() -> Self {
        Self {
            base_offset: 0,
            leader_epoch: -1,
            codec: Codec::None,
            level: None,
            timestamp_type: TimestampType::Create,
            producer_id: NONE,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
            delete_horizon_ms: None,
            last_offset: None,
            max_timestamp: None,
        }
    }
}

impl BatchSpec {
    /// For a batch that takes the place of the one with this header, with some of its records: all is kept but
    /// the largest timestamp, which is that of the records again, unless it is an append time. For a v0 or v1
    /// entry, the caller sets the base offset to that of the first record, and the last is that of the last.
    pub fn like(header: &BatchHeader) -> Result<Self, DecodeError> {
        let timestamp_type = header.timestamp_type();
        Ok(Self {
            base_offset: header.base_offset,
            leader_epoch: header.leader_epoch,
            codec: header.codec()?,
            level: None,
            timestamp_type: if header.magic == 0 { TimestampType::Create } else { timestamp_type },
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            transactional: header.is_transactional(),
            control: header.is_control(),
            delete_horizon_ms: header.delete_horizon_ms(),
            last_offset: (header.magic == 2).then_some(header.last_offset),
            max_timestamp: (timestamp_type == TimestampType::LogAppend).then_some(header.max_timestamp),
        })
    }

    fn attributes(&self) -> Attributes {
        let flag = |set: bool, mask| if set { mask } else { 0 };
        Attributes(
            u16::from(self.codec.bits())
                | flag(self.timestamp_type == TimestampType::LogAppend, Attributes::LOG_APPEND_TIME)
                | flag(self.transactional, Attributes::TRANSACTIONAL)
                | flag(self.control, Attributes::CONTROL)
                | flag(self.delete_horizon_ms.is_some(), Attributes::DELETE_HORIZON),
        )
    }
}

/// Writes batches one after the other with the same buffer and codec contexts.
pub struct BatchWriter {
    spec: BatchSpec,
    area: Vec<u8>,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
    last_offset: Option<u64>,
    compressor: Compressor,
}

impl Default for BatchWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchWriter {
    /// A writer at the start of a batch with the default [`BatchSpec`].
    #[must_use]
    pub fn new() -> Self {
        let spec = BatchSpec::default();
        Self {
            spec,
            area: Vec::new(),
            count: 0,
            base_timestamp: NONE,
            max_timestamp: NONE,
            last_offset: None,
            compressor: Compressor::default(),
        }
    }

    /// Starts a batch. Records of a batch that was not finished are dropped.
    pub fn begin(&mut self, spec: BatchSpec) {
        self.base_timestamp = spec.delete_horizon_ms.unwrap_or(NONE);
        self.max_timestamp = NONE;
        self.last_offset = None;
        self.count = 0;
        self.area.clear();
        self.spec = spec;
    }

    /// Adds a record. After an error, the batch is as before.
    ///
    /// `timestamp` is in ms, -1 for none.
    pub fn push(
        &mut self,
        offset: u64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> Result<(), EncodeError> {
        if timestamp < NONE {
            return Err(EncodeError::Timestamp(timestamp));
        }
        let headers_bytes: usize =
            headers.iter().map(|header| nullable_bytes(Some(header.key.as_bytes())) + nullable_bytes(header.value.as_deref())).sum();
        let count = headers.len() as i64;
        self.prefix(offset, timestamp, nullable_bytes(key) + nullable_bytes(value) + varint::size_of(count) + headers_bytes)?;
        put_nullable(&mut self.area, key);
        put_nullable(&mut self.area, value);
        varint::put(&mut self.area, count);
        for header in headers {
            put_nullable(&mut self.area, Some(header.key.as_bytes()));
            put_nullable(&mut self.area, header.value.as_deref());
        }
        Ok(())
    }

    /// Adds a copy of a decoded record, offset and timestamp included; a v2 body is copied as it is. After an
    /// error, the batch is as before.
    #[inline]
    pub fn push_ref(&mut self, record: &RecordRef<'_>) -> Result<(), EncodeError> {
        if !record.body.is_empty() {
            self.prefix(record.offset, record.timestamp, record.body.len())?;
            self.area.extend_from_slice(record.body);
            return Ok(());
        }
        let count = record.headers.len() as i64;
        let headers = record.headers.as_bytes();
        let body_bytes = nullable_bytes(record.key) + nullable_bytes(record.value) + varint::size_of(count) + headers.len();
        self.prefix(record.offset, record.timestamp, body_bytes)?;
        put_nullable(&mut self.area, record.key);
        put_nullable(&mut self.area, record.value);
        varint::put(&mut self.area, count);
        self.area.extend_from_slice(headers);
        Ok(())
    }

    /// Records pushed since the batch was begun.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether none was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that the batch would take without compression.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        HEADER_V2_BYTES + self.area.len()
    }

    /// Appends the whole batch to `out`, which is left as it was after an error. The next batch starts with
    /// [`begin`](Self::begin).
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<BatchHeader, EncodeError> {
        let last_pushed = self.last_offset.ok_or(EncodeError::Empty)?;
        let last_offset = self.spec.last_offset.unwrap_or(last_pushed);
        if last_offset < last_pushed {
            return Err(EncodeError::Offset { offset: last_offset, least: last_pushed });
        }
        check_span(self.spec.base_offset, last_offset)?;

        let start = out.len();
        out.resize(start + HEADER_V2_BYTES, 0);
        let compressed = self.compressor.compress(self.spec.codec, self.spec.level, &self.area, out);
        let size = out.len() - start;
        if let Err(e) = compressed.and(check_area(size - HEADER_V2_BYTES)) {
            out.truncate(start);
            return Err(e);
        }
        let header = BatchHeader {
            base_offset: self.spec.base_offset,
            last_offset,
            // The area was checked against the length field, which is narrower.
            size: size as u32,
            leader_epoch: self.spec.leader_epoch,
            magic: 2,
            crc: 0,
            attributes: self.spec.attributes(),
            base_timestamp: self.base_timestamp,
            max_timestamp: self.spec.max_timestamp.unwrap_or(self.max_timestamp),
            producer_id: self.spec.producer_id,
            producer_epoch: self.spec.producer_epoch,
            base_sequence: self.spec.base_sequence,
            count: self.count as i32,
        };
        Ok(seal(header, &mut out[start..]))
    }

    /// Writes what stands before the body of a record, once all is known to fit.
    #[inline]
    fn prefix(&mut self, offset: u64, timestamp: i64, body_bytes: usize) -> Result<(), EncodeError> {
        let base = self.spec.base_offset;
        let least = self.last_offset.map_or(base, |last| last + 1);
        if offset < least {
            return Err(EncodeError::Offset { offset, least });
        }
        check_span(base, offset)?;
        // Deltas wrap as the reader's sum does.
        let base_timestamp = if self.count == 0 && self.spec.delete_horizon_ms.is_none() { timestamp } else { self.base_timestamp };
        let timestamp_delta = timestamp.wrapping_sub(base_timestamp);
        let offset_delta = (offset - base) as i64;
        let record_bytes = 1 + varint::size_of(timestamp_delta) + varint::size_of(offset_delta) + body_bytes;
        check_area(self.area.len() + varint::size_of(record_bytes as i64) + record_bytes)?;

        varint::put(&mut self.area, record_bytes as i64);
        self.area.push(0);
        varint::put(&mut self.area, timestamp_delta);
        varint::put(&mut self.area, offset_delta);
        self.base_timestamp = base_timestamp;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.last_offset = Some(offset);
        self.count += 1;
        Ok(())
    }
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").field("spec", &self.spec).field("count", &self.count).finish_non_exhaustive()
    }
}

/// Appends to `out` the header-only batch that stands for the one with this header once all its records are gone:
/// offsets, producer, timestamp type and largest timestamp stay.
pub fn write_empty(header: &BatchHeader, out: &mut Vec<u8>) {
    const KEPT: u16 = Attributes::LOG_APPEND_TIME | Attributes::TRANSACTIONAL | Attributes::CONTROL;
    let start = out.len();
    out.resize(start + HEADER_V2_BYTES, 0);
    let empty = BatchHeader {
        size: HEADER_V2_BYTES as u32,
        magic: 2,
        attributes: Attributes(header.attributes.0 & KEPT),
        base_timestamp: NONE,
        count: 0,
        ..*header
    };
    seal(empty, &mut out[start..]);
}

/// Writes `header` over the first bytes of `batch`, with the checksum of the whole.
fn seal(mut header: BatchHeader, batch: &mut [u8]) -> BatchHeader {
    let delta = (header.last_offset - header.base_offset) as i32;
    let length = header.size - ENTRY_PREFIX_BYTES as u32;
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&header.base_offset.to_be_bytes());
    put(&length.to_be_bytes());
    put(&header.leader_epoch.to_be_bytes());
    put(&[header.magic]);
    put(&[0; 4]);
    put(&header.attributes.0.to_be_bytes());
    put(&delta.to_be_bytes());
    put(&header.base_timestamp.to_be_bytes());
    put(&header.max_timestamp.to_be_bytes());
    put(&header.producer_id.to_be_bytes());
    put(&header.producer_epoch.to_be_bytes());
    put(&header.base_sequence.to_be_bytes());
    put(&header.count.to_be_bytes());
    header.crc = write_crc(batch);
    header
}

/// Sets the checksum of a whole v2 batch to that of its bytes.
pub(super) fn write_crc(batch: &mut [u8]) -> u32 {
    let crc = crc32c(&batch[CRC_START..]);
    batch[CRC_POSITION..CRC_START].copy_from_slice(&crc.to_be_bytes());
    crc
}

#[inline]
fn check_span(base: u64, offset: u64) -> Result<(), EncodeError> {
    let reachable = offset.checked_sub(base).is_some_and(|delta| delta <= i32::MAX as u64) && offset < i64::MAX as u64;
    if reachable { Ok(()) } else { Err(EncodeError::OffsetSpan { offset, base }) }
}

#[inline]
fn check_area(bytes: usize) -> Result<(), EncodeError> {
    if bytes <= AREA_BYTES_MAX { Ok(()) } else { Err(EncodeError::TooLarge((HEADER_V2_BYTES + bytes) as u64)) }
}

#[inline]
fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint::size_of(bytes.len() as i64) + bytes.len())
}

#[inline]
fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::put(out, NULL),
        Some(bytes) => {
            varint::put(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
