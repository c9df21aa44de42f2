//! Tests of the record format as a whole.

mod arbitrary;
mod edges;
mod fixtures;
mod golden;
mod legacy;
mod write;

use super::*;

/// Far above anything that a test decompresses.
const LIMIT: usize = 64 << 20;

/// The bytes of a hex string; blanks are skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A record with nothing borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plain {
    offset: u64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Plain {
    fn new(offset: u64, timestamp: i64, key: Option<&str>, value: Option<&str>) -> Self {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Self { offset, timestamp, key: key.map(bytes), value: value.map(bytes), headers: Vec::new() }
    }
}

impl From<RecordRef<'_>> for Plain {
    fn from(record: RecordRef<'_>) -> Self {
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

impl From<StoredRecord> for Plain {
    fn from(record: StoredRecord) -> Self {
        Self {
            offset: record.offset(),
            timestamp: record.timestamp_ms(),
            key: record.key().map(|key| key.to_vec()),
            value: record.value().map(|value| value.to_vec()),
            headers: record.headers().map(|(key, value)| (key.to_vec(), value.map(|value| value.to_vec()))).collect(),
        }
    }
}

/// Two entries, one behind the other, as whoever writes some of their records again reads them.
fn kept_bodies_are_where_they_were_said_to_be(
    decoder: &mut Decoder,
    header: &BatchHeader,
    entry: &[u8],
    expected: &Result<Vec<Plain>, DecodeError>,
) {
    let mut kept = Vec::new();
    decoder.exchange_kept(&mut kept);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let mut visited = Vec::new();
        let visits = decoder.visit_kept(header, entry, |record, at| {
            visited.push(Plain::from(*record));
            bodies.push((at, record.body.to_vec()));
            Ok(())
        });
        assert_eq!(*expected, visits.map(|()| visited), "visiting and keeping differs");
    }
    decoder.exchange_kept(&mut kept);
    if expected.is_ok() {
        assert!(bodies.iter().all(|(at, body)| kept[*at..][..body.len()] == *body));
    }
}

/// All records of `entry`, decoded in all three ways.
fn decode(entry: &[u8]) -> Result<Vec<Plain>, DecodeError> {
    decode_within(entry, LIMIT)
}

fn decode_within(entry: &[u8], limit_bytes: usize) -> Result<Vec<Plain>, DecodeError> {
    let mut decoder = Decoder::new(limit_bytes);
    let lent = decoder.records(entry).and_then(|records| records.map(|record| record.map(Plain::from)).collect::<Result<Vec<_>, _>>());
    let owned = decode_owned(bytes::Bytes::copy_from_slice(entry), limit_bytes)
        .and_then(|records| records.map(|record| record.map(Plain::from)).collect::<Result<Vec<_>, _>>());
    if let Ok(header) = BatchHeader::parse(entry)
        && header.magic == 2
    {
        let mut visited = Vec::new();
        let visits = decoder.visit(&header, entry, |record| {
            visited.push(Plain::from(*record));
            Ok(())
        });
        assert_eq!(lent, visits.map(|()| visited), "visiting differs");
        if header.codec() != Ok(Codec::None) {
            kept_bodies_are_where_they_were_said_to_be(&mut decoder, &header, entry, &lent);
        }
        if let Ok(all) = &lent {
            let mut some = Vec::new();
            let visits = decoder.visit_some(
                &header,
                entry,
                |place| place % 2 == 1,
                |record| {
                    some.push(Plain::from(*record));
                    Ok::<_, DecodeError>(())
                },
            );
            assert_eq!(visits, Ok(()));
            assert!(some.iter().eq(all.iter().skip(1).step_by(2)), "visiting some differs");
        }
    }
    assert_eq!(lent, owned, "two ways of decoding differ");
    lent
}
