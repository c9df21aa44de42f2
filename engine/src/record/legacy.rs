//! Formats v0 and v1: one message an entry, or a wrapper whose value is a compressed set of messages.
//!
//! ```text
//! 0 offset i64 | 8 size i32 | 12 crc u32 | 16 magic i8 | 17 attributes i8 | (v1) 18 timestamp i64
//! | keyLength i32 | key | valueLength i32 | value                (any negative length is null)
//! ```
//! Inside a v0 wrapper offsets are absolute. Inside a v1 wrapper they are relative, and the wrapper carries the
//! absolute offset of the *last* message, so the first one is known only once all are decompressed. The magic of
//! the wrapper rules the offsets, that of an inner message its layout. Inner checksums are not looked at.

use super::varint::Reader;
use super::{BatchHeader, Codec, DecodeError, NONE, RawHeaders, RecordRef, TimestampType};

const CODEC_BITS: u8 = 7;

/// One message as stored.
struct Message<'a> {
    offset: i64,
    compressed: bool,
    /// None in v0.
    timestamp: Option<i64>,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, &'static str> {
        let (offset, mut body) = split(reader)?;
        let [_, _, _, _, magic, attributes] = body.array().ok_or("it is too short")?;
        let timestamp = match magic {
            0 => None,
            1 => Some(i64::from_be_bytes(body.array().ok_or("timestamp is cut off")?)),
            _ => return Err("its format is neither v0 nor v1"),
        };
        let key = nullable(&mut body).ok_or("key is cut off")?;
        let value = nullable(&mut body).ok_or("value is cut off")?;
        if !body.rest().is_empty() {
            return Err("bytes are left over behind its value");
        }
        Ok(Self { offset, compressed: attributes & CODEC_BITS != 0, timestamp, key, value })
    }
}

/// Takes one message off: its offset field, and what its size counts.
fn split<'a>(reader: &mut Reader<'a>) -> Result<(i64, Reader<'a>), &'static str> {
    let offset = i64::from_be_bytes(reader.array().ok_or("offset is cut off")?);
    let size = i32::from_be_bytes(reader.array().ok_or("size is cut off")?);
    let size = usize::try_from(size).map_err(|_| "size is negative")?;
    let body = reader.take(size).ok_or("it is longer than the set")?;
    Ok((offset, Reader::new(body)))
}

fn nullable<'a>(reader: &mut Reader<'a>) -> Option<Option<&'a [u8]>> {
    match usize::try_from(i32::from_be_bytes(reader.array()?)) {
        Ok(len) => reader.take(len).map(Some),
        Err(_) => Some(None),
    }
}

/// The compressed message set in the wrapper `entry`, which is one whole entry.
pub(super) fn wrapped_value(entry: &[u8]) -> Result<&[u8], DecodeError> {
    let wrapper = Message::read(&mut Reader::new(entry)).map_err(|reason| DecodeError::Record { index: 0, reason })?;
    wrapper.value.ok_or(DecodeError::MessageSet("the wrapper has no value"))
}

/// A place in the messages of one entry: the entry itself, or the decompressed set of a wrapper.
#[derive(Clone, Debug)]
pub(super) struct LegacyCursor {
    position: usize,
    index: u32,
    done: bool,
    /// Added to stored offsets.
    base: i64,
    /// No offset is above this.
    last: u64,
    previous: Option<u64>,
    append_time: Option<i64>,
    inside_wrapper: bool,
}

impl LegacyCursor {
    /// `data` is the entry without compression, or the decompressed value of the wrapper with that header.
    pub(super) fn new(header: &BatchHeader, data: &[u8]) -> Result<Self, DecodeError> {
        let inside_wrapper = header.codec()? != Codec::None;
        let (mut base, mut last) = (0, header.last_offset);
        if inside_wrapper {
            let last_inner = last_offset_in(data)?;
            if header.magic == 1 && last == 0 {
                // librdkafka produced wrappers that leave their offset at 0: the inner ones are taken as they are.
                last = i64::MAX as u64 - 1;
            } else if header.magic == 1 {
                base = last
                    .checked_sub(last_inner)
                    .and_then(|base| i64::try_from(base).ok())
                    .ok_or(DecodeError::MessageSet("the wrapper's offset is below its last message's"))?;
            }
        }
        Ok(Self {
            position: 0,
            index: 0,
            done: false,
            base,
            last,
            previous: None,
            append_time: (header.timestamp_type() == TimestampType::LogAppend).then_some(header.max_timestamp),
            inside_wrapper,
        })
    }

    pub(super) fn next<'d>(&mut self, data: &'d [u8]) -> Option<Result<RecordRef<'d>, DecodeError>> {
        let rest = data.get(self.position..).unwrap_or_default();
        if self.done || rest.is_empty() {
            return None;
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

    fn record<'d>(&mut self, reader: &mut Reader<'d>) -> Result<RecordRef<'d>, &'static str> {
        let message = Message::read(reader)?;
        if message.compressed && self.inside_wrapper {
            return Err("compression is nested");
        }
        let offset = message.offset.checked_add(self.base).and_then(|offset| u64::try_from(offset).ok()).ok_or("its offset is negative")?;
        if self.previous.is_some_and(|previous| offset <= previous) {
            return Err("its offset does not rise");
        }
        if offset > self.last {
            return Err("its offset is above the last of the set");
        }
        self.previous = Some(offset);
        Ok(RecordRef {
            offset,
            // A wrapper's append time holds for all, but not for those in a format without timestamps.
            timestamp: message.timestamp.map_or(NONE, |own| self.append_time.unwrap_or(own)),
            key: message.key,
            value: message.value,
            headers: RawHeaders::default(),
            body: &[],
        })
    }
}

/// The stored offset of the last message of a set, which must hold one.
fn last_offset_in(set: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new(set);
    let mut last = None;
    let mut index = 0;
    while !reader.rest().is_empty() {
        last = Some(split(&mut reader).map_err(|reason| DecodeError::Record { index, reason })?.0);
        index += 1;
    }
    let last = last.ok_or(DecodeError::MessageSet("no messages"))?;
    u64::try_from(last).map_err(|_| DecodeError::MessageSet("the last message has a negative offset"))
}
