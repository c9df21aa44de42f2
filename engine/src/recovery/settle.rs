//! What was never known to be on stable storage is written anew before it is believed.
//!
//! After a sync that failed, the system may hold pages for written that are not: they read like any others, no later
//! sync writes them, and a power failure takes them, with all that was acknowledged behind them. The page cache outlives
//! the process, so no open after an unclean stop can tell. What it writes itself, its own sync covers: hence the bytes
//! from the recovery point on are written as they were read, synced, and only then judged.

use crate::scan::SCAN_BUFFER_BYTES;
use crate::segment::Segment;
use crate::storage::{File, OpenMode, Storage, read_full_at, write_all_at};
use crate::{Error, Result};

/// Writes what `segment` holds from the first batch on that reaches to `recovery_point`, and syncs it. Returns the bytes.
pub(super) fn settle(storage: &dyn Storage, segment: &Segment, recovery_point: u64) -> Result<u64> {
    let path = segment.path();
    let failed = |e| Error::io("write the end anew of", &path, e);
    let file = storage.open(&path, OpenMode::Write).map_err(failed)?;
    let (from, end) = (first_unsynced(&*file, segment, recovery_point), segment.size_bytes());
    if from == end {
        return Ok(0);
    }
    let modified_ms = storage.metadata(&path).map_err(failed)?.modified_ms;
    let mut buffer = vec![0; SCAN_BUFFER_BYTES.min(usize::try_from(end - from).unwrap_or(usize::MAX))];
    let mut position = from;
    while position < end {
        let take = buffer.len().min(usize::try_from(end - position).unwrap_or(usize::MAX));
        let held = read_full_at(&*file, &mut buffer[..take], position).map_err(failed)?;
        if held == 0 {
            break;
        }
        write_all_at(&*file, &buffer[..held], position).map_err(failed)?;
        position += held as u64;
    }
    file.sync_data().map_err(failed)?;
    // Nothing about it is younger than before: records without a timestamp are judged by this.
    storage.set_modified(&path, modified_ms).map_err(failed)?;
    Ok(end - from)
}

/// Where the first batch begins that is not wholly below `recovery_point`, or what is no batch.
fn first_unsynced(file: &dyn File, segment: &Segment, recovery_point: u64) -> u64 {
    let mut scanner = segment.scan(file, 0, SCAN_BUFFER_BYTES);
    if recovery_point <= segment.base_offset() {
        return 0;
    }
    loop {
        let position = scanner.position();
        match scanner.next() {
            Some(Ok(entry)) if entry.header.last_offset < recovery_point => {}
            _ => return position,
        }
    }
}
