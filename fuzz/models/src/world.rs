//! What models share: a log of tiny segments, its records, and how to look at them.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::{BatchHeader, Record};
use keeplog_engine::storage::{Storage, read_full_at};
use keeplog_engine::{CleanupPolicy, Error, ErrorKind, Log, LogOptions, Result, Segment};
use shuttle::rand::{Rng, thread_rng};

use crate::disk::{Cut, Disk};

/// The one log of a model.
pub const DIR: &str = "/data/log-0";

/// Tiny segments: an index that has room for three batches makes the fourth begin a new one.
#[must_use]
pub fn options() -> LogOptions {
    LogOptions::new().segment_bytes(4096).segment_index_bytes(24).index_interval_bytes(1).cleanup_policy(CleanupPolicy::Compact)
}

/// Opens the log of `disk`.
///
/// # Panics
/// If that fails.
#[must_use]
pub fn open(disk: &Disk) -> Log {
    Log::open_with(Arc::new(disk.clone()), Path::new(DIR), options()).expect("the log opens")
}

/// A number below `end`, of the scheduler's choice.
#[must_use]
pub fn any(end: u32) -> u32 {
    thread_rng().gen_range(0..end)
}

/// A record that says where it came from.
#[must_use]
pub fn record(key: impl Into<String>, value: impl Into<String>) -> Record {
    Record::new(key.into(), value.into())
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Its offset.
    pub offset: u64,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// Everything from `offset` to the end. Offsets must rise.
///
/// # Errors
/// Those of the log.
///
/// # Panics
/// If offsets do not rise.
pub fn read_from(log: &Log, offset: u64) -> Result<Vec<Seen>> {
    let text = |bytes: Option<&bytes::Bytes>| String::from_utf8_lossy(bytes.map_or(&[][..], |bytes| &bytes[..])).into_owned();
    let mut seen = Vec::<Seen>::new();
    for record in log.read_from(offset)? {
        let record = record?;
        assert!(seen.last().is_none_or(|last| last.offset < record.offset()), "offsets rise: {} after {:?}", record.offset(), seen.last());
        assert!(record.offset() >= offset, "{} is below {offset}", record.offset());
        seen.push(Seen { offset: record.offset(), key: text(record.key()), value: text(record.value()) });
    }
    Ok(seen)
}

/// Everything that can be read.
///
/// # Panics
/// If something can't.
#[must_use]
pub fn read_all(log: &Log) -> Vec<Seen> {
    read_from(log, log.start_offset()).expect("all of the log can be read")
}

/// Refuses an error of any other kind.
///
/// # Panics
/// For any other kind.
#[track_caller]
pub fn allow(error: &Error, kinds: &[ErrorKind]) {
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

/// Headers of the batches that stand one after the other from the start of `bytes`, with their positions.
pub fn batches(bytes: &[u8]) -> impl Iterator<Item = (u64, BatchHeader)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let header = BatchHeader::parse(&bytes[position..]).ok()?;
        let batch = bytes.get(position..position + header.size as usize)?;
        header.verify_crc(batch).ok()?;
        let at = position as u64;
        position += batch.len();
        Some((at, header))
    })
}

/// Where the log ends on stable storage: one past the last of its batches that follow each other. A `.swap` counts: the
/// next open gives it its name.
///
/// # Panics
/// If a file has no offset for a name.
#[must_use]
pub fn durable_end(cut: &Cut) -> u64 {
    let mut files = cut.files(Path::new(DIR), ".log");
    files.extend(cut.files(Path::new(DIR), ".log.swap"));
    files.sort();
    let mut end = None;
    for (name, bytes) in files {
        let base: u64 = name[..20].parse().expect("named after an offset");
        if end.is_some_and(|end| base > end) {
            break;
        }
        end = end.max(batches(bytes).last().map(|(_, header)| header.next_offset())).max(Some(base));
    }
    end.unwrap_or(0)
}

/// What is published of a segment is whole batches, and every index entry stands where one begins.
///
/// # Panics
/// If not.
pub fn check_segment(segment: &Segment, is_sealed: bool) {
    let size = segment.size_bytes();
    let file = segment.file().expect("its file is there");
    let len = file.len().expect("a length");
    assert!(if is_sealed { len == size } else { len >= size }, "{size} bytes are published of {len}");
    let mut bytes = vec![0; size as usize];
    assert_eq!(read_full_at(&*file, &mut bytes, 0).expect("it can be read"), bytes.len());
    let starts: Vec<_> = batches(&bytes).collect();
    assert_eq!(starts.last().map_or(0, |(at, header)| at + u64::from(header.size)), size, "whole batches");
    for entry in segment.offset_entries().expect("its index") {
        if u64::from(entry.position) < size {
            let (_, header) = starts.iter().find(|(at, _)| *at == u64::from(entry.position)).expect("a batch begins where the index says");
            assert!(header.base_offset <= entry.offset && entry.offset <= header.last_offset, "{entry:?} is not of {header:?}");
        }
    }
}

/// No file of the log is left behind by something that is over.
///
/// # Panics
/// If one is.
pub fn check_no_leftovers(disk: &Disk) {
    for entry in disk.live().list(Path::new(DIR)).expect("the directory is there") {
        assert!(![".deleted", ".cleaned", ".swap"].iter().any(|end| entry.name.ends_with(end)), "{} was left behind", entry.name);
    }
}
