//! Records: borrowed from a decoded batch, owned by a reader, and to be appended.

use bytes::Bytes;

use super::varint::Reader;

/// One record of a decoded entry, borrowed from it or from the decoder's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Its absolute offset.
    pub offset: u64,
    /// Its time, ms; -1 none. In a batch with append times, the time of the batch.
    pub timestamp: i64,
    /// Its key; `None` is null, which differs from an empty key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is null: with a key, a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order, with duplicates.
    pub headers: RawHeaders<'a>,
    /// v2: the bytes from the key length to the end of the record, for copying it as it is. Empty in v0 and v1.
    pub body: &'a [u8],
}

/// The headers of one record, as stored. They were checked when the record was decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawHeaders<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> RawHeaders<'a> {
    /// Takes count and headers, and checks every length.
    #[inline]
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, &'static str> {
        let count = reader.varint().ok_or("header count is cut off or too long")?;
        if count == 0 {
            return Ok(Self::default());
        }
        let headers;
        (headers, *reader) = Self::decode_some(*reader, count)?;
        Ok(headers)
    }

    /// As [`RawHeaders::decode`], behind the count, and what follows. By values, so that a reader without headers stays in
    /// registers.
    fn decode_some(mut reader: Reader<'a>, count: i32) -> Result<(Self, Reader<'a>), &'static str> {
        let count = u32::try_from(count).map_err(|_| "header count is negative")?;
        let all = reader.rest();
        if count as usize > all.len() {
            return Err("more headers than bytes");
        }
        for _ in 0..count {
            reader.nullable().ok_or("header key is cut off")?.ok_or("header key is null")?;
            reader.nullable().ok_or("header value is cut off")?;
        }
        Ok((Self { count, bytes: &all[..all.len() - reader.rest().len()] }, reader))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Key and value of each, in order. Keys are meant to be UTF-8; a value may be null.
    #[must_use]
    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter { reader: Reader::new(self.bytes) }
    }

    /// The headers in the format of a record, without their count.
    pub(super) fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> IntoIterator for RawHeaders<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Key and value of each header of a record.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        // Every length was checked by `RawHeaders::decode`, so this ends only where the bytes end.
        let key = self.reader.nullable()??;
        Some((key, self.reader.nullable()?))
    }
}

/// One record of a log: views over shared bytes, which stay alive as long as any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    offset: u64,
    timestamp: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
    header_count: u32,
    headers: Bytes,
}

impl StoredRecord {
    /// A view of `record`, whose slices all lie in `data`.
    pub(super) fn view(data: &Bytes, record: &RecordRef<'_>) -> Self {
        let view = |part: &[u8]| data.slice_ref(part);
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(view),
            value: record.value.map(view),
            header_count: record.headers.count,
            headers: view(record.headers.bytes),
        }
    }

    /// Its offset in the log.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its time, ms; -1 none.
    #[must_use]
    pub fn timestamp_ms(&self) -> i64 {
        self.timestamp
    }

    /// Its key; `None` is null, which differs from an empty key.
    #[must_use]
    pub fn key(&self) -> Option<&Bytes> {
        self.key.as_ref()
    }

    /// Its value; `None` is null: with a key, a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }

    /// Key and value of each header, in order. Keys are meant to be UTF-8; a value may be null.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], Option<Bytes>)> {
        self.raw_headers().iter().map(|(key, value)| (key, value.map(|value| self.headers.slice_ref(value))))
    }

    /// The headers without reference counts.
    #[must_use]
    pub fn raw_headers(&self) -> RawHeaders<'_> {
        RawHeaders { count: self.header_count, bytes: &self.headers }
    }
}

/// A record to append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its key; `None` is null. A compacted log refuses records without.
    pub key: Option<Bytes>,
    /// Its value; `None` is null: with a key, a tombstone.
    pub value: Option<Bytes>,
    /// Its headers, in order; keys may repeat.
    pub headers: Vec<Header>,
    /// Its time, ms; `None` takes the clock's when appended.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    /// A value for a key.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), value: Some(value.into()), ..Self::default() }
    }

    /// The deletion of a key.
    pub fn tombstone(key: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), ..Self::default() }
    }

    /// A value without a key, for logs that are not compacted.
    pub fn keyless(value: impl Into<Bytes>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// Adds a header behind those already there.
    #[must_use]
    pub fn header(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(Header { key: key.into(), value: Some(value.into()) });
        self
    }

    /// Sets the time, ms.
    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }
}

/// A header of a record to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name; not unique.
    pub key: String,
    /// Its value; may be null.
    pub value: Option<Bytes>,
}
