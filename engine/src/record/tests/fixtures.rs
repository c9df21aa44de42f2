//! Every batch that a real Kafka wrote, against its dump, and rebuilt from its records.
#![allow(clippy::disallowed_methods, reason = "no storage under test here: only the bytes of the fixtures are wanted")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use keeplog_fixtures::{Set, dump_lines, unpack};
use serde_json::Value;

use super::*;

/// Calls `check` with each dump line of a set and its entry. Gives how many there were.
fn each_entry(set: Set, mut check: impl FnMut(&Value, &[u8])) -> usize {
    let mut seen = 0;
    for dump in dumps(unpack(set)) {
        let directory = dump.with_extension("");
        let mut files = BTreeMap::new();
        for line in dump_lines(&dump) {
            let name = line["file"].as_str().unwrap().to_owned();
            let (bytes, end) = files.entry(name).or_insert_with_key(|name| (read(&directory.join(name)), 0));
            let (position, size) = (number(&line["pos"]) as usize, number(&line["bytes"]) as usize);
            assert_eq!(position, *end, "{}: the dump skips bytes", dump.display());
            *end += size;
            check(&line, &bytes[position..position + size]);
            seen += 1;
        }
        for (name, (bytes, end)) in files {
            assert_eq!(bytes.len(), end, "{}: the dump ends before {name}", dump.display());
        }
    }
    seen
}

fn dumps(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(hex)
}

fn dumped_record(record: &Value) -> Plain {
    let headers = record["h"].as_array().into_iter().flatten();
    Plain {
        offset: number(&record["o"]).cast_unsigned(),
        timestamp: number(&record["t"]),
        key: bytes_of(&record["k"]),
        value: bytes_of(&record["v"]),
        headers: headers.map(|header| (bytes_of(&header[0]).unwrap(), bytes_of(&header[1]))).collect(),
    }
}

fn check_header(line: &Value, entry: &[u8], header: &BatchHeader) {
    let base_offset = base_offset_of(entry, LIMIT).unwrap();
    assert_eq!(base_offset.cast_signed(), number(&line["base"]));
    assert_eq!(header.last_offset.cast_signed(), number(&line["last"]));
    assert_eq!(i64::from(header.size), number(&line["bytes"]));
    assert_eq!(i64::from(header.magic), number(&line["magic"]));
    assert_eq!(header.codec().unwrap().name(), line["codec"].as_str().unwrap());
    assert_eq!(header.timestamp_type().name(), line["ts_type"].as_str().unwrap());
    assert_eq!(header.max_timestamp, number(&line["max_ts"]));
    assert_eq!(header.delete_horizon_ms(), line["horizon"].as_i64());
    assert_eq!(header.producer_id, number(&line["pid"]));
    assert_eq!(i64::from(header.producer_epoch), number(&line["epoch"]));
    assert_eq!(i64::from(header.base_sequence), number(&line["seq"]));
    assert_eq!(i64::from(header.leader_epoch), number(&line["leader_epoch"]));
    assert_eq!(header.is_transactional(), line["txn"].as_bool().unwrap());
    assert_eq!(header.is_control(), line["control"].as_bool().unwrap());
    assert_eq!(i64::from(header.crc), number(&line["crc"]));
    assert_eq!(header.verify_crc(entry).is_ok(), line["valid"].as_bool().unwrap());
    if header.magic == 2 {
        assert_eq!(i64::from(header.count), number(&line["count"]));
    }
}

fn check_entry(line: &Value, entry: &[u8], writer: &mut BatchWriter) {
    let header = BatchHeader::parse(entry).unwrap();
    check_header(line, entry, &header);

    let records = decode(entry).unwrap();
    let dumped: Vec<Plain> = line["records"].as_array().unwrap().iter().map(dumped_record).collect();
    assert_eq!(records, dumped, "batch with base offset {}", header.base_offset);
    if header.magic == 2 {
        check_rebuilt(entry, &header, &records, writer);
    }
}

/// A batch with all its records is the same again. A compressed one may differ in how it is compressed, and one
/// with append times in its deltas: those are what the producer wrote, which the append time has made meaningless.
fn check_rebuilt(entry: &[u8], header: &BatchHeader, records: &[Plain], writer: &mut BatchWriter) {
    let mut rebuilt = Vec::new();
    if header.count == 0 {
        write_empty(header, &mut rebuilt);
        assert_eq!(rebuilt, entry);
        return;
    }
    let mut decoder = Decoder::new(LIMIT);
    writer.begin(BatchSpec::like(header).unwrap());
    for record in decoder.records(entry).unwrap() {
        writer.push_ref(&record.unwrap()).unwrap();
    }
    let written = writer.finish(&mut rebuilt).unwrap();
    if header.codec() == Ok(Codec::None) && header.timestamp_type() == TimestampType::Create {
        assert!(rebuilt == entry, "batch with base offset {} differs", header.base_offset);
    } else {
        let (size, crc, base_timestamp) = (header.size, header.crc, header.base_timestamp);
        assert_eq!(BatchHeader { size, crc, base_timestamp, ..written }, *header);
        written.verify_crc(&rebuilt).unwrap();
        assert_eq!(decode(&rebuilt).unwrap(), records);
    }

    // The same by way of the fields, as a first append writes it.
    let mut encoded = Vec::new();
    writer.begin(BatchSpec::like(header).unwrap());
    for record in records {
        let headers: Vec<Header> = record.headers.iter().map(to_append).collect();
        writer.push(record.offset, record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers).unwrap();
    }
    assert_eq!(writer.finish(&mut encoded), Ok(written));
    assert!(encoded == rebuilt, "copied bodies differ from encoded records");
}

fn to_append((key, value): &(Vec<u8>, Option<Vec<u8>>)) -> Header {
    Header { key: String::from_utf8(key.clone()).unwrap(), value: value.clone().map(Into::into) }
}

fn check_set(set: Set) -> usize {
    let mut writer = BatchWriter::new();
    each_entry(set, |line, entry| check_entry(line, entry, &mut writer))
}

#[test]
fn every_batch_of_a_broker() {
    assert!(check_set(Set::Broker) > 1_000);
}

#[test]
fn every_batch_before_and_after_kafkas_cleaner() {
    assert!(check_set(Set::Cleaned) > 1_000);
}

#[test]
fn every_entry_of_the_old_formats() {
    assert!(check_set(Set::Legacy) > 100);
}
