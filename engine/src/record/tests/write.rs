//! What the writer refuses, and what is changed in place.

use super::*;

fn spec(base_offset: u64) -> BatchSpec {
    BatchSpec { base_offset, ..BatchSpec::default() }
}

fn push(writer: &mut BatchWriter, offset: u64) -> Result<(), EncodeError> {
    writer.push(offset, 5, Some(b"k"), Some(b"v"), &[])
}

#[test]
fn offsets_rise_from_the_base() {
    let mut writer = BatchWriter::new();
    writer.begin(spec(10));
    assert_eq!(push(&mut writer, 9), Err(EncodeError::Offset { offset: 9, least: 10 }));
    push(&mut writer, 12).unwrap();
    assert_eq!(push(&mut writer, 12), Err(EncodeError::Offset { offset: 12, least: 13 }));
    let out_of_reach = 11 + i32::MAX as u64;
    assert_eq!(push(&mut writer, out_of_reach), Err(EncodeError::OffsetSpan { offset: out_of_reach, base: 10 }));
    push(&mut writer, out_of_reach - 1).unwrap();
    let mut out = Vec::new();
    let header = writer.finish(&mut out).unwrap();
    assert_eq!((header.base_offset, header.last_offset, header.count), (10, out_of_reach - 1, 2));
    assert_eq!(decode(&out).unwrap().len(), 2, "refused records leave no trace");
}

#[test]
fn the_largest_offsets_are_out_of_reach() {
    let mut writer = BatchWriter::new();
    let largest = i64::MAX as u64;
    for base in [largest, largest + 1, u64::MAX] {
        writer.begin(spec(base));
        assert_eq!(push(&mut writer, base), Err(EncodeError::OffsetSpan { offset: base, base }));
    }
    writer.begin(spec(largest - 1));
    push(&mut writer, largest - 1).unwrap();
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    assert_eq!(decode(&out).unwrap()[0].offset, largest - 1);
}

#[test]
fn the_last_offset_may_lie_above_the_last_record_only() {
    let mut writer = BatchWriter::new();
    let mut out = b"before".to_vec();
    writer.begin(BatchSpec { last_offset: Some(14), ..spec(10) });
    push(&mut writer, 15).unwrap();
    assert_eq!(writer.finish(&mut out), Err(EncodeError::Offset { offset: 14, least: 15 }));
    writer.begin(BatchSpec { last_offset: Some(20), ..spec(10) });
    push(&mut writer, 15).unwrap();
    assert_eq!(out, b"before");
    assert_eq!(writer.finish(&mut out).unwrap().last_offset, 20);
}

#[test]
fn timestamps_are_not_negative() {
    let mut writer = BatchWriter::new();
    writer.begin(spec(0));
    assert_eq!(writer.push(0, -2, None, None, &[]), Err(EncodeError::Timestamp(-2)));
    writer.push(0, -1, None, None, &[]).unwrap();
    let mut out = Vec::new();
    let header = writer.finish(&mut out).unwrap();
    assert_eq!((header.base_timestamp, header.max_timestamp), (-1, -1));
    assert_eq!(decode(&out).unwrap()[0].timestamp, -1);
}

#[test]
fn the_largest_timestamp_is_that_of_the_records_or_given() {
    let mut writer = BatchWriter::new();
    let mut finish = |spec| {
        writer.begin(spec);
        for (offset, timestamp) in [(0, 50), (1, 70), (2, 60)] {
            writer.push(offset, timestamp, None, None, &[]).unwrap();
        }
        let mut out = Vec::new();
        let header = writer.finish(&mut out).unwrap();
        (header.base_timestamp, header.max_timestamp, decode(&out).unwrap()[2].timestamp)
    };
    assert_eq!(finish(spec(0)), (50, 70, 60));
    assert_eq!(finish(BatchSpec { max_timestamp: Some(99), ..spec(0) }), (50, 99, 60));
    assert_eq!(finish(BatchSpec { delete_horizon_ms: Some(1_000), ..spec(0) }), (1_000, 70, 60));
    let append_time = BatchSpec { timestamp_type: TimestampType::LogAppend, max_timestamp: Some(99), ..spec(0) };
    assert_eq!(finish(append_time), (50, 99, 99));
}

#[test]
fn a_batch_without_records_or_with_a_wrong_level_leaves_the_output_alone() {
    let mut writer = BatchWriter::new();
    let mut out = b"before".to_vec();
    assert_eq!(writer.finish(&mut out), Err(EncodeError::Empty));
    writer.begin(BatchSpec { codec: Codec::Gzip, level: Some(11), ..spec(0) });
    push(&mut writer, 0).unwrap();
    assert_eq!(writer.finish(&mut out), Err(EncodeError::Level { codec: "gzip", level: 11 }));
    assert_eq!(out, b"before");
}

#[test]
fn begin_drops_what_was_not_finished() {
    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec { delete_horizon_ms: Some(5), ..spec(100) });
    push(&mut writer, 100).unwrap();
    assert_eq!((writer.len(), writer.is_empty()), (1, false));
    writer.begin(spec(0));
    assert!(writer.is_empty());
    push(&mut writer, 0).unwrap();
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    assert_eq!(decode(&out), Ok(vec![Plain::new(0, 5, Some("k"), Some("v"))]));
    assert_eq!(writer.size_bytes(), out.len());
}

#[test]
fn records_are_built_in_words() {
    let record = Record::new("key", "value").header("a", "1").header("a", vec![2]).timestamp_ms(7);
    assert_eq!((record.key.as_deref(), record.value.as_deref()), (Some(&b"key"[..]), Some(&b"value"[..])));
    assert_eq!((record.headers.len(), record.timestamp_ms), (2, Some(7)));
    assert_eq!(Record::tombstone("key").value, None);
    assert_eq!(Record::keyless("value").key, None);
}

#[test]
fn stored_records_share_the_bytes_of_the_entry() {
    let mut writer = BatchWriter::new();
    writer.begin(spec(0));
    writer.push(0, 5, Some(b"key"), Some(b"value"), &[Header { key: "h".into(), value: Some("x".into()) }]).unwrap();
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    let entry = bytes::Bytes::from(out);
    let range = entry.as_ptr_range();
    let record = decode_owned(entry.clone(), 0).unwrap().next().unwrap().unwrap();
    assert!(range.contains(&record.value().unwrap().as_ptr()));
    assert_eq!(record.headers().map(|(key, value)| (key.to_vec(), value)).collect::<Vec<_>>(), [(b"h".to_vec(), Some("x".into()))]);
    assert_eq!(record.raw_headers().len(), 1);
}

#[test]
fn assigning_an_offset_and_an_epoch_needs_no_checksum() {
    let mut writer = BatchWriter::new();
    writer.begin(spec(0));
    push(&mut writer, 0).unwrap();
    push(&mut writer, 1).unwrap();
    let mut entry = Vec::new();
    writer.finish(&mut entry).unwrap();
    set_base_offset(&mut entry, 500);
    set_leader_epoch(&mut entry, 7);
    let header = BatchHeader::parse(&entry).unwrap();
    header.verify_crc(&entry).unwrap();
    assert_eq!((header.base_offset, header.last_offset, header.leader_epoch), (500, 501, 7));

    set_append_time(&mut entry, 9_000);
    let header = BatchHeader::parse(&entry).unwrap();
    header.verify_crc(&entry).unwrap();
    assert_eq!((header.timestamp_type(), header.max_timestamp, header.base_timestamp), (TimestampType::LogAppend, 9_000, 5));
    assert!(decode(&entry).unwrap().iter().all(|record| record.timestamp == 9_000));
}
