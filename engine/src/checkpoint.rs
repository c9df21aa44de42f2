//! Kafka's text checkpoints: the offsets of many partitions (in the data directory) and the leader epochs of one log
//! (in its partition directory).
//!
//! A checkpoint is replaced as a whole: written under another name, synced, renamed over, and the directory synced.
//! So a reader finds the old content or the new, and a file that is cut or garbled was damaged by something else.
//! What that means differs from file to file, so reading has a typed outcome, and only a failing device is an error.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use thiserror::Error;

use crate::names::TopicPartition;
use crate::storage::{OpenMode, Storage, read_full_at, write_all_at};
use crate::{Error, Result};

mod epochs;

pub use epochs::{EpochEntry, LeaderEpochs};

/// Largest checkpoint that is read: some two million partitions.
const CHECKPOINT_BYTES_MAX: u64 = 256 << 20;
/// The only version there is.
const VERSION: i32 = 0;
/// What Java's `\s` matches: entries are split at runs of these.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];

/// Offsets by partition.
pub type OffsetMap = BTreeMap<TopicPartition, u64>;

/// What reading a checkpoint found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded<T> {
    /// No such file.
    Missing,
    /// A file with no entries; brokers make these.
    Empty,
    /// At least one entry.
    Found(T),
    /// Not a checkpoint: none of its entries can be trusted.
    Malformed(Malformed),
}

impl<T: Default> Loaded<T> {
    /// The entries; none if the file is missing, empty or malformed.
    pub fn or_empty(self) -> T {
        match self {
            Self::Found(entries) => entries,
            Self::Missing | Self::Empty | Self::Malformed(_) => T::default(),
        }
    }
}

/// Where and why a checkpoint is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct Malformed {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: MalformedReason,
}

/// What is wrong with a line of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedReason {
    /// The file is larger than any checkpoint.
    #[error("the file has {0} bytes, more than a checkpoint can have")]
    TooLarge(u64),
    /// Bytes that are not UTF-8.
    #[error("not text")]
    NotText,
    /// The first line is not a number, or not the version that is known.
    #[error("the version is not 0")]
    Version,
    /// The second line is not a number of entries.
    #[error("not a number of entries")]
    Count,
    /// The number of entries differs from what the second line says.
    #[error("{found} entries where line 2 says {stated}")]
    Entries {
        /// Entries that are there.
        found: usize,
        /// Entries that the second line promises.
        stated: usize,
    },
    /// More, fewer or misplaced fields in an entry.
    #[error("an entry must have {0} fields with blanks between")]
    Fields(usize),
    /// A field that must be a number from 0 is not.
    #[error("not a number from 0 on")]
    Number,
    /// A name that no topic can have.
    #[error("not a topic name")]
    Topic,
}

/// Reads a checkpoint of offsets, such as `recovery-point-offset-checkpoint`.
pub fn read_offsets(storage: &dyn Storage, path: &Path) -> Result<Loaded<OffsetMap>> {
    let text = match read_text(storage, path)? {
        Some(text) => text,
        None => return Ok(Loaded::Missing),
    };
    let mut offsets = OffsetMap::new();
    let outcome = text.and_then(|text| {
        parse(&text, |[topic, partition, offset]| {
            let partition = partition.parse().map_err(|_| MalformedReason::Number)?;
            let name = TopicPartition::new(topic, partition).map_err(|_| MalformedReason::Topic)?;
            offsets.insert(name, number(offset)?);
            Ok(())
        })
    });
    Ok(loaded(outcome, offsets.is_empty(), offsets))
}

/// Replaces a checkpoint of offsets, durably and at once.
pub fn write_offsets(storage: &dyn Storage, path: &Path, offsets: &OffsetMap) -> Result<()> {
    let entries = offsets.iter().map(|(name, offset)| format!("{} {} {offset}", name.topic(), name.partition()));
    write_atomic(storage, path, format(offsets.len(), entries).as_bytes())
}

/// Replaces the file at `path`: after a crash it has the old content or the new. Returns when the new one is durable.
pub fn write_atomic(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = Path::new(&name);
    let written = storage.open(temporary, OpenMode::Truncate).and_then(|file| {
        write_all_at(&*file, bytes, 0)?;
        file.sync_data()
    });
    if let Err(cause) = written {
        // It would be overwritten next time; on a full device its space is wanted now. The first failure counts.
        let _ = storage.remove_file(temporary);
        return Err(Error::io("write", temporary, cause));
    }
    storage.rename(temporary, path).map_err(|e| Error::io("replace", path, e))?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    storage.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

/// The text of a file, `None` if it is missing.
fn read_text(storage: &dyn Storage, path: &Path) -> Result<Option<Result<String, Malformed>>> {
    let read = || -> io::Result<Result<Vec<u8>, u64>> {
        let file = storage.open(path, OpenMode::Read)?;
        let len = file.len()?;
        if len > CHECKPOINT_BYTES_MAX {
            return Ok(Err(len));
        }
        let mut bytes = vec![0; len as usize]; // invariant: bounded just above
        let n = read_full_at(&*file, &mut bytes, 0)?;
        bytes.truncate(n);
        Ok(Ok(bytes))
    };
    match read() {
        Ok(Ok(bytes)) => Ok(Some(String::from_utf8(bytes).map_err(|e| {
            let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            Malformed { line: 1 + good.iter().filter(|&&b| b == b'\n').count(), reason: MalformedReason::NotText }
        }))),
        Ok(Err(len)) => Ok(Some(Err(Malformed { line: 1, reason: MalformedReason::TooLarge(len) }))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// Gives each entry's fields to `entry`. No entries are fine, even with no line that counts them.
fn parse<const FIELDS: usize>(text: &str, mut entry: impl FnMut([&str; FIELDS]) -> Result<(), MalformedReason>) -> Result<(), Malformed> {
    let mut lines = lines(text);
    let Some(version) = lines.next() else { return Ok(()) };
    if version.parse() != Ok(VERSION) {
        return Err(Malformed { line: 1, reason: MalformedReason::Version });
    }
    let Some(count) = lines.next() else { return Ok(()) };
    let stated = count.parse::<i32>().ok().and_then(|n| usize::try_from(n).ok());
    let stated = stated.ok_or(Malformed { line: 2, reason: MalformedReason::Count })?;
    let mut found = 0;
    for text in lines {
        let line = 3 + found;
        let fields = fields(text).ok_or(Malformed { line, reason: MalformedReason::Fields(FIELDS) })?;
        entry(fields).map_err(|reason| Malformed { line, reason })?;
        found += 1;
    }
    if found != stated {
        return Err(Malformed { line: 2 + found, reason: MalformedReason::Entries { found, stated } });
    }
    Ok(())
}

/// Lines that end with `\n`, `\r` or `\r\n`; the last one may have no end.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = rest.find(['\n', '\r']) else { return Some(std::mem::take(&mut rest)) };
        let line = &rest[..end];
        let after = &rest[end..];
        rest = after.strip_prefix("\r\n").unwrap_or(&after[1..]);
        Some(line)
    })
}

/// Exactly `FIELDS` fields. Blanks at the end do not count, blanks at the start make an empty first field, which is
/// one too many.
fn fields<const FIELDS: usize>(line: &str) -> Option<[&str; FIELDS]> {
    if line.starts_with(BLANKS) {
        return None;
    }
    let mut found = line.split(BLANKS).filter(|field| !field.is_empty());
    let mut fields = [""; FIELDS];
    for field in &mut fields {
        *field = found.next()?;
    }
    found.next().is_none().then_some(fields)
}

fn number(field: &str) -> Result<u64, MalformedReason> {
    field.parse().ok().filter(|&n| n <= i64::MAX as u64).ok_or(MalformedReason::Number)
}

fn loaded<T>(outcome: Result<(), Malformed>, is_empty: bool, entries: T) -> Loaded<T> {
    match outcome {
        Err(malformed) => Loaded::Malformed(malformed),
        Ok(()) if is_empty => Loaded::Empty,
        Ok(()) => Loaded::Found(entries),
    }
}

fn format(count: usize, entries: impl Iterator<Item = String>) -> String {
    let mut text = format!("{VERSION}\n{count}\n");
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
