//! The indexes of a segment that is being written: the active one, one under recovery, an output of a rewrite.

use keeplog_index::{AbortedTxn, IndexError, IndexInterval, OffsetIndex, RELATIVE_OFFSET_MAX, TimeIndex, TxnIndex};

use crate::record::BatchHeader;

/// The three indexes in memory, fed batch by batch in the order of the log.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    pub(crate) offset: OffsetIndex<Vec<u8>>,
    pub(crate) time: TimeIndex<Vec<u8>>,
    pub(crate) txn: TxnIndex<Vec<u8>>,
    interval: IndexInterval,
    index_bytes_max: u32,
    /// Largest timestamp so far, -1 for none, and the last offset of the earliest batch that has it.
    largest_timestamp: i64,
    largest_timestamp_offset: u64,
}

impl IndexBuilder {
    /// For an empty segment. `index_bytes_max` is the room of each index, `interval_bytes` the log bytes between two entries.
    pub(crate) fn new(base_offset: u64, interval_bytes: u32, index_bytes_max: u32) -> Self {
        Self {
            offset: OffsetIndex::empty(base_offset),
            time: TimeIndex::empty(base_offset),
            txn: TxnIndex::empty(),
            interval: IndexInterval::new(interval_bytes),
            index_bytes_max,
            largest_timestamp: -1,
            largest_timestamp_offset: base_offset,
        }
    }

    /// Takes the indexes of a segment that was closed cleanly and is continued.
    pub(crate) fn resume(&mut self, offset: OffsetIndex<Vec<u8>>, time: TimeIndex<Vec<u8>>, txn: TxnIndex<Vec<u8>>) {
        if let Some(last) = time.last() {
            self.largest_timestamp = last.timestamp;
            self.largest_timestamp_offset = last.offset;
        }
        self.offset = offset;
        self.time = time;
        self.txn = txn;
    }

    /// Takes in the batch that stands at `position`. A full index gets no more entries: it stays sparse, and right. After
    /// an error nothing is taken in: an offset that no entry can express must not come back when the index is closed.
    pub(crate) fn batch(&mut self, header: &BatchHeader, position: u32) -> Result<(), IndexError> {
        let (base, offset) = (self.offset.base(), header.last_offset);
        if offset.checked_sub(base).is_none_or(|relative| relative > RELATIVE_OFFSET_MAX) {
            let next = base.saturating_add(RELATIVE_OFFSET_MAX + 1);
            return Err(IndexError::OffsetOutside { entry: self.offset.len(), offset, base, next });
        }
        if header.max_timestamp > self.largest_timestamp {
            self.largest_timestamp = header.max_timestamp;
            self.largest_timestamp_offset = header.last_offset;
        }
        if self.interval.admit(u64::from(header.size)) && !self.is_full() {
            self.offset.append(header.last_offset, position)?;
            self.offer_time()?;
        }
        Ok(())
    }

    /// Takes in an aborted transaction whose marker is in this segment.
    pub(crate) fn aborted(&mut self, txn: AbortedTxn) -> Result<(), IndexError> {
        self.txn.append(txn)
    }

    /// Adds the closing entry of the time index, for which one slot is always kept.
    pub(crate) fn close(&mut self) -> Result<(), IndexError> {
        self.offer_time()
    }

    /// Whether the next entry would not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.offset.is_full(self.index_bytes_max) || self.time.is_full(self.index_bytes_max)
    }

    /// Largest timestamp so far, ms; -1 for none.
    pub(crate) fn largest_timestamp(&self) -> i64 {
        self.largest_timestamp
    }

    fn offer_time(&mut self) -> Result<(), IndexError> {
        if self.largest_timestamp >= 0 {
            self.time.maybe_append(self.largest_timestamp, self.largest_timestamp_offset)?;
        }
        Ok(())
    }
}
