//! What an implementation of the v2 format is likely to get wrong.

use super::*;

/// One record: length, attributes, timestamp delta 0, offset delta, key `k`, value `v`, no headers.
fn record(offset_delta: u8) -> Vec<u8> {
    vec![16, 0, 0, offset_delta << 1, 2, b'k', 2, b'v', 0]
}

/// A v2 batch at offset 100 with these records, without a checksum: the decoder does not look at it.
fn batch(attributes: u16, last_delta: i32, count: i32, area: &[u8]) -> Vec<u8> {
    let mut entry = vec![0; HEADER_V2_BYTES];
    entry[7] = 100;
    entry[8..12].copy_from_slice(&((HEADER_V2_BYTES - ENTRY_PREFIX_BYTES + area.len()) as i32).to_be_bytes());
    entry[MAGIC_POSITION] = 2;
    entry[21..23].copy_from_slice(&attributes.to_be_bytes());
    entry[23..27].copy_from_slice(&last_delta.to_be_bytes());
    entry[57..61].copy_from_slice(&count.to_be_bytes());
    entry.extend_from_slice(area);
    entry
}

fn one(area: &[u8]) -> Result<Vec<Plain>, DecodeError> {
    decode(&batch(0, 10, 1, area))
}

fn malformed(index: u32, reason: &'static str) -> Result<Vec<Plain>, DecodeError> {
    Err(DecodeError::Record { index, reason })
}

fn written(codec: Codec) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec { codec, ..BatchSpec::default() });
    writer.push(0, 1, Some(b"key"), Some(b"value"), &[]).unwrap();
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

#[test]
fn the_checksum_leaves_out_offset_length_epoch_and_magic() {
    let mut entry = written(Codec::None);
    let header = BatchHeader::parse(&entry).unwrap();
    for at in 0..entry.len() {
        entry[at] ^= 0x40;
        let covered = header.verify_crc(&entry).is_err();
        // Bytes 17 to 20 hold the checksum, which was read before.
        assert_eq!(covered, at >= 21, "byte {at}");
        entry[at] ^= 0x40;
    }
    assert_eq!(usize::try_from(header.size).unwrap(), entry.len(), "the size counts the prefix");
}

#[test]
fn an_entry_is_exactly_one_entry() {
    let entry = batch(0, 0, 1, &record(0));
    let (needed, whole) = (entry.len() as u64, entry.len());
    for len in 0..whole {
        let error = decode(&entry[..len]).unwrap_err();
        let expected = if len < SCAN_PEEK_BYTES {
            SCAN_PEEK_BYTES as u64
        } else if len < HEADER_V2_BYTES {
            61
        } else {
            needed
        };
        assert_eq!(error, DecodeError::Truncated { needed: expected, available: len as u64 });
    }
    assert_eq!(decode(&[&entry[..], &[0]].concat()), Err(DecodeError::LeftOver(1)));
}

#[test]
fn preallocated_zeros_are_no_entry() {
    assert_eq!(BatchHeader::parse(&[0; 100]), Err(DecodeError::Length { length: 0, minimum: 14 }));
    assert!(matches!(BatchHeader::parse(&[0; 16]), Err(DecodeError::Truncated { .. })));
    let mut newer = batch(0, 0, 1, &record(0));
    newer[MAGIC_POSITION] = 3;
    assert_eq!(BatchHeader::parse(&newer), Err(DecodeError::Magic(3)));
    let mut short = batch(0, 0, 1, &record(0));
    short[11] = 48;
    assert_eq!(BatchHeader::parse(&short), Err(DecodeError::Length { length: 48, minimum: 49 }));
}

#[test]
fn append_time_replaces_what_the_deltas_say() {
    let mut entry = batch(Attributes::LOG_APPEND_TIME, 0, 1, &[16, 0, 0x7e, 0, 2, b'k', 2, b'v', 0]);
    entry[35..43].copy_from_slice(&77_i64.to_be_bytes());
    assert_eq!(decode(&entry).unwrap()[0].timestamp, 77);
    // The delta must parse all the same: here it never ends.
    entry[HEADER_V2_BYTES + 2..].fill(0x80);
    assert_eq!(decode(&entry), malformed(0, "timestamp delta is cut off or too long"));
}

#[test]
fn count_and_last_offset_are_independent() {
    let area = [record(3), record(7)].concat();
    let entry = batch(0, 20, 2, &area);
    let offsets: Vec<u64> = decode(&entry).unwrap().iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [103, 107]);
    let header = BatchHeader::parse(&entry).unwrap();
    assert_eq!((header.last_offset, header.next_offset(), header.count), (120, 121, 2));
}

#[test]
fn offsets_rise_inside_the_range_of_the_batch() {
    assert_eq!(decode(&batch(0, 9, 2, &[record(3), record(3)].concat())), malformed(1, "its offset does not rise"));
    assert_eq!(decode(&batch(0, 9, 2, &[record(3), record(2)].concat())), malformed(1, "its offset does not rise"));
    assert_eq!(decode(&batch(0, 9, 1, &record(10))), malformed(0, "its offset is above the last of the batch"));
    assert_eq!(one(&[16, 0, 0, 1, 2, b'k', 2, b'v', 0]), malformed(0, "its offset does not rise"), "a delta of -1");
}

#[test]
fn a_header_only_batch_has_no_records_whatever_its_codec_bits_say() {
    for codec in 0..5 {
        assert_eq!(decode(&batch(codec, 5, 0, &[])), Ok(Vec::new()));
    }
    assert_eq!(decode(&batch(0, 5, 0, &record(0))), Err(DecodeError::LeftOver(9)));
}

#[test]
fn null_differs_from_empty() {
    let fields = |area: &[u8]| one(area).map(|records| (records[0].key.clone(), records[0].value.clone()));
    assert_eq!(fields(&[12, 0, 0, 0, 1, 1, 0]), Ok((None, None)));
    assert_eq!(fields(&[12, 0, 0, 0, 0, 0, 0]), Ok((Some(vec![]), Some(vec![]))));
    assert_eq!(fields(&[12, 0, 0, 0, 9, 0x7f, 0]), Ok((None, None)), "any negative length is null");

    let headers = |area: &[u8]| one(area).map(|records| records[0].headers.clone());
    assert_eq!(headers(&[16, 0, 0, 0, 1, 1, 2, 0, 1]), Ok(vec![(vec![], None)]));
    assert_eq!(headers(&[16, 0, 0, 0, 1, 1, 2, 0, 0]), Ok(vec![(vec![], Some(vec![]))]));
    assert_eq!(headers(&[16, 0, 0, 0, 1, 1, 2, 1, 0]), malformed(0, "header key is null").map(|_| vec![]));
}

#[test]
fn malformed_records_are_named() {
    let cases: [(&[u8], &str); 14] = [
        (&[], "length is cut off or too long"),
        (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], "length is cut off or too long"),
        (&[1], "length is negative"),
        (&[14, 0, 0, 0, 1, 1, 0], "it is longer than the batch"),
        (&[0], "attributes are cut off"),
        (&[2, 0], "timestamp delta is cut off or too long"),
        (&[4, 0, 0], "offset delta is cut off or too long"),
        (&[6, 0, 0, 0], "key is cut off"),
        (&[10, 0, 0, 0, 4, b'k'], "key is cut off"),
        (&[8, 0, 0, 0, 1], "value is cut off"),
        (&[10, 0, 0, 0, 1, 1], "header count is cut off or too long"),
        (&[12, 0, 0, 0, 1, 1, 1], "header count is negative"),
        (&[14, 0, 0, 0, 1, 1, 4, 0], "more headers than bytes"),
        (&[14, 0, 0, 0, 1, 1, 2, 0], "header value is cut off"),
    ];
    for (area, reason) in cases {
        assert_eq!(one(area), malformed(0, reason), "{area:?}");
    }
}

#[test]
fn nothing_is_left_over() {
    assert_eq!(one(&[14, 0, 0, 0, 1, 1, 0, 0]), malformed(0, "bytes are left over behind its headers"));
    assert_eq!(one(&[record(0), vec![0]].concat()), Err(DecodeError::LeftOver(1)));
    assert_eq!(decode(&batch(0, 9, 3, &[record(0), record(1)].concat())), malformed(2, "length is cut off or too long"));
    assert_eq!(decode(&batch(0, 9, -1, &record(0))), Err(DecodeError::Field { field: "recordsCount", value: -1 }));
    // The same inside of a compressed area, and behind its end.
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut area = Vec::new();
        super::codec::Compressor::default().compress(codec, None, &[record(0), record(1)].concat(), &mut area).unwrap();
        assert_eq!(decode(&batch(codec.bits().into(), 9, 2, &area)).unwrap().len(), 2);
        assert_eq!(decode(&batch(codec.bits().into(), 9, 1, &area)), Err(DecodeError::LeftOver(9)));
        area.push(0);
        assert!(matches!(decode(&batch(codec.bits().into(), 9, 2, &area)), Err(DecodeError::Compression { .. })));
    }
}

#[test]
fn iterators_end_after_an_error() {
    let entry = batch(0, 9, 3, &[record(0), record(0), record(1)].concat());
    let mut decoder = Decoder::new(LIMIT);
    let mut records = decoder.records(&entry).unwrap();
    assert!(records.next().unwrap().is_ok());
    assert!(records.next().unwrap().is_err());
    assert!(records.next().is_none());
    let mut records = decode_owned(bytes::Bytes::from(entry), LIMIT).unwrap();
    assert_eq!(records.by_ref().map(|record| record.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert!(records.next().is_none());
}

#[test]
fn over_long_varints_parse_and_are_copied_as_they_are() {
    // Every field one byte longer than it has to be.
    let area = [28, 0, 0x80, 0, 0x82, 0, 0x82, 0, b'k', 0x82, 0, b'v', 0x80, 0x80, 0];
    let entry = batch(0, 10, 1, &area);
    let mut decoder = Decoder::new(LIMIT);
    let record = decoder.records(&entry).unwrap().next().unwrap().unwrap();
    assert_eq!(Plain::from(record), Plain::new(101, 0, Some("k"), Some("v")));

    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec { base_offset: 100, ..BatchSpec::default() });
    writer.push_ref(&record).unwrap();
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    assert_eq!(out[HEADER_V2_BYTES..], [&[24, 0, 0, 2][..], &area[6..]].concat());
    assert_eq!(decode(&out), decode(&entry));
}

#[test]
fn the_high_byte_of_the_attributes_is_ignored() {
    let entry = batch(0xff00, 0, 1, &record(0));
    assert_eq!(decode(&entry).unwrap().len(), 1);
    let header = BatchHeader::parse(&entry).unwrap();
    assert_eq!((header.codec(), header.is_control(), header.delete_horizon_ms()), (Ok(Codec::None), false, None));
    for codec in 5..8 {
        assert_eq!(decode(&batch(codec, 0, 1, &record(0))), Err(DecodeError::UnknownCodec(codec as u8)));
    }
}

#[test]
fn control_batches_need_no_transaction() {
    let header = BatchHeader::parse(&batch(Attributes::CONTROL, 0, 1, &record(0))).unwrap();
    assert!(header.is_control() && !header.is_transactional());
}

#[test]
fn control_keys_and_values_are_read() {
    for code in -1..9_i16 {
        let key = [&[0, 0][..], &code.to_be_bytes()].concat();
        assert_eq!(ControlType::of_key(&key).unwrap().code(), code);
    }
    assert_eq!(ControlType::of_key(&[0, 9, 0, 1, 0xff]), Ok(ControlType::Commit), "a newer version");
    assert!(matches!(ControlType::of_key(&[0xff, 0xff, 0, 1]), Err(DecodeError::Control(_))));
    assert!(matches!(ControlType::of_key(&[0, 0, 0]), Err(DecodeError::Control(_))));
    assert_eq!(coordinator_epoch_of(&[0, 0, 0, 0, 0, 7]), Ok(7));
    assert!(matches!(coordinator_epoch_of(&[0xff, 0xff, 0, 0, 0, 7]), Err(DecodeError::Control(_))));
    assert!(matches!(coordinator_epoch_of(&[0, 0, 0, 0, 0]), Err(DecodeError::Control(_))));
}

#[test]
fn a_batch_that_inflates_beyond_the_limit_is_refused() {
    let mut writer = BatchWriter::new();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        writer.begin(BatchSpec { codec, ..BatchSpec::default() });
        writer.push(0, 0, None, Some(&vec![0; 1 << 20]), &[]).unwrap();
        let mut entry = Vec::new();
        writer.finish(&mut entry).unwrap();
        assert!(entry.len() < 1 << 16);
        assert_eq!(decode_within(&entry, 1 << 20), Err(DecodeError::TooLarge { limit: 1 << 20 }));
        assert_eq!(decode_within(&entry, (1 << 20) + 64).unwrap().len(), 1);
    }
}

/// The room for what comes out begins with what the first frame claims: none, and it must grow from there.
#[test]
fn a_frame_that_claims_to_be_empty_may_be_followed_by_another() {
    let frame = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).unwrap();
    let area = [frame(&[]), frame(&record(0))].concat();
    assert_eq!(one_of(Codec::Zstd, &area).unwrap().len(), 1);
    // And it may be a lie.
    let mut lie = frame(&record(0));
    assert_eq!((lie[4] & 0xe0, lie[5]), (0x20, record(0).len() as u8), "one segment, its size in one byte");
    lie[5] = 0;
    assert!(matches!(one_of(Codec::Zstd, &lie), Err(DecodeError::Compression { .. })));
}

fn one_of(codec: Codec, area: &[u8]) -> Result<Vec<Plain>, DecodeError> {
    decode(&batch(codec.bits().into(), 0, 1, area))
}

#[test]
fn sequences_wrap_inside_a_batch() {
    let mut entry = batch(0, 5, 1, &record(0));
    entry[53..57].copy_from_slice(&(i32::MAX - 2).to_be_bytes());
    assert_eq!(BatchHeader::parse(&entry).unwrap().last_sequence(), 2);
}
