//! What the pass sees of a log: its segments as they were when the pass began, and who writes to it.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::Result;
use keeplog_engine::storage::File;
use keeplog_index::AbortedTxn;

/// One segment.
pub(crate) trait Source: Sync {
    /// Its first possible offset.
    fn base_offset(&self) -> u64;
    /// Bytes of its `.log` file. A file has fewer than 2^31.
    fn size_bytes(&self) -> u32;
    /// Bytes used in its offset index.
    fn offset_index_bytes(&self) -> u32;
    /// Bytes used in its time index.
    fn time_index_bytes(&self) -> u32;
    /// Modification time of its `.log` file, ms.
    fn modified_ms(&self) -> i64;
    /// What retention judges its age by, ms: its largest timestamp, if it has one that is not in the future.
    fn age_ms(&self) -> i64;
    /// Path of its `.log` file, for errors.
    fn path(&self) -> &Path;
    /// Its `.log` file, for reading.
    fn file(&self) -> Result<Arc<dyn File>>;
    /// Whether its outputs have taken its place before the pass is over. If nobody has asked for the log's transactions before
    /// that, it has none.
    fn is_gone(&self) -> bool {
        false
    }
    /// The positions that its offset index holds, as they stand there.
    fn index_positions(&self) -> Result<Vec<u32>>;
    /// The entries of its transaction index.
    fn aborted_txns(&self) -> Result<Vec<AbortedTxn>>;
}

/// The newest state of a producer that still counts as active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProducerEnd {
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    /// Last offset of its last data batch; `None` if only markers are known.
    pub(crate) last_data_offset: Option<u64>,
}

/// A log at one moment.
pub(crate) struct LogView<'a> {
    /// Ascending; the last one is the active segment.
    pub(crate) sources: &'a [Box<dyn Source + 'a>],
    /// First offset whose transaction is not decided.
    pub(crate) last_stable_offset: u64,
    pub(crate) producers: Vec<ProducerEnd>,
}

impl<'a> LogView<'a> {
    /// Where the segment after place `i` begins: above every offset of that one.
    pub(crate) fn next_base(&self, i: usize) -> u64 {
        self.sources.get(i + 1).map_or(u64::MAX, |next| next.base_offset())
    }

    /// Base offset of the active segment; 0 for a log without segments.
    pub(crate) fn active_base(&self) -> u64 {
        self.sources.last().map_or(0, |active| active.base_offset())
    }

    /// Bytes of the segments with a part in the dirty section `first_dirty..end`.
    pub(crate) fn dirty_bytes(&self, first_dirty: u64, end: u64) -> u64 {
        let dirty = (0..self.sources.len()).filter(|i| self.next_base(*i) > first_dirty && self.sources[*i].base_offset() < end);
        dirty.map(|i| u64::from(self.sources[i].size_bytes())).sum()
    }
}
