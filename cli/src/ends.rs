//! Where the logs of a data directory start and end, from their files as they lie there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::door::check::{Checkpoints, DECODED_BYTES_MAX, Inventory, SegmentFiles};
use crate::door::record::Decoder;
use crate::door::scan::{EntryScanner, SCAN_BUFFER_BYTES, ScanCause};
use crate::door::storage::{File, OpenMode, read_full_at};
use crate::door::{Error, Storage, TopicPartition};

/// Bytes of an entry of an offset index: offset and position, 32 bits each.
const INDEX_ENTRY_BYTES: usize = 8;
/// Bytes of an entry of a time index: timestamp, 64 bits, and offset, 32 bits.
const TIME_ENTRY_BYTES: usize = 12;
/// A broker makes indexes of 10 MiB; what is larger is not looked at.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The readable part of a log: from the first offset to below the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnds {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl LogEnds {
    /// How many records are left from `committed` on. What was deleted is not left; and a group may be ahead of a log that
    /// was truncated.
    pub(crate) fn lag(self, committed: u64) -> u64 {
        self.end.saturating_sub(committed.max(self.start))
    }

    /// The offset nearest to `offset` that can be read, or will be next.
    pub(crate) fn clamp(self, offset: u64) -> u64 {
        offset.max(self.start).min(self.end)
    }
}

/// Finds logs, and remembers what it found.
pub(crate) struct Ends<'s> {
    storage: &'s dyn Storage,
    data_dir: Option<PathBuf>,
    checkpoints: &'s Checkpoints,
    known: BTreeMap<TopicPartition, Option<LogEnds>>,
}

impl<'s> Ends<'s> {
    pub(crate) fn new(storage: &'s dyn Storage, data_dir: Option<&Path>, checkpoints: &'s Checkpoints) -> Self {
        Self { storage, data_dir: data_dir.map(Path::to_path_buf), checkpoints, known: BTreeMap::new() }
    }

    /// Of a partition; `None` if its log is not here. Names come from records, and need not be names.
    pub(crate) fn of(&mut self, topic: &str, partition: i32) -> Result<Option<LogEnds>, Error> {
        let Some(name) = name_of(topic, partition) else { return Ok(None) };
        if let Some(known) = self.known.get(&name) {
            return Ok(*known);
        }
        let found = self.find(&name)?;
        self.known.insert(name, found);
        Ok(found)
    }

    fn find(&self, name: &TopicPartition) -> Result<Option<LogEnds>, Error> {
        let Some((dir, inventory)) = self.inventory(name)? else { return Ok(None) };
        let (Some(first), Some(last)) = (inventory.segments.first(), inventory.segments.last()) else { return Ok(None) };
        let mark = self.checkpoints.of(&name.directory_name()).log_start.unwrap_or(0);
        let end = end_of(self.storage, &dir, last)?;
        Ok(Some(LogEnds { start: mark.max(first.base).min(end), end }))
    }

    fn inventory(&self, name: &TopicPartition) -> Result<Option<(PathBuf, Inventory)>, Error> {
        let Some(data_dir) = &self.data_dir else { return Ok(None) };
        let dir = data_dir.join(name.directory_name());
        match self.storage.metadata(&dir) {
            Ok(_) => Inventory::list(self.storage, &dir).map(|inventory| Some((dir, inventory))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("look at", &dir, e)),
        }
    }

    /// The first offset of a record of `time_ms` or later; the end if there is none. `None` if the log is not here.
    pub(crate) fn at_time(&mut self, topic: &str, partition: i32, time_ms: i64) -> Result<Option<u64>, Error> {
        let (Some(ends), Some(name)) = (self.of(topic, partition)?, name_of(topic, partition)) else { return Ok(None) };
        let Some((dir, inventory)) = self.inventory(&name)? else { return Ok(None) };
        for (i, segment) in inventory.segments.iter().enumerate() {
            let is_sealed = i + 1 < inventory.segments.len();
            if is_sealed && largest_time(self.storage, &dir, segment).is_some_and(|largest_ms| largest_ms < time_ms) {
                continue;
            }
            if let Some(offset) = first_at(self.storage, &dir.join(&segment.log), time_ms, ends.start)? {
                return Ok(Some(ends.clamp(offset)));
            }
        }
        Ok(Some(ends.end))
    }
}

fn name_of(topic: &str, partition: i32) -> Option<TopicPartition> {
    TopicPartition::new(topic, u32::try_from(partition).ok()?).ok()
}

/// One past the last batch that is whole: what recovery would find, were it run now.
fn end_of(storage: &dyn Storage, dir: &Path, segment: &SegmentFiles) -> Result<u64, Error> {
    let path = dir.join(&segment.log);
    let file = storage.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
    let index = segment.index_names().find(|name| name.ends_with(".index"));
    let near_end = index.and_then(|name| last_position(storage, &dir.join(name), segment.bytes)).unwrap_or(0);
    // An index that lies gives a position where no batch begins.
    let found = match end_from(&*file, &path, near_end, segment.bytes)? {
        None if near_end > 0 => end_from(&*file, &path, 0, segment.bytes)?,
        found => found,
    };
    Ok(found.unwrap_or(segment.base))
}

fn end_from(file: &dyn File, path: &Path, from: u64, len: u64) -> Result<Option<u64>, Error> {
    let mut scanner = EntryScanner::new(file, from, len, SCAN_BUFFER_BYTES);
    let mut end = None;
    while let Some(next) = scanner.next() {
        match next {
            // A batch whose offsets were there before is none of the log either.
            Ok(entry) if end > Some(entry.header.base_offset) => break,
            Ok(entry) if entry.header.verify_crc(entry.bytes).is_ok() => end = Some(entry.header.next_offset()),
            Err(error) if matches!(error.cause, ScanCause::Io(_)) => return Err(error.in_file("read on in", path)),
            _ => break,
        }
    }
    Ok(end)
}

fn index_bytes(storage: &dyn Storage, path: &Path) -> Option<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read).ok()?;
    let len = file.len().ok().filter(|len| *len <= INDEX_BYTES_MAX)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let got = read_full_at(&*file, &mut bytes, 0).ok()?;
    bytes.truncate(got);
    Some(bytes)
}

/// The largest timestamp of a sealed segment, which the last entry of its time index has.
fn largest_time(storage: &dyn Storage, dir: &Path, segment: &SegmentFiles) -> Option<i64> {
    let name = segment.index_names().find(|name| name.ends_with(".timeindex"))?;
    let bytes = index_bytes(storage, &dir.join(name))?;
    let last = bytes.chunks_exact(TIME_ENTRY_BYTES).next_back()?;
    let timestamp = i64::from_be_bytes(*last.first_chunk()?);
    // Zeros are room that was never filled: this index was not closed.
    (timestamp > 0).then_some(timestamp)
}

/// The position in the last entry of an offset index that is inside the log. One of an active segment has zeros after it.
fn last_position(storage: &dyn Storage, path: &Path, log_bytes: u64) -> Option<u64> {
    let bytes = index_bytes(storage, path)?;
    let positions = bytes.chunks_exact(INDEX_ENTRY_BYTES).rev();
    let mut positions = positions.map(|entry| u64::from(u32::from_be_bytes([entry[4], entry[5], entry[6], entry[7]])));
    positions.find(|position| (1..log_bytes).contains(position))
}

/// The first offset, from `start` on, of a record in the file that is of `time_ms` or later.
fn first_at(storage: &dyn Storage, path: &Path, time_ms: i64, start: u64) -> Result<Option<u64>, Error> {
    let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
    let mut scanner = EntryScanner::new(&*file, 0, len, SCAN_BUFFER_BYTES);
    let mut decoder = Decoder::new(DECODED_BYTES_MAX);
    while let Some(next) = scanner.next() {
        let entry = match next {
            Ok(entry) => entry,
            Err(error) if matches!(error.cause, ScanCause::Io(_)) => return Err(error.in_file("read on in", path)),
            Err(_) => break,
        };
        let header = entry.header;
        if header.is_control() || header.next_offset() <= start || header.max_timestamp < time_ms {
            continue;
        }
        let corrupt = |cause: &dyn std::fmt::Display| Error::corrupt("find a time in", path, entry.position, cause.to_string());
        header.verify_crc(entry.bytes).map_err(|cause| corrupt(&cause))?;
        for record in decoder.records(entry.bytes).map_err(|cause| corrupt(&cause))? {
            let record = record.map_err(|cause| corrupt(&cause))?;
            if record.offset >= start && record.timestamp >= time_ms {
                return Ok(Some(record.offset));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_counts_what_can_still_be_read() {
        let trimmed = LogEnds { start: 1_000, end: 1_000 };
        assert_eq!([0, 100, 1_000, 2_000, u64::MAX].map(|committed| trimmed.lag(committed)), [0; 5]);
        let log = LogEnds { start: 10, end: 15 };
        assert_eq!([0, 10, 12, 15, 16].map(|committed| log.lag(committed)), [5, 5, 3, 0, 0]);
        assert_eq!([0, 10, 12, 15, 16].map(|offset| log.clamp(offset)), [10, 10, 12, 15, 15]);
    }
}
