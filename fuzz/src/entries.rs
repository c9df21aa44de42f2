//! Entries of a log: v2 batches, and the messages and wrappers of the older formats.

use std::cell::RefCell;

use bytes::Bytes;
use keeplog_engine::record::{
    BatchHeader, BatchSpec, BatchWriter, ControlType, DecodeError, Decoder, ENTRY_PREFIX_BYTES, EncodeError, HEADER_V2_BYTES,
    MAGIC_POSITION, RecordRef, SCAN_PEEK_BYTES, StoredRecord, TimestampType, base_offset_of, coordinator_epoch_of, set_append_time,
    set_base_offset, set_leader_epoch, write_empty,
};

/// What the records of one entry may take when decompressed.
pub(crate) const LIMIT_BYTES: usize = 1 << 20;

/// Any v2 batch: the bytes as they are, and once more with the length and magic that get them past the door.
pub fn batch_v2(data: &[u8]) {
    check(data);
    if let Some(entry) = framed(data, |_| 2) {
        check(&entry);
    }
}

/// Any v0 or v1 entry, in the same two ways.
pub fn legacy(data: &[u8]) {
    check(data);
    if let Some(entry) = framed(data, |magic| magic & 1) {
        check(&entry);
    }
}

/// `data` as one whole entry: a length that fits, an offset that is not negative, the magic made of that there.
fn framed(data: &[u8], magic: impl Fn(u8) -> u8) -> Option<Vec<u8>> {
    if data.len() < SCAN_PEEK_BYTES {
        return None;
    }
    let mut entry = data.to_vec();
    let length = (data.len() - ENTRY_PREFIX_BYTES) as i32;
    entry[0] &= 0x7f;
    entry[8..12].copy_from_slice(&length.to_be_bytes());
    entry[MAGIC_POSITION] = magic(data[MAGIC_POSITION]);
    Some(entry)
}

/// A record with nothing borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) offset: u64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Plain {
    pub(crate) fn of(record: &StoredRecord) -> Self {
        Self {
            offset: record.offset(),
            timestamp: record.timestamp_ms(),
            key: record.key().map(|key| key.to_vec()),
            value: record.value().map(|value| value.to_vec()),
            headers: record.headers().map(|(key, value)| (key.to_vec(), value.map(|v| v.to_vec()))).collect(),
        }
    }

    fn of_ref(record: &RecordRef<'_>) -> Self {
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

thread_local! {
    /// Never new: what an earlier entry left in it must not show.
    pub(crate) static REUSED: RefCell<Decoder> = RefCell::new(Decoder::new(LIMIT_BYTES));
    pub(crate) static WRITER: RefCell<BatchWriter> = RefCell::new(BatchWriter::new());
}

/// The records of `entry`, after making sure that a used decoder, the owning one, and (for one entry in four, for it takes
/// its time) a new one agree on them.
pub(crate) fn decode(entry: &[u8]) -> Result<Vec<Plain>, DecodeError> {
    REUSED.with_borrow_mut(|decoder| {
        let borrowed = decode_with(decoder, entry);
        let owned = decoder
            .decode_owned(Bytes::copy_from_slice(entry))
            .and_then(|records| records.map(|record| record.map(|record| Plain::of(&record))).collect());
        assert_eq!(owned, borrowed, "owned records differ from borrowed ones");
        if let Ok(header) = BatchHeader::parse(entry)
            && header.magic == 2
        {
            let mut visited = Vec::new();
            let visits = decoder.visit(&header, entry, |record| {
                visited.push(Plain::of_ref(record));
                Ok(())
            });
            assert_eq!(visits.map(|()| visited), borrowed, "visited records differ from borrowed ones");
        }
        if crc32c::crc32c(entry) & 3 == 0 {
            assert_eq!(decode_with(&mut Decoder::new(LIMIT_BYTES), entry), borrowed, "a used decoder reads otherwise than a new one");
        }
        borrowed
    })
}

fn decode_with(decoder: &mut Decoder, entry: &[u8]) -> Result<Vec<Plain>, DecodeError> {
    let mut records = decoder.records(entry)?;
    let mut all = Vec::new();
    while let Some(record) = records.next() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                assert!(records.next().is_none(), "records go on after an error");
                return Err(error);
            }
        };
        assert_eq!(record.headers.len(), record.headers.iter().count(), "header count");
        all.push(Plain::of_ref(&record));
    }
    Ok(all)
}

fn check(entry: &[u8]) {
    let Ok(header) = BatchHeader::parse(entry) else {
        assert!(decode(entry).is_err(), "records without a header");
        return;
    };
    let _ = header.verify_crc(entry);
    assert!(header.base_offset <= header.last_offset && header.next_offset() <= i64::MAX as u64);
    assert!((-1..=i32::MAX).contains(&header.last_sequence()));
    if header.magic == 2 && entry.len() as u64 == u64::from(header.size) {
        patched_fields_read_back(entry, &header);
    }
    let Ok(records) = decode(entry) else { return };

    assert_eq!(entry.len() as u64, u64::from(header.size), "more or less than one entry");
    assert!(records.is_sorted_by(|a, b| a.offset < b.offset), "offsets do not rise");
    let held: usize = records.iter().map(|r| r.key.as_ref().map_or(0, Vec::len) + r.value.as_ref().map_or(0, Vec::len)).sum();
    assert!(held <= LIMIT_BYTES.max(entry.len()), "{held} bytes of records");
    if header.magic == 2 {
        assert_eq!(records.len(), header.count as usize);
        assert!(records.iter().all(|r| (header.base_offset..=header.last_offset).contains(&r.offset)), "an offset is outside its batch");
        assert_eq!(base_offset_of(entry, LIMIT_BYTES), Ok(header.base_offset));
    } else if let Some(first) = records.first() {
        assert_eq!(base_offset_of(entry, LIMIT_BYTES), Ok(first.offset));
    }
    if header.is_control() {
        control_records_are_what_they_say(&records);
    }
    rebuilt_is_the_same(entry, &header, &records);
}

fn control_records_are_what_they_say(records: &[Plain]) {
    for record in records {
        if let Some(key) = &record.key
            && let Ok(kind) = ControlType::of_key(key)
        {
            assert_eq!(kind.code().to_be_bytes(), key[2..4]);
        }
        if let Some(value) = &record.value
            && let Ok(epoch) = coordinator_epoch_of(value)
        {
            assert_eq!(epoch.to_be_bytes(), value[2..6]);
        }
    }
}

/// The cleaner's way: a batch written anew from the records of this one holds the same.
fn rebuilt_is_the_same(entry: &[u8], header: &BatchHeader, records: &[Plain]) {
    let mut out = Vec::new();
    let Some(first) = records.first() else {
        write_empty(header, &mut out);
        let empty = BatchHeader::parse(&out).expect("an empty batch has a header");
        empty.verify_crc(&out).expect("an empty batch has a checksum");
        assert_eq!((empty.base_offset, empty.last_offset, empty.count), (header.base_offset, header.last_offset, 0));
        assert_eq!(empty.last_sequence(), header.last_sequence());
        assert_eq!(decode(&out), Ok(Vec::new()));
        return;
    };
    let mut spec = BatchSpec::like(header).expect("the codec was just used");
    if header.magic < 2 {
        spec.base_offset = first.offset;
    }
    match rebuild(entry, spec, &mut out) {
        Ok(()) => {}
        // Old message sets may hold any offsets, a batch only 2^31 in a row.
        Err(EncodeError::OffsetSpan { .. }) if header.magic < 2 => return,
        Err(error) => panic!("what was decoded can't be written: {error}"),
    }
    let rebuilt = BatchHeader::parse(&out).expect("a written batch has a header");
    rebuilt.verify_crc(&out).expect("a written batch has a checksum");
    if header.magic == 2 {
        assert_eq!((rebuilt.base_offset, rebuilt.last_offset), (header.base_offset, header.last_offset));
        assert_eq!(rebuilt.delete_horizon_ms(), header.delete_horizon_ms());
        assert_eq!(rebuilt.last_sequence(), header.last_sequence());
    }
    let mut expected = records.to_vec();
    if header.magic < 2 && header.timestamp_type() == TimestampType::LogAppend {
        // Messages of v0 inside a v1 wrapper have no time of their own; a batch has one for all.
        expected.iter_mut().for_each(|record| record.timestamp = header.max_timestamp);
    }
    assert_eq!(decode(&out).as_ref(), Ok(&expected), "a rebuilt batch holds something else");
    if expected != records {
        // The times that the first rebuild was given are not in what it wrote: a second one starts from others.
        return;
    }

    let mut again = Vec::new();
    rebuild(&out, BatchSpec::like(&rebuilt).expect("the codec was just used"), &mut again).expect("a batch just written can be rebuilt");
    assert_eq!(again, out, "a second rebuild changes bytes");
}

fn rebuild(entry: &[u8], spec: BatchSpec, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    REUSED.with_borrow_mut(|decoder| {
        WRITER.with_borrow_mut(|writer| {
            writer.begin(spec);
            for record in decoder.records(entry).expect("it was decoded before") {
                writer.push_ref(&record.expect("it was decoded before"))?;
            }
            writer.finish(out).map(drop)
        })
    })
}

fn patched_fields_read_back(entry: &[u8], header: &BatchHeader) {
    const BASE: u64 = 1 << 40;
    let mut patched = entry.to_vec();
    set_base_offset(&mut patched, BASE);
    set_leader_epoch(&mut patched, 77);
    let moved = BatchHeader::parse(&patched).expect("only fields outside the checksum changed");
    let last_offset = BASE + (header.last_offset - header.base_offset);
    assert_eq!(moved, BatchHeader { base_offset: BASE, last_offset, leader_epoch: 77, ..*header });
    assert_eq!(moved.verify_crc(&patched), header.verify_crc(entry));

    set_append_time(&mut patched, 123_456);
    let stamped = BatchHeader::parse(&patched).expect("times can have any value");
    stamped.verify_crc(&patched).expect("the checksum is renewed");
    assert_eq!((stamped.timestamp_type(), stamped.max_timestamp), (TimestampType::LogAppend, 123_456));
    assert!(patched[HEADER_V2_BYTES..] == entry[HEADER_V2_BYTES..], "records changed");
}
