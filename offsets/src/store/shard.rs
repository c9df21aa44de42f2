//! One partition of the store: its log, and the cache that follows it.
//!
//! Whatever is written is first appended, under `order`, and noted there; then synced, outside of any lock, so that
//! all who wait share one sync; then shown, in the order of the log, with everything noted before it, which the same
//! sync has covered. So the cache never runs ahead of stable storage, and two commits for the same place end as the
//! log has them, whichever thread is first to return.
//!
//! Locks are taken in this order: `order`, `served`.

use std::collections::{BTreeSet, VecDeque};

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::Record;
use keeplog_engine::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use keeplog_engine::{Durability, Error, ErrorKind, Log, Result};

use super::types::LoadReport;
use crate::cache::OffsetCache;
use crate::load::{load, threads_for};
use crate::record::OffsetKey;
use crate::replay::{Origin, Replay};

/// More than what any batch header and the framing of one record take.
const BATCH_OVERHEAD_BYTES: usize = 128;
const RECORD_OVERHEAD_BYTES: usize = 32;

pub(super) struct Shard {
    log: Log,
    order: Mutex<VecDeque<Unshown>>,
    served: RwLock<Served>,
}

enum Served {
    Loaded(Box<Replay>),
    /// The load failed: there is nothing to serve.
    Failed {
        kind: ErrorKind,
        why: String,
    },
}

/// Appended, and not shown yet.
struct Unshown {
    base_offset: u64,
    last_offset: u64,
    records: Vec<Record>,
}

impl Shard {
    pub(super) fn open(log: Log) -> Result<(Self, LoadReport)> {
        // A process that was killed leaves what it wrote, but not all of it is safe yet; and what is shown must be.
        log.sync()?;
        let (replay, report) = load(&log, threads_for(&log, None))?;
        Ok((Self { log, order: Mutex::default(), served: RwLock::new(Served::Loaded(Box::new(replay))) }, report))
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Reads what is committed.
    pub(super) fn read<T>(&self, reading: impl FnOnce(&OffsetCache) -> T) -> Result<T> {
        self.replay(|replay| reading(replay.cache()))
    }

    /// Writes `records` as one batch and shows them.
    pub(super) fn write(&self, durability: Durability, records: Vec<Record>) -> Result<()> {
        let mut order = self.order();
        self.replay(|_| ())?;
        let last_offset = self.append(&mut order, records)?;
        drop(order);
        self.finish(durability, last_offset)
    }

    /// Removes those of `keys` for which anything is committed, or waits to be. Returns how many.
    pub(super) fn delete(&self, durability: Durability, keys: &[OffsetKey<'_>]) -> Result<usize> {
        let order = self.order();
        let held = self.replay(|replay| {
            keys.iter()
                .filter(|key| replay.cache().get(key).is_some() || replay.is_pending(key))
                .filter_map(encoded)
                .collect::<BTreeSet<_>>()
        })?;
        let unshown = unshown_keys(&order);
        let asked = keys.iter().filter_map(encoded).filter(|key| unshown.contains(&key[..]));
        let doomed: BTreeSet<_> = asked.chain(held).collect();
        self.write_tombstones(order, durability, doomed)
    }

    /// Removes all that `group` has committed, or has waiting. Returns how many.
    pub(super) fn delete_group(&self, durability: Durability, group: &str) -> Result<usize> {
        let order = self.order();
        let mut doomed = self.replay(|replay| {
            let committed = replay.cache().list_group(group);
            let committed = committed.iter().map(|o| OffsetKey { group, topic: &o.topic, partition: o.partition });
            committed.chain(replay.pending_of(group)).filter_map(|key| encoded(&key)).collect::<BTreeSet<_>>()
        })?;
        let of_group = |key: &&[u8]| matches!(OffsetKey::decode(key), Ok(Some(key)) if key.group == group);
        doomed.extend(unshown_keys(&order).into_iter().filter(of_group).map(<[u8]>::to_vec));
        self.write_tombstones(order, durability, doomed)
    }

    /// Reads the log anew. If that fails, nothing is served until it succeeds.
    pub(super) fn reload(&self) -> Result<LoadReport> {
        let mut order = self.order();
        // What is shown must be durable, and all that the log holds is about to be shown.
        self.log.sync()?;
        let loaded = load(&self.log, threads_for(&self.log, None));
        let mut served = self.served_mut();
        match loaded {
            Ok((replay, report)) => {
                *served = Served::Loaded(Box::new(replay));
                order.clear();
                Ok(report)
            }
            Err(error) => {
                *served = Served::Failed { kind: error.kind(), why: error.to_string() };
                Err(error)
            }
        }
    }

    fn write_tombstones(
        &self,
        mut order: MutexGuard<'_, VecDeque<Unshown>>,
        durability: Durability,
        keys: BTreeSet<Vec<u8>>,
    ) -> Result<usize> {
        let count = keys.len();
        let limit = self.log.options().max_message_bytes.min(self.log.options().segment_bytes) as usize;
        if is_planted(Defect::ForgetDeletion) {
            return Ok(count);
        }
        let mut last_offset = None;
        let mut batch = Vec::new();
        let mut bytes = BATCH_OVERHEAD_BYTES;
        for key in keys {
            bytes += key.len() + RECORD_OVERHEAD_BYTES;
            if bytes > limit && !batch.is_empty() {
                last_offset = Some(self.append(&mut order, std::mem::take(&mut batch))?);
                bytes = BATCH_OVERHEAD_BYTES + key.len() + RECORD_OVERHEAD_BYTES;
            }
            batch.push(Record::tombstone(key));
        }
        if !batch.is_empty() {
            last_offset = Some(self.append(&mut order, batch)?);
        }
        drop(order);
        last_offset.map_or(Ok(()), |last_offset| self.finish(durability, last_offset))?;
        Ok(count)
    }

    fn append(&self, order: &mut VecDeque<Unshown>, records: Vec<Record>) -> Result<u64> {
        let placed = self.log.append(&records, Durability::Buffered)?;
        order.push_back(Unshown { base_offset: placed.base_offset, last_offset: placed.last_offset, records });
        Ok(placed.last_offset)
    }

    /// Waits for the acknowledgement that is due, then shows everything up to `last_offset`.
    fn finish(&self, durability: Durability, last_offset: u64) -> Result<()> {
        let early = is_planted(Defect::ShowCommitBeforeSync);
        if durability == Durability::Synced && !early {
            self.log.sync()?;
        }
        let mut order = self.order();
        let mut served = self.served_mut();
        while let Some(next) = order.pop_front_if(|next| next.last_offset <= last_offset) {
            // A load that failed meanwhile has more to say than one commit.
            let Served::Loaded(replay) = &mut *served else { continue };
            for (offset, record) in (next.base_offset..).zip(&next.records) {
                // invariant: these bytes were made by the encoders of this crate.
                replay.record(Origin::Plain, offset, record.key.as_deref(), record.value.as_deref()).expect("reads what it writes");
            }
        }
        if early {
            drop((order, served));
            self.log.sync()?;
        }
        Ok(())
    }

    fn replay<T>(&self, reading: impl FnOnce(&Replay) -> T) -> Result<T> {
        match &*self.served() {
            Served::Loaded(replay) => Ok(reading(replay)),
            Served::Failed { kind, why } => {
                let detail = format!("loading them failed, and an old answer could be wrong: {why}");
                Err(Error::new(*kind, "serve committed offsets from", detail).at(self.log.path()))
            }
        }
    }

    fn order(&self) -> MutexGuard<'_, VecDeque<Unshown>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn served(&self) -> RwLockReadGuard<'_, Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn served_mut(&self) -> RwLockWriteGuard<'_, Served> {
        self.served.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As written. `None` for names that no record can hold, and so none does.
fn encoded(key: &OffsetKey<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes).then_some(bytes)
}

fn unshown_keys(order: &VecDeque<Unshown>) -> BTreeSet<&[u8]> {
    order.iter().flat_map(|unshown| &unshown.records).filter_map(|record| record.key.as_deref()).collect()
}

#[cfg(test)]
mod tests;
