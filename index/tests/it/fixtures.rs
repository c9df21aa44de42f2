//! Every index that a real Kafka wrote, against the batches of its segment.
#![allow(clippy::disallowed_methods, reason = "only the bytes of the fixtures are wanted")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use keeplog_fixtures::{Set, dump_lines, unpack};
use keeplog_index::{IndexError, OffsetIndex, TimeIndex, TxnIndex};

#[derive(Clone, Copy, Debug)]
struct Batch {
    position: u32,
    bytes: u32,
    base: u64,
    last: u64,
    max_timestamp: i64,
}

#[derive(Debug)]
struct Segment {
    /// Path of its log, without the suffix.
    stem: PathBuf,
    base: u64,
    batches: Vec<Batch>,
}

impl Segment {
    fn log_bytes(&self) -> u32 {
        self.batches.last().map_or(0, |b| b.position + b.bytes)
    }

    fn next_offset(&self) -> u64 {
        self.batches.last().map_or(self.base, |b| b.last + 1)
    }

    fn read(&self, suffix: &str) -> Option<Vec<u8>> {
        fs::read(self.stem.with_extension(suffix)).ok()
    }
}

/// Every segment of a set that has a dump, but not the active ones of the copies that were taken of an open log: their
/// indexes have a preallocated tail.
fn segments(set: Set) -> Vec<Segment> {
    let (mut found, mut pending) = (Vec::new(), vec![unpack(set).to_owned()]);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "jsonl") && !path.ends_with("after.jsonl") {
                let mut segments = of_dump(&path);
                if set != Set::Broker {
                    segments.pop();
                }
                found.extend(segments);
            }
        }
    }
    found
}

fn of_dump(dump: &Path) -> Vec<Segment> {
    let mut files: BTreeMap<String, Vec<Batch>> = BTreeMap::new();
    for line in dump_lines(dump) {
        let field = |name: &str| line[name].as_i64().unwrap();
        files.entry(line["file"].as_str().unwrap().to_owned()).or_default().push(Batch {
            position: field("pos").try_into().unwrap(),
            bytes: field("bytes").try_into().unwrap(),
            base: field("base").try_into().unwrap(),
            last: field("last").try_into().unwrap(),
            max_timestamp: field("max_ts"),
        });
    }
    let stem = |file: &str| dump.with_extension("").join(file.strip_suffix(".log").unwrap());
    files.into_iter().map(|(file, batches)| Segment { stem: stem(&file), base: file[..20].parse().unwrap(), batches }).collect()
}

#[test]
fn offset_indexes_lead_to_the_batch() {
    let mut entries = 0;
    for segment in [Set::Broker, Set::Cleaned, Set::Legacy].into_iter().flat_map(segments) {
        let index = OffsetIndex::new(segment.base, segment.read("index").unwrap()).unwrap();
        assert_eq!(index.check(segment.log_bytes(), segment.next_offset()), Ok(()), "{segment:?}");
        entries += index.len();
        for entry in index.iter() {
            assert!(segment.batches.iter().any(|b| b.position == entry.position), "{entry:?} of {segment:?}");
        }
        for target in segment.base..segment.next_offset() {
            let wanted = segment.batches.iter().find(|b| b.last >= target).unwrap();
            let start = index.lookup(target).position;
            let found = segment.batches.iter().find(|b| b.position >= start && b.last >= target).unwrap();
            assert_eq!(found.base, wanted.base, "{target} in {segment:?}");
        }
    }
    assert!(entries > 1000, "{entries}");
}

#[test]
fn time_indexes_end_with_the_largest_timestamp() {
    let mut entries = 0;
    for segment in [Set::Broker, Set::Cleaned, Set::Legacy].into_iter().flat_map(segments) {
        let index = TimeIndex::new(segment.base, segment.read("timeindex").unwrap()).unwrap();
        assert_eq!(index.check(segment.next_offset()), Ok(()), "{segment:?}");
        entries += index.len();
        let largest = segment.batches.iter().map(|b| b.max_timestamp).max().filter(|&t| t >= 0);
        assert_eq!(index.last().map(|e| e.timestamp), largest, "{segment:?}");
        for target in segment.batches.iter().map(|b| b.max_timestamp) {
            let from = index.lookup(target - 1);
            let wanted = segment.batches.iter().find(|b| b.max_timestamp >= target).unwrap();
            assert!(wanted.last >= from.offset, "{target} in {segment:?}");
        }
    }
    assert!(entries > 1000, "{entries}");
}

#[test]
fn aborted_transactions_are_read() {
    let mut entries = 0;
    for segment in [Set::Broker, Set::Cleaned].into_iter().flat_map(segments) {
        let Some(bytes) = segment.read("txnindex") else { continue };
        let index = TxnIndex::new(bytes);
        assert_eq!(index.check(segment.base, segment.next_offset()), Ok(()), "{segment:?}");
        entries += index.len();
        let mut rebuilt = TxnIndex::empty();
        index.iter().for_each(|txn| rebuilt.append(txn.unwrap()).unwrap());
        assert_eq!(rebuilt.as_bytes(), index.as_bytes());
    }
    assert!(entries > 18, "{entries}");
}

#[test]
fn the_preallocated_tail_of_a_killed_broker_is_told_apart() {
    let dir = unpack(Set::Killed).join("before");
    let base = 320_029;
    let bytes = fs::read(dir.join("00000000000000320029.index")).unwrap();
    let log_bytes = fs::metadata(dir.join("00000000000000320029.log")).unwrap().len();
    let index = OffsetIndex::new(base, bytes.as_slice()).unwrap();
    let used = bytes.chunks(8).take_while(|entry| entry.iter().any(|&b| b != 0)).count();
    assert_eq!(index.check(log_bytes.try_into().unwrap(), u64::MAX), Err(IndexError::Unused { entry: used }));
    let whole = OffsetIndex::new(base, &bytes[..used * 8]).unwrap();
    assert_eq!(whole.check(log_bytes.try_into().unwrap(), u64::MAX), Ok(()));
}
