//! From the bytes of one entry to its records.
//!
//! A [`Decoder`] lends records out of the entry or of its own buffer and allocates nothing for uncompressed
//! entries; [`decode_owned`] gives records that live on by themselves. Both check all that Kafka's decoder
//! checks (exact consumption, counts, lengths), and that offsets rise inside the entry and stay in its range.
//! Neither looks at the checksum: [`BatchHeader::verify_crc`] does.

use std::fmt;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::codec::{Decompressor, Output};
use super::legacy::{LegacyCursor, wrapped_value};
use super::types::{RawHeaders, RecordRef, StoredRecord};
use super::varint::Reader;
use super::{BatchHeader, Codec, DecodeError, HEADER_V2_BYTES, TimestampType};

/// Decodes entries one after the other with the same buffer and codec contexts.
pub struct Decoder {
    decompressor: Decompressor,
    output: Output,
}

impl Decoder {
    /// A decoder for entries whose records take at most `limit_bytes` when decompressed. Its buffer grows with
    /// what is really decompressed and keeps the size of the largest.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { decompressor: Decompressor::default(), output: Output::new(limit_bytes) }
    }

    /// The records of `entry`, which is exactly one whole entry of any format.
    pub fn records<'a>(&'a mut self, entry: &'a [u8]) -> Result<Records<'a>, DecodeError> {
        let header = whole_entry(entry)?;
        let data = match self.decompress(&header, entry)? {
            Place::Entry => plain_area(&header, entry),
            Place::Output => self.output.filled(),
        };
        Ok(Records { cursor: Cursor::new(&header, data)?, header, data })
    }

    /// Calls `visit` with each record of `entry`, a v2 batch whose header is `header`, in order: the records and the checks of
    /// [`Decoder::records`], for those who have the header already and leave no record out. Ends at the first error, its own
    /// or the visitor's.
    #[inline(always)]
    pub fn visit<E: From<DecodeError>>(
        &mut self,
        header: &BatchHeader,
        entry: &[u8],
        visit: impl FnMut(&RecordRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.visit_some(header, entry, |_| true, visit)
    }

    /// As [`Decoder::visit`], but only of the records that are `wanted`, by their place in the entry; the others are passed
    /// over without a look into them.
    #[inline(always)]
    pub fn visit_some<E: From<DecodeError>>(
        &mut self,
        header: &BatchHeader,
        entry: &[u8],
        wanted: impl Fn(usize) -> bool,
        mut visit: impl FnMut(&RecordRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let area = match self.decompress_v2(header, entry)? {
            Place::Entry => plain_area(header, entry),
            Place::Output => self.output.filled(),
        };
        visit_area(header, area, wanted, |record, _| visit(record))
    }

    /// As [`Decoder::visit`], for a batch whose records are compressed, and keeps what it decompresses until
    /// [`Decoder::exchange_kept`]. `visit` is told where the body of each record will be in that.
    #[inline]
    pub fn visit_kept<E: From<DecodeError>>(
        &mut self,
        header: &BatchHeader,
        entry: &[u8],
        mut visit: impl FnMut(&RecordRef<'_>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.decompress_v2(header, entry)? {
            // Without records: there is nothing to keep.
            Place::Entry => return visit_area(header, plain_area(header, entry), |_| true, |record, at| visit(record, at)),
            Place::Output => {}
        }
        let start = self.output.start();
        visit_area(header, self.output.filled(), |_| true, |record, at| visit(record, start + at))?;
        self.output.keep();
        Ok(())
    }

    /// Bytes kept so far.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.output.start()
    }

    /// Gives what was kept in the place of `buffer`, which is used for what is decompressed next. From here on nothing is kept.
    pub fn exchange_kept(&mut self, buffer: &mut Vec<u8>) {
        self.output.exchange(buffer);
    }

    #[inline(always)]
    fn decompress_v2(&mut self, header: &BatchHeader, entry: &[u8]) -> Result<Place, DecodeError> {
        if header.magic < 2 {
            return Err(DecodeError::Magic(header.magic));
        }
        check_size(header, entry)?;
        self.decompress(header, entry)
    }

    /// The records of `entry`, which is exactly one whole entry of any format, as views that share its bytes, or
    /// its decompressed bytes.
    pub fn decode_owned(&mut self, entry: Bytes) -> Result<OwnedRecords, DecodeError> {
        let header = whole_entry(&entry)?;
        let data = match self.decompress(&header, &entry)? {
            Place::Entry if header.magic == 2 => entry.slice(HEADER_V2_BYTES..),
            Place::Entry => entry,
            Place::Output => copied(self.output.filled())?,
        };
        Ok(OwnedRecords { cursor: Cursor::new(&header, &data)?, header, data })
    }

    /// The offset of the first record of `entry`. In v2 that of the first that was ever in it, straight from the
    /// header; for the compressed message sets of v0 and v1 only decoding tells.
    pub fn base_offset(&mut self, entry: &[u8]) -> Result<u64, DecodeError> {
        let header = whole_entry(entry)?;
        if header.magic == 2 || header.codec()? == Codec::None {
            return Ok(header.base_offset);
        }
        match self.records(entry)?.next() {
            Some(first) => Ok(first?.offset),
            None => Err(DecodeError::MessageSet("no messages")),
        }
    }

    #[inline(always)]
    fn decompress(&mut self, header: &BatchHeader, entry: &[u8]) -> Result<Place, DecodeError> {
        // Most are not, and pay for nothing here: not even for a header in memory, of which the others get a copy.
        if header.is_plain() { Ok(Place::Entry) } else { self.decompress_some(&{ *header }, entry) }
    }

    fn decompress_some(&mut self, header: &BatchHeader, entry: &[u8]) -> Result<Place, DecodeError> {
        let codec = header.codec()?;
        let compressed = match header.magic {
            _ if codec == Codec::None => return Ok(Place::Entry),
            // An area without records is never compressed, whatever the codec bits still say.
            2 if header.count == 0 => return Ok(Place::Entry),
            2 => &entry[HEADER_V2_BYTES..],
            _ => wrapped_value(entry)?,
        };
        self.decompressor.decompress(codec, header.magic, compressed, &mut self.output)?;
        Ok(Place::Output)
    }
}

/// Calls `visit` with each record of a v2 batch that is `wanted`, by its place, and where in `area` its body begins.
// Inlined, so that what is done at each record has its place in the loop.
#[inline(always)]
fn visit_area<E: From<DecodeError>>(
    header: &BatchHeader,
    area: &[u8],
    wanted: impl Fn(usize) -> bool,
    mut visit: impl FnMut(&RecordRef<'_>, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut cursor = BatchCursor::new(header);
    let mut reader = Reader::new(area);
    for index in 0..cursor.count {
        let broken = |reason| DecodeError::Record { index, reason };
        if wanted(index as usize) {
            let record = cursor.record(&mut reader).map_err(broken)?;
            visit(&record, area.len() - reader.rest().len() - record.body.len())?;
        } else {
            whole_record(&mut reader).map_err(broken)?;
        }
    }
    match reader.rest().len() {
        0 => Ok(()),
        left => Err(DecodeError::LeftOver(left as u64).into()),
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// The records of `entry` (exactly one whole entry of any format; at most `limit_bytes` when decompressed) as views
/// that share its bytes, or its decompressed bytes. For many compressed entries, [`Decoder::decode_owned`] reuses
/// the codec contexts.
pub fn decode_owned(entry: Bytes, limit_bytes: usize) -> Result<OwnedRecords, DecodeError> {
    Decoder::new(limit_bytes).decode_owned(entry)
}

/// As [`Decoder::base_offset`], for one entry.
pub fn base_offset_of(entry: &[u8], limit_bytes: usize) -> Result<u64, DecodeError> {
    Decoder::new(limit_bytes).base_offset(entry)
}

fn copied(bytes: &[u8]) -> Result<Bytes, DecodeError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| DecodeError::OutOfMemory { bytes: bytes.len() as u64 })?;
    copy.extend_from_slice(bytes);
    Ok(copy.into())
}

/// Where the records of an entry are.
enum Place {
    Entry,
    Output,
}

/// The header of an entry that is there as a whole, with nothing behind it.
fn whole_entry(entry: &[u8]) -> Result<BatchHeader, DecodeError> {
    let header = BatchHeader::parse(entry)?;
    check_size(&header, entry)?;
    Ok(header)
}

#[inline]
fn check_size(header: &BatchHeader, entry: &[u8]) -> Result<(), DecodeError> {
    let (needed, available) = (u64::from(header.size), entry.len() as u64);
    if available < needed {
        return Err(DecodeError::Truncated { needed, available });
    }
    if available > needed {
        return Err(DecodeError::LeftOver(available - needed));
    }
    Ok(())
}

/// The records of an uncompressed entry: what follows the header in v2, the whole message before.
#[inline]
fn plain_area<'a>(header: &BatchHeader, entry: &'a [u8]) -> &'a [u8] {
    if header.magic == 2 { &entry[HEADER_V2_BYTES..] } else { entry }
}

/// The records of one entry, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    cursor: Cursor,
    header: BatchHeader,
}

impl Records<'_> {
    /// The header of the entry.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordRef<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next(self.data)
    }
}

impl FusedIterator for Records<'_> {}

/// The records of one entry, in order, as views that share its bytes. Ends after the first error.
#[derive(Clone, Debug)]
pub struct OwnedRecords {
    data: Bytes,
    cursor: Cursor,
    header: BatchHeader,
}

impl OwnedRecords {
    /// The header of the entry.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }
}

impl Iterator for OwnedRecords {
    type Item = Result<StoredRecord, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.cursor.next(&self.data)?;
        Some(record.map(|record| StoredRecord::view(&self.data, &record)))
    }
}

impl FusedIterator for OwnedRecords {}

/// A place in the records of an entry. Holds no bytes, so that the same serves borrowed and shared ones; it must be
/// given the same bytes at every step.
#[derive(Clone, Debug)]
enum Cursor {
    V2(BatchCursor),
    Legacy(LegacyCursor),
}

impl Cursor {
    fn new(header: &BatchHeader, data: &[u8]) -> Result<Self, DecodeError> {
        if header.magic == 2 { Ok(Self::V2(BatchCursor::new(header))) } else { LegacyCursor::new(header, data).map(Self::Legacy) }
    }

    #[inline]
    fn next<'d>(&mut self, data: &'d [u8]) -> Option<Result<RecordRef<'d>, DecodeError>> {
        match self {
            Self::V2(cursor) => cursor.next(data),
            Self::Legacy(cursor) => cursor.next(data),
        }
    }
}

/// Takes a record off the front of a v2 area: what its length counts.
#[inline(always)]
fn whole_record<'d>(area: &mut Reader<'d>) -> Result<&'d [u8], &'static str> {
    let length = area.varint().ok_or("length is cut off or too long")?;
    let length = usize::try_from(length).map_err(|_| "length is negative")?;
    area.take(length).ok_or("it is longer than the batch")
}

/// A place in the records of a v2 batch.
#[derive(Clone, Debug)]
struct BatchCursor {
    position: usize,
    index: u32,
    count: u32,
    done: bool,
    base_offset: u64,
    last_delta: i32,
    /// Delta of the record before, -1 at first.
    previous_delta: i32,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl BatchCursor {
    #[inline(always)]
    fn new(header: &BatchHeader) -> Self {
        Self {
            position: 0,
            index: 0,
            count: header.count.max(0).unsigned_abs(),
            done: false,
            base_offset: header.base_offset,
            // The header holds this as an i32.
            last_delta: (header.last_offset - header.base_offset) as i32,
            previous_delta: -1,
            base_timestamp: header.base_timestamp,
            append_time: (header.timestamp_type() == TimestampType::LogAppend).then_some(header.max_timestamp),
        }
    }

    #[inline]
    fn next<'d>(&mut self, data: &'d [u8]) -> Option<Result<RecordRef<'d>, DecodeError>> {
        if self.done {
            return None;
        }
        let rest = data.get(self.position..).unwrap_or_default();
        if self.index == self.count {
            self.done = true;
            return (!rest.is_empty()).then_some(Err(DecodeError::LeftOver(rest.len() as u64)));
        }
        let mut reader = Reader::new(rest);
        match self.record(&mut reader) {
            Ok(record) => {
                self.position = data.len() - reader.rest().len();
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => {
                self.done = true;
                Some(Err(DecodeError::Record { index: self.index, reason }))
            }
        }
    }

    // Inlined, so that a visitor pays for nothing that it does not look at.
    #[inline(always)]
    fn record<'d>(&mut self, area: &mut Reader<'d>) -> Result<RecordRef<'d>, &'static str> {
        let mut reader = Reader::new(whole_record(area)?);

        reader.byte().ok_or("attributes are cut off")?;
        let timestamp_delta = reader.varlong().ok_or("timestamp delta is cut off or too long")?;
        let offset_delta = reader.varint().ok_or("offset delta is cut off or too long")?;
        if offset_delta <= self.previous_delta {
            return Err("its offset does not rise");
        }
        if offset_delta > self.last_delta {
            return Err("its offset is above the last of the batch");
        }

        let body = reader.rest();
        let key = reader.nullable().ok_or("key is cut off")?;
        let value = reader.nullable().ok_or("value is cut off")?;
        let headers = RawHeaders::decode(&mut reader)?;
        if !reader.rest().is_empty() {
            return Err("bytes are left over behind its headers");
        }
        self.previous_delta = offset_delta;
        Ok(RecordRef {
            // Above -1 and not above the last delta, as just checked.
            offset: self.base_offset + u64::from(offset_delta.unsigned_abs()),
            timestamp: self.append_time.unwrap_or(self.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            headers,
            body,
        })
    }
}
