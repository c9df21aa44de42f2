//! Reading: by offset, by time, committed data only.

use super::{Batches, Log, Records};
use crate::planted::{Defect, is_planted};
use crate::record::Decoder;
use crate::segment::Segment;
use crate::sync::atomic::Ordering;
use crate::{Error, ErrorKind, Result};

/// Bytes read at a time when looking for a timestamp.
const TIME_SCAN_BYTES: usize = 64 << 10;

impl Log {
    /// The records from `offset` to what is the end offset now, in order. Gaps are normal in a compacted log: the
    /// first record may have a larger offset. Never waits for a writer or the cleaner.
    ///
    /// # Errors
    /// `OutOfRange` if `offset` is below the start offset or above the end offset.
    pub fn read_from(&self, offset: u64) -> Result<Records> {
        let batches = self.batches_up_to(offset, self.end_offset())?;
        Ok(Records::new(batches, offset, self.inner.options.decompressed_bytes_max, None))
    }

    /// As [`Log::read_from`], without the records of aborted transactions, and only up to the last stable offset.
    pub fn read_committed_from(&self, offset: u64) -> Result<Records> {
        let limit = if is_planted(Defect::ShowOpen) { self.end_offset() } else { self.last_stable_offset() };
        let batches = self.batches_up_to(offset, limit)?;
        let mut aborted = Vec::new();
        let set = self.segments();
        for segment in &set.all()[set.position_of(offset)..] {
            if is_planted(Defect::ShowAborted) || segment.aborted_in(offset, limit, &mut aborted)? {
                break;
            }
        }
        Ok(Records::new(batches, offset, self.inner.options.decompressed_bytes_max, Some(aborted)))
    }

    /// The batches from the one that holds `offset` to what is the end offset now, control batches included.
    pub fn batches_from(&self, offset: u64) -> Result<Batches> {
        self.batches_up_to(offset, self.end_offset())
    }

    fn batches_up_to(&self, offset: u64, limit: u64) -> Result<Batches> {
        self.check_readable(offset, self.end_offset())?;
        Batches::new(self.segments(), offset, limit)
    }

    pub(super) fn check_readable(&self, offset: u64, end: u64) -> Result<()> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "read", "the log was closed").at(self.path()));
        }
        let start = self.start_offset();
        if offset < start || offset > end {
            let detail = format!("the log holds offsets {start} to {end}");
            return Err(Error::new(ErrorKind::OutOfRange, "read", detail).at(self.path()).offset_at(offset));
        }
        Ok(())
    }

    /// Offset and timestamp (ms) of the first record whose timestamp is `timestamp_ms` or later.
    pub fn find_by_timestamp(&self, timestamp_ms: i64) -> Result<Option<(u64, i64)>> {
        let start = self.start_offset();
        let set = self.segments();
        for segment in &set.all()[set.position_of(start)..] {
            if segment.largest_timestamp() >= timestamp_ms
                && let Some(found) = self.find_in(segment, timestamp_ms, start)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_in(&self, segment: &Segment, timestamp_ms: i64, start: u64) -> Result<Option<(u64, i64)>> {
        let path = segment.path();
        let from = segment.time_for(timestamp_ms)?.offset.max(start);
        let file = segment.file()?;
        let mut decoder = Decoder::new(self.inner.options.decompressed_bytes_max);
        let mut scanner = segment.scan(&*file, u64::from(segment.position_for(from)?), TIME_SCAN_BYTES);
        while let Some(entry) = scanner.next() {
            let entry = entry.map_err(|e| e.in_file("read", &path))?;
            if entry.header.max_timestamp < timestamp_ms || entry.header.last_offset < start {
                continue;
            }
            let damage = |e: crate::record::DecodeError| Error::corrupt("read", &path, entry.position, e.to_string()).caused_by(e);
            for record in decoder.records(entry.bytes).map_err(damage)? {
                let record = record.map_err(damage)?;
                if record.timestamp >= timestamp_ms && record.offset >= start && !entry.header.is_control() {
                    return Ok(Some((record.offset, record.timestamp)));
                }
            }
        }
        Ok(None)
    }
}
