//! The index files of a segment: whether they can be trusted, and making them anew from its log.

use keeplog_index::{AbortedTxn, IndexError, OffsetIndex, TimeIndex, TxnIndex};

use crate::config::LogOptions;
use crate::names::{FileKind, FileState, file_name};
use crate::scan::{EntryScanner, SCAN_BUFFER_BYTES};
use crate::segment::{IndexBuilder, Place, SealedFacts, write_file};
use crate::storage::File;
use crate::{Error, ErrorKind, Result};

/// Judges the indexes of a sealed segment of `len` bytes, whose offsets end below `limit`, without reading its log.
pub(super) fn check_indexes(place: &Place, options: &LogOptions, base: u64, len: u64, limit: u64) -> Result<SealedFacts, String> {
    let read = |kind| read_index(place, options, base, kind, len);
    let log_bytes = len as u32;
    let offset = OffsetIndex::new(base, read(FileKind::OffsetIndex)?).map_err(|e| format!("offset index: {e}"))?;
    offset.check(log_bytes, limit).map_err(|e| format!("offset index: {e}"))?;
    let time = TimeIndex::new(base, read(FileKind::TimeIndex)?).map_err(|e| format!("time index: {e}"))?;
    time.check(limit).map_err(|e| format!("time index: {e}"))?;
    if place.exists(&place.path(base, FileKind::TxnIndex, FileState::Live)) {
        let txn = TxnIndex::new(read(FileKind::TxnIndex)?);
        txn.check(base, limit).map_err(|e| format!("transaction index: {e}"))?;
    }
    Ok(SealedFacts {
        size: len,
        offset_bytes: offset.as_bytes().len() as u32,
        time_bytes: time.as_bytes().len() as u32,
        largest_timestamp: time.last().map_or(-1, |e| e.timestamp),
    })
}

/// The last offset that the indexes of a segment speak of, whatever its log holds; `None` if they are no indexes of
/// offsets below `limit`.
pub(super) fn indexes_reach(place: &Place, options: &LogOptions, base: u64, log_bytes: u64, limit: u64) -> Option<u64> {
    let read = |kind| read_index(place, options, base, kind, log_bytes);
    let offset = OffsetIndex::new(base, read(FileKind::OffsetIndex).ok()?).ok()?;
    let time = TimeIndex::new(base, read(FileKind::TimeIndex).ok()?).ok()?;
    offset.check(u32::MAX, limit).ok()?;
    time.check(limit).ok()?;
    offset.last().map(|e| e.offset).max(time.last().map(|e| e.offset))
}

/// The bytes of an index file, or why there are none to be used.
pub(super) fn read_index(place: &Place, options: &LogOptions, base: u64, kind: FileKind, log_bytes: u64) -> Result<Vec<u8>, String> {
    let path = place.path(base, kind, FileState::Live);
    // Every entry stands for a batch: a larger index is none.
    let limit = (log_bytes + 61) * 2;
    place.read(&path, limit.max(options.segment_index_bytes.into())).map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!("{} is missing", file_name(base, kind)),
        _ => format!("{e:?}"),
    })
}

/// Puts rebuilt indexes in place of those of a sealed segment, if any, durably but for the last name.
///
/// A crash in between must not leave what the next open would trust. Without a transaction index nothing of the
/// segment counts as aborted, and nothing else tells that it is missing: so the offset index, without which an open
/// builds all of them anew, goes first and comes last.
pub(super) fn replace_index_files(place: &Place, base_offset: u64, indexes: &IndexBuilder) -> Result<()> {
    let path = |kind| place.path(base_offset, kind, FileState::Live);
    let write = |kind, bytes| {
        let file = write_file(place, &path(kind), bytes)?;
        file.sync_data().map_err(|e| Error::io("sync", &path(kind), e))
    };
    let has_txn = !indexes.txn.as_bytes().is_empty() || place.exists(&path(FileKind::TxnIndex));
    if has_txn && place.exists(&path(FileKind::OffsetIndex)) {
        place.remove(&path(FileKind::OffsetIndex))?;
        place.sync_dir()?;
    }
    write(FileKind::TimeIndex, indexes.time.as_bytes())?;
    if has_txn {
        write(FileKind::TxnIndex, indexes.txn.as_bytes())?;
        place.sync_dir()?;
    }
    write(FileKind::OffsetIndex, indexes.offset.as_bytes())
}

/// The indexes of the first `len` bytes of a segment's `file`; its aborted transactions are known.
pub(crate) fn rebuild_indexes(
    place: &Place,
    options: &LogOptions,
    base: u64,
    file: &dyn File,
    len: u64,
    aborted: Vec<AbortedTxn>,
) -> Result<IndexBuilder> {
    let path = place.path(base, FileKind::Log, FileState::Live);
    let mut indexes = IndexBuilder::new(base, options.index_interval_bytes, options.segment_index_bytes);
    let mut scanner = EntryScanner::new(file, 0, len, SCAN_BUFFER_BYTES);
    while let Some(entry) = scanner.next() {
        let entry = entry.map_err(|e| e.in_file("read", &path))?;
        let bad = |e: IndexError| Error::corrupt("index", &path, entry.position, e.to_string()).caused_by(e);
        indexes.batch(&entry.header, entry.position as u32).map_err(bad)?;
    }
    for txn in aborted {
        indexes.aborted(txn).map_err(|e| Error::corrupt("index", &path, len, e.to_string()).caused_by(e))?;
    }
    Ok(indexes)
}
