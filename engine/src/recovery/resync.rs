//! Looks for sound batches behind damage: whether what is broken is the end of what was written, or a hole in it.

use std::io;

use crate::record::{BatchHeader, HEADER_V2_BYTES, MAGIC_POSITION};
use crate::room;
use crate::storage::{File, read_full_at};

const WINDOW_BYTES_MIN: usize = 4 << 10;
const WINDOW_BYTES_MAX: usize = 1 << 20;
/// Bytes of candidates that are read in all, as a multiple of what is searched: noise that is made to look like batches
/// must not stall an open.
const CHECKED_MAX: u64 = 4;

/// Position of the first batch in `file[from..end]` that has the right checksum and only offsets within `offsets`.
pub(super) fn find_batch(file: &dyn File, from: u64, end: u64, offsets: std::ops::Range<u64>) -> io::Result<Option<u64>> {
    let mut window = vec![0; WINDOW_BYTES_MIN];
    let mut budget = end.saturating_sub(from).saturating_mul(CHECKED_MAX);
    let mut start = from;
    while start + HEADER_V2_BYTES as u64 <= end {
        let take = window.len().min(usize::try_from(end - start).unwrap_or(usize::MAX));
        let held = read_full_at(file, &mut window[..take], start)?;
        let Some(last) = held.checked_sub(HEADER_V2_BYTES) else { break };
        for at in 0..=last {
            // The cheapest test first; nearly all noise fails it.
            if window[at + MAGIC_POSITION] > 2 {
                continue;
            }
            let Ok(header) = BatchHeader::parse(&window[at..held]) else { continue };
            let (position, size) = (start + at as u64, u64::from(header.size));
            if !offsets.contains(&header.base_offset) || !offsets.contains(&header.last_offset) || position + size > end {
                continue;
            }
            // Where it can't be told in time, it counts as one: then nothing is cut for its sake.
            let Some(left) = budget.checked_sub(size) else { return Ok(Some(position)) };
            budget = left;
            let mut bytes = room::zeroed(header.size as usize)?;
            if read_full_at(file, &mut bytes, position)? == bytes.len() && header.verify_crc(&bytes).is_ok() {
                return Ok(Some(position));
            }
        }
        start += last as u64 + 1;
        if window.len() < WINDOW_BYTES_MAX {
            window.resize(window.len() * 4, 0);
        }
    }
    Ok(None)
}
