//! What the log knows of its producers: sequence numbers, epochs, open transactions.
//!
//! The state is a fold of the batches of the log, in order. It is kept in memory, saved beside the log in
//! snapshots ([`snapshot`]) and rebuilt by replay. Only batches with a producer id count.

pub mod snapshot;

use std::collections::{BTreeMap, HashMap, VecDeque};

use keeplog_index::AbortedTxn;

use crate::record::{BatchHeader, ControlType};
use crate::{Error, ErrorKind, Result};

/// Batches remembered per producer for telling duplicates.
const REMEMBERED_BATCHES: usize = 5;

/// A batch that a producer wrote, as far as telling duplicates needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RememberedBatch {
    pub(crate) last_sequence: i32,
    pub(crate) last_offset: u64,
    /// Last offset minus base offset.
    pub(crate) offset_delta: u32,
    pub(crate) timestamp: i64,
}

impl RememberedBatch {
    fn base_offset(&self) -> u64 {
        self.last_offset - u64::from(self.offset_delta)
    }

    fn base_sequence(&self) -> i32 {
        let back = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        (if back < 0 { back + (1 << 31) } else { back }) as i32
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducerEntry {
    pub(crate) epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) last_timestamp: i64,
    pub(crate) open_txn_first_offset: Option<u64>,
    /// Oldest first.
    pub(crate) batches: VecDeque<RememberedBatch>,
}

impl ProducerEntry {
    fn new(epoch: i16) -> Self {
        Self { epoch, coordinator_epoch: -1, last_timestamp: -1, open_txn_first_offset: None, batches: VecDeque::new() }
    }

    fn enter_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }

    fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(-1, |b| b.last_sequence)
    }

    fn as_active(&self, id: i64) -> ActiveProducer {
        ActiveProducer {
            id,
            epoch: self.epoch,
            last_sequence: self.last_sequence(),
            last_data_offset: self.batches.back().map(|b| b.last_offset),
            open_txn_first_offset: self.open_txn_first_offset,
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
        }
    }
}

/// One known producer, as tools and the cleaner see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Producer id.
    pub id: i64,
    /// Its newest epoch.
    pub epoch: i16,
    /// Sequence number of its last record; -1 none.
    pub last_sequence: i32,
    /// Last offset of its last data batch.
    pub last_data_offset: Option<u64>,
    /// First offset of its open transaction.
    pub open_txn_first_offset: Option<u64>,
    /// Time of its last batch or marker, ms.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote its last marker; -1 none.
    pub coordinator_epoch: i32,
}

/// What a control batch says about its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) kind: ControlType,
    pub(crate) coordinator_epoch: i32,
    pub(crate) timestamp: i64,
}

/// Whether the sequence numbers of a batch say which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequences {
    /// A producer counts.
    Checked,
    /// A coordinator writes in the producer's name, and does not.
    Ignored,
}

/// What the state says about a batch that a producer wants to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    /// It comes next.
    Next,
    /// It is there already, at these offsets.
    Duplicate { base_offset: u64, last_offset: u64, timestamp: i64 },
}

/// The state of all producers of one log, up to some offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProducerStates {
    entries: HashMap<i64, ProducerEntry>,
    /// First offset of each open transaction, and its producer.
    open: BTreeMap<u64, i64>,
}

impl ProducerStates {
    /// First offset of the oldest open transaction.
    pub(crate) fn first_unstable_offset(&self) -> Option<u64> {
        self.open.keys().next().copied()
    }

    /// All known producers, by id.
    pub(crate) fn active(&self) -> Vec<ActiveProducer> {
        let mut all: Vec<_> = self.entries.iter().map(|(&id, entry)| entry.as_active(id)).collect();
        all.sort_unstable_by_key(|p| p.id);
        all
    }

    pub(crate) fn active_one(&self, id: i64) -> Option<ActiveProducer> {
        self.entries.get(&id).map(|entry| entry.as_active(id))
    }

    /// Judges a batch of a producer before it is appended: fencing, duplicates, order of sequences.
    pub(crate) fn check(&self, header: &BatchHeader, sequences: Sequences) -> Result<SequenceCheck> {
        let refuse = |kind, detail: String| Err(Error::new(kind, "append a batch of a producer", detail));
        let (id, epoch) = (header.producer_id, header.producer_epoch);
        let Some(entry) = self.entries.get(&id) else { return Ok(SequenceCheck::Next) };
        if epoch < entry.epoch {
            return refuse(ErrorKind::ProducerFenced, format!("producer {id} has epoch {}, the batch has {epoch}", entry.epoch));
        }
        if entry.open_txn_first_offset.is_some() && !header.is_transactional() {
            return refuse(ErrorKind::InvalidInput, format!("producer {id} has an open transaction and the batch is not part of it"));
        }
        if sequences == Sequences::Ignored {
            return Ok(SequenceCheck::Next);
        }
        if epoch == entry.epoch {
            let (first, last) = (header.base_sequence, header.last_sequence());
            if let Some(known) = entry.batches.iter().find(|b| b.last_sequence == last && b.base_sequence() == first) {
                return Ok(SequenceCheck::Duplicate {
                    base_offset: known.base_offset(),
                    last_offset: known.last_offset,
                    timestamp: known.timestamp,
                });
            }
        }
        let last = if epoch == entry.epoch { entry.last_sequence() } else { -1 };
        let next = if last == i32::MAX { 0 } else { last + 1 };
        if header.base_sequence == next || header.base_sequence < 0 {
            return Ok(SequenceCheck::Next);
        }
        refuse(
            ErrorKind::OutOfOrderSequence,
            format!("producer {id} epoch {epoch}: sequence {next} comes next, the batch has {}", header.base_sequence),
        )
    }

    /// Judges an end marker of a transaction before it is appended.
    pub(crate) fn check_marker(&self, producer_id: i64, epoch: i16, coordinator_epoch: i32) -> Result<()> {
        let Some(entry) = self.entries.get(&producer_id) else { return Ok(()) };
        if epoch < entry.epoch || coordinator_epoch < entry.coordinator_epoch {
            let detail = format!(
                "producer {producer_id} has epoch {} and coordinator epoch {}, the marker has {epoch} and {coordinator_epoch}",
                entry.epoch, entry.coordinator_epoch
            );
            return Err(Error::new(ErrorKind::ProducerFenced, "end a transaction", detail));
        }
        Ok(())
    }

    /// Takes in a batch of the log. `marker` is what a control batch says; `None` for data and for an emptied
    /// control batch, which is ignored. Returns the transaction that the batch ends by an abort.
    pub(crate) fn apply(&mut self, header: &BatchHeader, marker: Option<Marker>) -> Option<AbortedTxn> {
        if !header.has_producer() || (header.is_control() && marker.is_none()) {
            return None;
        }
        match marker {
            Some(marker) if header.is_control() => self.apply_marker(header, marker),
            _ => {
                self.apply_data(header);
                None
            }
        }
    }

    fn apply_data(&mut self, header: &BatchHeader) {
        let entry = self.entries.entry(header.producer_id).or_insert_with(|| ProducerEntry::new(header.producer_epoch));
        entry.enter_epoch(header.producer_epoch);
        if entry.batches.len() == REMEMBERED_BATCHES {
            entry.batches.pop_front();
        }
        entry.batches.push_back(RememberedBatch {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset,
            offset_delta: (header.last_offset - header.base_offset) as u32,
            timestamp: header.max_timestamp,
        });
        entry.last_timestamp = header.max_timestamp;
        if header.is_transactional() && entry.open_txn_first_offset.is_none() {
            entry.open_txn_first_offset = Some(header.base_offset);
            self.open.insert(header.base_offset, header.producer_id);
        }
    }

    fn apply_marker(&mut self, header: &BatchHeader, marker: Marker) -> Option<AbortedTxn> {
        if !matches!(marker.kind, ControlType::Abort | ControlType::Commit) {
            return None;
        }
        let entry = self.entries.entry(header.producer_id).or_insert_with(|| ProducerEntry::new(header.producer_epoch));
        entry.enter_epoch(header.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = marker.timestamp;
        let first_offset = entry.open_txn_first_offset.take()?;
        self.open.remove(&first_offset);
        (marker.kind == ControlType::Abort).then(|| AbortedTxn {
            producer_id: header.producer_id,
            first_offset,
            last_offset: header.last_offset,
            last_stable_offset: self.first_unstable_offset().unwrap_or(header.last_offset + 1),
        })
    }

    /// Forgets producers without open transaction that have been idle for `expiration_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.entries.retain(|_, e| e.open_txn_first_offset.is_some() || now_ms.saturating_sub(e.last_timestamp) < expiration_ms);
    }
}
