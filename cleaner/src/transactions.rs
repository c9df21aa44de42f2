//! What only older data can tell about a transaction, settled before the newest-first pass meets it: one
//! ascending walk over the batch headers.
//!
//! - A data batch is *aborted* if its producer's next marker says so. That marker may stand above the range of
//!   the pass, even in the active segment: the walk goes on until every transaction that it has met is decided.
//! - A marker is *discardable* if no data batch of its transaction is left, not even an emptied one. An abort
//!   marker that is not discardable has its entry in the transaction index of the output.
//!
//! What it believes is checked: markers here, and everything in segments that the pass does not read; all other checksums are
//! checked by the pass, which swaps no segment before all that is newer is checked.
//!
//! A log without transactions is never walked: the pass asks for this when it meets its first transactional or
//! control batch. Takes 8 bytes a discardable marker and 56 bytes an aborted transaction with data.

use std::collections::{BTreeMap, HashMap, HashSet};

use keeplog_engine::record::{BatchHeader, ControlType, DecodeError, Decoder};
use keeplog_engine::sync::atomic::{AtomicUsize, Ordering};
use keeplog_engine::sync::{Mutex, OnceLock, on_threads};
use keeplog_engine::{Error, Result};
use keeplog_index::AbortedTxn;

use crate::source::Source;
use crate::walk::{HeaderWalk, Order, corrupt, corrupt_order};
use crate::work::{lock, unlocked};

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
    /// Walks `sources` (ascending), of which those below `limit` are the subject, on so many threads. The checksums of those
    /// below `checked` are checked elsewhere.
    pub(crate) fn walk(sources: &[Box<dyn Source + '_>], limit: u64, checked: u64, threads: usize) -> Result<Self> {
        let subjects = sources.partition_point(|source| source.base_offset() < limit);
        let next_base = |at: usize| sources.get(at + 1).map_or(u64::MAX, |next| next.base_offset());
        // What stands in the segments is read side by side, and what it means told in their order.
        let told = Mutex::new(Told { open: HashMap::new(), found: Self::default(), next: 0, waiting: BTreeMap::new(), failed: None });
        let begun = AtomicUsize::new(0);
        on_threads(threads.min(subjects), || {
            loop {
                let at = begun.fetch_add(1, Ordering::Relaxed);
                if at >= subjects || lock(&told).failed.is_some() {
                    return;
                }
                let check = sources[at].base_offset() >= checked;
                let events = events(&*sources[at], next_base(at), check, |_| false);
                lock(&told).take(at, events, sources);
            }
        });
        let mut told = unlocked(told);
        if let Some((_, error)) = told.failed {
            return Err(error);
        }
        for (at, source) in sources.iter().enumerate().skip(subjects) {
            if told.open.is_empty() {
                break;
            }
            told.beyond(&**source, next_base(at))?;
        }
        Ok(told.found)
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

/// What the transactions of a segment come to.
#[derive(Clone, Copy, Debug)]
struct Event {
    producer_id: i64,
    offset: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The first data since the producer's last marker, or since the segment began.
    Data,
    Commit,
    Abort,
}

/// The events of a segment, up to the first that is enough. Checksums of markers are checked, those of everything on demand.
fn events(source: &dyn Source, next_base: u64, check: bool, mut is_enough: impl FnMut(&Event) -> bool) -> Result<Vec<Event>> {
    let file = match source.file() {
        Err(_) if source.is_gone() => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut decoder = Decoder::new(CONTROL_BYTES_MAX);
    let mut headers = HeaderWalk::new(source, &*file, 0, source.size_bytes());
    let mut order = Order::new(source.base_offset(), next_base);
    let mut events = Vec::new();
    let mut writing = HashSet::new();
    while let Some((position, header)) = headers.next()? {
        order.check(&header).map_err(|detail| corrupt_order(source, position, &detail))?;
        let (producer_id, offset) = (header.producer_id, header.base_offset);
        if check || header.is_control() {
            header.verify_crc(headers.entry(position, &header)?).map_err(|e| corrupt(source, position, e))?;
        }
        if header.is_control() {
            let control = control_type(&mut decoder, headers.entry(position, &header)?).map_err(|e| corrupt(source, position, e))?;
            let what = match control {
                Some(ControlType::Abort) => What::Abort,
                Some(ControlType::Commit) => What::Commit,
                // An emptied marker ends nothing: it was emptied because nothing was left.
                _ => continue,
            };
            writing.remove(&producer_id);
            let event = Event { producer_id, offset, what };
            events.push(event);
            if is_enough(&event) {
                break;
            }
        } else if header.is_transactional() && writing.insert(producer_id) {
            events.push(Event { producer_id, offset, what: What::Data });
        }
    }
    Ok(events)
}

/// `None` for a control batch that was emptied.
fn control_type(decoder: &mut Decoder, entry: &[u8]) -> Result<Option<ControlType>, DecodeError> {
    match decoder.records(entry)?.next() {
        Some(record) => ControlType::of_key(record?.key.unwrap_or_default()).map(Some),
        None => Ok(None),
    }
}

/// What is told by the segments so far, in their order.
struct Told {
    /// First offset of each open transaction, by producer.
    open: HashMap<i64, u64>,
    found: Transactions,
    /// The segment whose events come next, and those of later ones that are there already.
    next: usize,
    waiting: BTreeMap<usize, Vec<Event>>,
    /// The lowest segment that could not be read.
    failed: Option<(usize, Error)>,
}

impl Told {
    /// Takes the events of segment `at`, and tells those whose turn it is.
    fn take(&mut self, at: usize, events: Result<Vec<Event>>, sources: &[Box<dyn Source + '_>]) {
        match events {
            Ok(events) => _ = self.waiting.insert(at, events),
            Err(error) => self.fail(at, error),
        }
        while let Some(events) = self.waiting.remove(&self.next) {
            let before = self.found.aborts.len();
            events.iter().for_each(|event| self.tell(event, true));
            if let Err(error) = self.take_stored(&*sources[self.next], before) {
                self.fail(self.next, error);
            }
            self.next += 1;
        }
    }

    fn fail(&mut self, at: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(lowest, _)| *lowest > at) {
            self.failed = Some((at, error));
        }
    }

    /// How the transactions end that are open, by a segment that is not a subject.
    fn beyond(&mut self, source: &dyn Source, next_base: u64) -> Result<()> {
        let mut left: HashSet<i64> = self.open.keys().copied().collect();
        let ends_last = |event: &Event| left.remove(&event.producer_id) && left.is_empty();
        events(source, next_base, true, ends_last)?
            .iter()
            .filter(|event| event.what != What::Data)
            .for_each(|event| self.tell(event, false));
        Ok(())
    }

    fn tell(&mut self, event: &Event, subject: bool) {
        let Event { producer_id, offset, what } = *event;
        if what == What::Data {
            self.open.entry(producer_id).or_insert(offset);
            return;
        }
        let Some(first) = self.open.remove(&producer_id) else {
            if subject {
                self.found.discardable.push(offset);
            }
            return;
        };
        if what == What::Commit {
            return;
        }
        self.found.aborted.entry(producer_id).or_default().push((first, offset));
        if subject {
            let last_stable_offset = self.open.values().copied().min().unwrap_or(offset + 1);
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
    checked: u64,
    threads: usize,
    walked: OnceLock<Transactions>,
    walking: Mutex<()>,
}

impl<'a> LazyTransactions<'a> {
    /// For the transactions below `limit`, walked for on so many threads; checksums below `checked` are checked by the pass.
    pub(crate) fn new(sources: &'a [Box<dyn Source + 'a>], limit: u64, checked: u64, threads: usize) -> Self {
        Self { sources, limit, checked, threads, walked: OnceLock::new(), walking: Mutex::new(()) }
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
        let walked = Transactions::walk(self.sources, self.limit, self.checked, self.threads)?;
        Ok(self.walked.get_or_init(|| walked))
    }

    /// What was found, if anybody has asked.
    pub(crate) fn known(&self) -> Option<&Transactions> {
        self.walked.get()
    }
}
