//! What only older data can tell about a transaction, settled before the newest-first pass meets it: one
//! ascending walk over the batch headers.
//!
//! - A data batch is *aborted* if its producer's next marker says so. That marker may stand above the range of
//!   the pass, even in the active segment: the walk goes on until every transaction that it has met is decided.
//! - A marker is *discardable* if no data batch of its transaction is left, not even an emptied one. An abort
//!   marker that is not discardable has its entry in the transaction index of the output.
//!
//! A log without transactions is never walked: the pass asks for this when it meets its first transactional or
//! control batch. Takes 8 bytes a discardable marker and 56 bytes an aborted transaction with data.

use std::collections::HashMap;

use keeplog_engine::Result;
use keeplog_engine::record::{BatchHeader, ControlType, Decoder};
use keeplog_engine::sync::{Mutex, OnceLock};
use keeplog_index::AbortedTxn;

use crate::source::Source;
use crate::walk::{HeaderWalk, Order, corrupt, corrupt_order};
use crate::work::lock;

/// Control records are some 40 bytes; the largest ones, of Raft snapshots, some kilobytes.
const CONTROL_BYTES_MAX: usize = 16 << 20;

/// The fate of the transactions below some offset.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Per producer, ascending: from the first offset of a transaction to its abort marker.
    aborted: HashMap<i64, Vec<(u64, u64)>>,
    /// Offsets of discardable markers, ascending.
    discardable: Vec<u64>,
    /// Aborted transactions with data left, ascending by their markers.
    aborts: Vec<AbortedTxn>,
}

impl Transactions {
    /// Walks `sources` (ascending), of which those below `limit` are the subject.
    pub(crate) fn walk(sources: &[Box<dyn Source + '_>], limit: u64) -> Result<Self> {
        let mut walk = Walk { decoder: Decoder::new(CONTROL_BYTES_MAX), open: HashMap::new(), found: Self::default() };
        for (i, source) in sources.iter().enumerate() {
            let subject = source.base_offset() < limit;
            if !subject && walk.open.is_empty() {
                break;
            }
            let next_base = sources.get(i + 1).map_or(u64::MAX, |next| next.base_offset());
            walk.segment(&**source, subject, next_base)?;
        }
        Ok(walk.found)
    }

    /// Whether `header`, of a transactional data batch, belongs to an aborted transaction.
    pub(crate) fn is_aborted(&self, header: &BatchHeader) -> bool {
        let Some(spans) = self.aborted.get(&header.producer_id) else { return false };
        let after = spans.partition_point(|(first, _)| *first <= header.base_offset);
        after > 0 && header.base_offset < spans[after - 1].1
    }

    /// Whether the end marker at `offset` has no data left.
    pub(crate) fn is_discardable(&self, offset: u64) -> bool {
        self.discardable.binary_search(&offset).is_ok()
    }

    /// The aborted transactions with data left whose markers are in `from..to`.
    pub(crate) fn aborts_between(&self, from: u64, to: u64) -> &[AbortedTxn] {
        let at = |offset| self.aborts.partition_point(|txn| txn.last_offset < offset);
        &self.aborts[at(from)..at(to)]
    }
}

struct Walk {
    decoder: Decoder,
    /// First offset of each transaction that is open where the walk stands, by producer.
    open: HashMap<i64, u64>,
    found: Transactions,
}

impl Walk {
    fn segment(&mut self, source: &dyn Source, subject: bool, next_base: u64) -> Result<()> {
        let file = source.file()?;
        let mut headers = HeaderWalk::new(source, &*file, 0, source.size_bytes());
        let mut order = Order::new(source.base_offset(), next_base);
        let aborts_before = self.found.aborts.len();
        while let Some((position, header)) = headers.next()? {
            order.check(&header).map_err(|detail| corrupt_order(source, position, &detail))?;
            if header.is_control() {
                let entry = headers.entry(position, &header)?;
                let control = self.control_type(entry).map_err(|e| corrupt(source, position, e))?;
                self.marker(&header, control, subject);
                if !subject && self.open.is_empty() {
                    break;
                }
            } else if header.is_transactional() && subject {
                self.open.entry(header.producer_id).or_insert(header.base_offset);
            }
        }
        self.take_stored(source, aborts_before)
    }

    /// `None` for a control batch that was emptied.
    fn control_type(&mut self, entry: &[u8]) -> Result<Option<ControlType>, keeplog_engine::record::DecodeError> {
        match self.decoder.records(entry)?.next() {
            Some(record) => ControlType::of_key(record?.key.unwrap_or_default()).map(Some),
            None => Ok(None),
        }
    }

    fn marker(&mut self, header: &BatchHeader, control: Option<ControlType>, subject: bool) {
        let aborts = match control {
            Some(ControlType::Abort) => true,
            Some(ControlType::Commit) => false,
            // An emptied marker ends nothing: it was emptied because nothing was left.
            _ => return,
        };
        let offset = header.base_offset;
        let Some(first) = self.open.remove(&header.producer_id) else {
            if subject {
                self.found.discardable.push(offset);
            }
            return;
        };
        if !aborts {
            return;
        }
        self.found.aborted.entry(header.producer_id).or_default().push((first, offset));
        if subject {
            let last_stable_offset = self.open.values().copied().min().unwrap_or(offset + 1);
            let producer_id = header.producer_id;
            self.found.aborts.push(AbortedTxn { producer_id, first_offset: first, last_offset: offset, last_stable_offset });
        }
    }

    /// The segment's own index knows better where its transactions began: their first batches may be gone.
    fn take_stored(&mut self, source: &dyn Source, aborts_before: usize) -> Result<()> {
        let derived = &mut self.found.aborts[aborts_before..];
        if derived.is_empty() {
            return Ok(());
        }
        for stored in source.aborted_txns()? {
            if let Ok(i) = derived.binary_search_by_key(&stored.last_offset, |txn| txn.last_offset)
                && derived[i].producer_id == stored.producer_id
                && stored.first_offset <= derived[i].first_offset
            {
                derived[i] = stored;
            }
        }
        Ok(())
    }
}

/// [`Transactions`] that are walked for when somebody first asks.
pub(crate) struct LazyTransactions<'a> {
    sources: &'a [Box<dyn Source + 'a>],
    limit: u64,
    walked: OnceLock<Transactions>,
    walking: Mutex<()>,
}

impl<'a> LazyTransactions<'a> {
    /// For the transactions below `limit`.
    pub(crate) fn new(sources: &'a [Box<dyn Source + 'a>], limit: u64) -> Self {
        Self { sources, limit, walked: OnceLock::new(), walking: Mutex::new(()) }
    }

    /// Walks now if nobody has asked before.
    pub(crate) fn get(&self) -> Result<&Transactions> {
        if let Some(walked) = self.walked.get() {
            return Ok(walked);
        }
        // Of several who ask at the same time, one walks.
        let _walking = lock(&self.walking);
        if let Some(walked) = self.walked.get() {
            return Ok(walked);
        }
        let walked = Transactions::walk(self.sources, self.limit)?;
        Ok(self.walked.get_or_init(|| walked))
    }

    /// What was found, if anybody has asked.
    pub(crate) fn known(&self) -> Option<&Transactions> {
        self.walked.get()
    }
}
