//! Formats v0 and v1: wrappers, offsets, timestamps, damage.

use super::*;

/// One message. `timestamp` is written in magic 1 only.
fn message(offset: i64, magic: u8, attributes: u8, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![magic, attributes];
    if magic == 1 {
        body.extend_from_slice(&timestamp.to_be_bytes());
    }
    for part in [key, value] {
        let len = part.map_or(-1, |part| part.len() as i32);
        body.extend_from_slice(&len.to_be_bytes());
        body.extend_from_slice(part.unwrap_or_default());
    }
    let mut out = offset.to_be_bytes().to_vec();
    out.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

fn plain(offset: i64, magic: u8) -> Vec<u8> {
    message(offset, magic, 0, 10 + offset, Some(b"k"), Some(b"v"))
}

fn wrapper_of(set: &[u8], offset: i64, magic: u8, attributes: u8) -> Vec<u8> {
    let codec = Codec::from_bits(attributes).unwrap();
    let mut value = Vec::new();
    super::codec::Compressor::default().compress(codec, None, set, &mut value).unwrap();
    if magic == 0 && codec == Codec::Lz4 {
        value[6] = 0x1a; // as clients of that format computed it
    }
    message(offset, magic, attributes, 99, None, Some(&value))
}

fn offsets(entry: &[u8]) -> Result<Vec<u64>, DecodeError> {
    let records = decode(entry)?;
    if let Some(first) = records.first() {
        assert_eq!(base_offset_of(entry, LIMIT), Ok(first.offset));
    }
    Ok(records.iter().map(|record| record.offset).collect())
}

fn set_of(offsets: &[i64], magic: u8) -> Vec<u8> {
    offsets.iter().flat_map(|&offset| plain(offset, magic)).collect()
}

/// Entries of every kind that the old formats have.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let wrapped = (1..4).flat_map(|codec| {
        let absolute = wrapper_of(&set_of(&[7, 8, 11], 0), 11, 0, codec);
        let relative = wrapper_of(&set_of(&[0, 1, 4], 1), 104, 1, codec);
        [absolute, relative]
    });
    wrapped.chain([plain(3, 0), plain(3, 1)]).collect()
}

#[test]
fn the_checksum_is_the_other_polynomial_and_leaves_out_the_prefix() {
    for magic in [0, 1] {
        let mut entry = plain(3, magic);
        let header = BatchHeader::parse(&entry).unwrap();
        for at in 0..entry.len() {
            entry[at] ^= 0x40;
            assert_eq!(header.verify_crc(&entry).is_err(), at >= 16, "byte {at}");
            entry[at] ^= 0x40;
        }
    }
}

#[test]
fn wrappers_of_every_codec_are_read() {
    for codec in 1..4 {
        assert_eq!(offsets(&wrapper_of(&set_of(&[7, 8, 11], 0), 11, 0, codec)), Ok(vec![7, 8, 11]), "v0 is absolute");
        assert_eq!(offsets(&wrapper_of(&set_of(&[0, 1, 4], 1), 104, 1, codec)), Ok(vec![100, 101, 104]), "v1 is relative");
    }
}

#[test]
fn v1_offsets_hang_on_the_last_message() {
    // After compaction there are gaps, and the first may not be 0.
    assert_eq!(offsets(&wrapper_of(&set_of(&[2, 9], 1), 50, 1, 1)), Ok(vec![43, 50]));
    assert_eq!(offsets(&wrapper_of(&set_of(&[0], 1), 50, 1, 1)), Ok(vec![50]));
    assert_eq!(offsets(&wrapper_of(&set_of(&[0, 1, 2], 1), 0, 1, 1)), Ok(vec![0, 1, 2]), "librdkafka's wrapper offset 0");
    let error = DecodeError::MessageSet("the wrapper's offset is below its last message's");
    assert_eq!(offsets(&wrapper_of(&set_of(&[0, 5], 1), 4, 1, 1)), Err(error));
}

#[test]
fn offsets_rise_inside_a_set() {
    let malformed = |index, reason| Err(DecodeError::Record { index, reason });
    assert_eq!(decode(&wrapper_of(&set_of(&[0, 0], 1), 9, 1, 1)), malformed(1, "its offset does not rise"));
    assert_eq!(decode(&wrapper_of(&set_of(&[0, 5, 2], 1), 9, 1, 1)), malformed(1, "its offset is above the last of the set"));
    assert_eq!(decode(&wrapper_of(&set_of(&[7, 12], 0), 11, 0, 1)), malformed(1, "its offset is above the last of the set"));
    assert_eq!(decode(&wrapper_of(&set_of(&[-20, 0], 1), 9, 1, 1)), malformed(0, "its offset is negative"));
    let error = DecodeError::MessageSet("the last message has a negative offset");
    assert_eq!(decode(&wrapper_of(&set_of(&[-1], 1), 9, 1, 1)), Err(error));
}

#[test]
fn timestamps_are_those_of_the_messages_or_of_the_wrapper() {
    let times = |entry: &[u8]| decode(entry).unwrap().iter().map(|record| record.timestamp).collect::<Vec<_>>();
    assert_eq!(times(&wrapper_of(&set_of(&[0, 1], 1), 9, 1, 1)), [10, 11]);
    assert_eq!(times(&wrapper_of(&set_of(&[0, 1], 1), 9, 1, 1 | 8)), [99, 99], "append time");
    // Time types of inner messages do not count.
    let inner = [message(0, 1, 8, 20, None, Some(b"v")), message(1, 1, 0, 21, None, Some(b"v"))].concat();
    assert_eq!(times(&wrapper_of(&inner, 9, 1, 1)), [20, 21]);
    assert_eq!(times(&wrapper_of(&set_of(&[8, 9], 0), 9, 0, 1)), [-1, -1]);
    assert_eq!(times(&message(5, 1, 8, 77, None, Some(b"v"))), [77]);
}

#[test]
fn a_wrapper_rules_the_offsets_and_a_message_its_own_layout() {
    let mixed = [plain(0, 0), plain(3, 1)].concat();
    let records = decode(&wrapper_of(&mixed, 103, 1, 1 | 8)).unwrap();
    assert_eq!(records.iter().map(|record| (record.offset, record.timestamp)).collect::<Vec<_>>(), [(100, -1), (103, 99)]);
    let records = decode(&wrapper_of(&mixed, 3, 0, 1)).unwrap();
    assert_eq!(records.iter().map(|record| (record.offset, record.timestamp)).collect::<Vec<_>>(), [(0, -1), (3, 13)]);
}

#[test]
fn null_differs_from_empty() {
    for magic in [0, 1] {
        let records = decode(&message(1, magic, 0, 0, None, Some(b""))).unwrap();
        assert_eq!((&records[0].key, records[0].value.as_deref()), (&None, Some(&b""[..])));
        let mut entry = message(1, magic, 0, 0, Some(b""), None);
        let at = entry.len() - 4;
        entry[at..].copy_from_slice(&i32::MIN.to_be_bytes());
        let records = decode(&entry).unwrap();
        assert_eq!((records[0].key.as_deref(), &records[0].value), (Some(&b""[..]), &None));
    }
}

#[test]
fn codecs_that_the_old_formats_do_not_have_are_refused() {
    for magic in [0, 1] {
        for codec in 4..8 {
            assert_eq!(decode(&message(1, magic, codec, 0, None, Some(b"x"))), Err(DecodeError::UnknownCodec(codec)));
        }
    }
}

#[test]
fn malformed_sets_are_named() {
    let malformed = |index, reason| Err(DecodeError::Record { index, reason });
    assert_eq!(decode(&wrapper_of(&[], 9, 1, 1)), Err(DecodeError::MessageSet("no messages")));
    assert_eq!(decode(&message(9, 1, 1, 0, None, None)), Err(DecodeError::MessageSet("the wrapper has no value")));
    let nested = wrapper_of(&plain(0, 1), 0, 1, 1);
    assert_eq!(decode(&wrapper_of(&nested, 9, 1, 2)), malformed(0, "compression is nested"));
    let set = set_of(&[0, 1], 1);
    assert_eq!(decode(&wrapper_of(&set[..set.len() - 1], 9, 1, 1)), malformed(1, "it is longer than the set"));
    assert_eq!(decode(&wrapper_of(&[&set[..], &[0; 5]].concat(), 9, 1, 1)), malformed(2, "offset is cut off"));
    let mut newer = plain(0, 1);
    newer[16] = 2;
    assert_eq!(decode(&wrapper_of(&newer, 9, 1, 1)), malformed(0, "its format is neither v0 nor v1"));
    let mut short = plain(0, 1);
    short[11] = 5;
    assert_eq!(decode(&wrapper_of(&short[..17], 9, 1, 1)), malformed(0, "it is too short"));
}

#[test]
fn bytes_behind_the_value_are_damage() {
    let mut entry = plain(3, 1);
    entry.push(0);
    entry[11] += 1;
    assert_eq!(decode(&entry), Err(DecodeError::Record { index: 0, reason: "bytes are left over behind its value" }));
}

#[test]
fn old_records_are_rewritten_as_v2() {
    let entry = wrapper_of(&set_of(&[0, 1, 4], 1), 104, 1, 1);
    let mut decoder = Decoder::new(LIMIT);
    let mut writer = BatchWriter::new();
    let spec = BatchSpec::like(&BatchHeader::parse(&entry).unwrap()).unwrap();
    writer.begin(BatchSpec { base_offset: 101, ..spec });
    for record in decoder.records(&entry).unwrap().skip(1) {
        writer.push_ref(&record.unwrap()).unwrap();
    }
    let mut out = Vec::new();
    let header = writer.finish(&mut out).unwrap();
    assert_eq!((header.base_offset, header.last_offset, header.count, header.max_timestamp), (101, 104, 2, 14));
    assert_eq!((header.codec(), header.producer_id, header.base_sequence), (Ok(Codec::Gzip), -1, -1));
    assert_eq!(decode(&out), Ok(decode(&entry).unwrap()[1..].to_vec()));
}
