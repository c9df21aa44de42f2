//! One partition of the store: its log, and the cache that follows it.
//!
//! Whatever is written is first appended, under `order`, and noted there; then synced, outside of any lock, so that
//! all who wait share one sync; then shown, in the order of the log, with everything noted before it, which the same
//! sync has covered. So the cache never runs ahead of stable storage, and two commits for the same place end as the
//! log has them, whichever thread is first to return. Those who wait for an answer get it in that order, too.
//!
//! Locks are taken in this order: `order`, `served`, `answers`.

mod answers;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::{Record, TxnResult};
use keeplog_engine::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use keeplog_engine::{Durability, Error, ErrorKind, Log, Result, TransactionEnd};

use self::answers::Answers;
use super::counters::Counters;
use super::leading::{Leading, Served};
use super::snapshots::Snapshots;
use super::types::Producer;
use crate::cache::OffsetCache;
use crate::pending::{Drive, Promise};
use crate::replay::{Origin, Outcome, Replay};

pub(super) struct Shard {
    log: Log,
    order: Mutex<Order>,
    served: RwLock<Served>,
    answers: Answers,
    counters: Arc<Counters>,
    pub(super) snapshots: Snapshots,
}

/// What is to be done in the order of the log.
#[derive(Default)]
pub(super) struct Order {
    unshown: VecDeque<Unshown>,
    /// The last write that somebody waits for, or waited: its last offset.
    last_owed: Option<u64>,
    /// The last offset that was shown without a sync, which is still to come.
    unsynced: Option<u64>,
    pub(super) leading: Leading,
}

/// Appended, and not shown yet.
struct Unshown {
    base_offset: u64,
    last_offset: u64,
    what: Written,
    promise: Option<Promise>,
}

enum Written {
    Records(Origin, Vec<Record>),
    Marker(Producer, Outcome),
}

/// How far a write must have come before it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// On stable storage; others' syncs are waited for so long.
    Synced(Option<Duration>),
    Written,
    /// It is left to the background thread.
    Queued,
}

impl Shard {
    /// A partition that is not led.
    pub(super) fn new(log: Log, counters: Arc<Counters>) -> Self {
        let (order, answers) = (Mutex::default(), Answers::default());
        Self { log, order, served: RwLock::new(Served::NotLed), answers, counters, snapshots: Snapshots::default() }
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Reads what is committed.
    pub(super) fn read<T>(&self, reading: impl FnOnce(&OffsetCache) -> T) -> Result<T> {
        self.replay(|replay| reading(replay.cache()))
    }

    /// Reads what is committed, and what waits to be.
    pub(super) fn replay<T>(&self, reading: impl FnOnce(&Replay) -> T) -> Result<T> {
        Ok(reading(self.served().loaded(&self.log)?))
    }

    /// Writes `records` as one batch, in the order that `order` stands for. Returns its last offset.
    pub(super) fn append(
        &self,
        order: &mut Order,
        producer: Option<Producer>,
        records: Vec<Record>,
        promise: Option<Promise>,
    ) -> Result<u64> {
        let placed = match producer {
            None => self.log.append(&records, Durability::Buffered)?,
            Some(Producer { id, epoch }) => self.log.append_in_transaction(id, epoch, &records, Durability::Buffered)?,
        };
        let origin = producer.map_or(Origin::Plain, |producer| Origin::Transaction { producer_id: producer.id });
        let (base_offset, last_offset) = (placed.base_offset, placed.last_offset);
        if promise.is_some() {
            order.last_owed = Some(last_offset);
        }
        order.unshown.push_back(Unshown { base_offset, last_offset, what: Written::Records(origin, records), promise });
        Ok(last_offset)
    }

    /// Writes the marker that ends the transaction of `producer`. Returns its offset.
    pub(super) fn append_marker(&self, order: &mut Order, producer: Producer, outcome: Outcome) -> Result<u64> {
        let result = match outcome {
            Outcome::Commit => TxnResult::Committed,
            Outcome::Abort => TxnResult::Aborted,
        };
        // A broker that had this log may have counted further.
        let coordinator_epoch = self.log.active_producer(producer.id).map_or(0, |known| known.coordinator_epoch.max(0));
        let end = TransactionEnd { producer_id: producer.id, producer_epoch: producer.epoch, result, coordinator_epoch };
        let placed = self.log.end_transaction(&end, Durability::Buffered)?;
        let (base_offset, last_offset) = (placed.base_offset, placed.last_offset);
        order.unshown.push_back(Unshown { base_offset, last_offset, what: Written::Marker(producer, outcome), promise: None });
        Ok(last_offset)
    }

    /// Waits until what was written up to `last_offset` may be shown, and shows it, with everything before it.
    pub(super) fn finish(&self, until: Until, last_offset: u64) -> Result<()> {
        let early = is_planted(Defect::ShowCommitBeforeSync);
        if !early && let Err(error) = self.wait(until) {
            if error.kind() != ErrorKind::TimedOut {
                self.fail(&error);
            }
            return Err(error);
        }
        let mut order = self.order();
        order.unsynced = match until {
            Until::Written if !is_planted(Defect::ForgetWritten) => order.unsynced.max(Some(last_offset)),
            _ => order.unsynced.filter(|unsynced| *unsynced > last_offset),
        };
        self.show(&mut order, last_offset);
        drop(order);
        self.answers.give();
        if early {
            self.wait(until)?;
        }
        Ok(())
    }

    /// Syncs and shows everything that is written.
    pub(super) fn flush(&self) -> Result<()> {
        let order = self.order();
        let Some(last_offset) = order.unshown.back().map(|last| last.last_offset).max(order.unsynced) else { return Ok(()) };
        drop(order);
        self.finish(Until::Synced(None), last_offset)
    }

    fn wait(&self, until: Until) -> Result<()> {
        match until {
            Until::Written | Until::Queued => Ok(()),
            Until::Synced(None) => self.log.sync(),
            Until::Synced(Some(at_most)) => self.log.sync_within(at_most),
        }
    }

    fn show(&self, order: &mut Order, last_offset: u64) {
        let mut served = self.served_mut();
        let mut commits = 0;
        while let Some(next) = order.unshown.pop_front_if(|next| next.last_offset <= last_offset) {
            // A load that failed meanwhile has more to say than one commit.
            if let Served::Loaded(shown) = &mut *served {
                next.show(&mut shown.replay);
                shown.has_gaps |= next.base_offset != shown.end_offset;
                shown.end_offset = next.last_offset + 1;
                commits += next.commits();
            }
            if let Some(promise) = next.promise {
                self.answers.push(promise, Ok(()));
            }
        }
        self.counters.shown(commits);
    }

    /// Gives back the room that many removals have left in the cache.
    pub(super) fn compact(&self) {
        if let Served::Loaded(shown) = &mut *self.served_mut() {
            shown.replay.compact();
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Tells those who wait that it is not known what became of their writes.
    fn fail(&self, cause: &Error) {
        let mut order = self.order();
        // What an earlier sync has covered is safe, and acknowledged by whoever waited for that.
        if let Some(last_safe) = self.log.recovery_point().checked_sub(1) {
            self.show(&mut order, last_safe);
        }
        for promise in order.give_up() {
            let detail = format!("it may show after the next load: {cause}");
            self.answers.push(promise, Err(Error::new(cause.kind(), "make durable what was committed to", detail).at(self.log.path())));
        }
        drop(order);
        self.answers.give();
    }

    pub(super) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn served(&self) -> RwLockReadGuard<'_, Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn served_mut(&self) -> RwLockWriteGuard<'_, Served> {
        self.served.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits to be shown is shown by other means, and durable.
    pub(super) fn answer_all(&self, order: &mut Order) {
        order.unsynced = None;
        order.give_up().for_each(|promise| self.answers.push(promise, Ok(())));
    }

    /// Tells those who wait for what was written that its partition is not served here any more.
    pub(super) fn abandon(&self, order: &mut Order) {
        if is_planted(Defect::ResignUntold) {
            return;
        }
        for promise in order.give_up() {
            let detail = "it was resigned before the commit was known to be durable: it may be there or not";
            self.answers.push(promise, Err(Error::new(ErrorKind::NotLeader, "commit to", detail).at(self.log.path())));
        }
    }

    pub(super) fn give_answers(&self) {
        self.answers.give();
    }
}

impl Drive for Shard {
    fn drive(&self) {
        // Whoever waits learns of a failure by the answer.
        let _ = self.flush();
    }
}

impl Order {
    /// Whether something waits to be shown.
    pub(super) fn waits(&self) -> bool {
        !self.unshown.is_empty()
    }

    /// Whether somebody waits for an answer.
    pub(super) fn owes(&self) -> bool {
        self.unshown.front().is_some_and(|first| self.last_owed.is_some_and(|owed| owed >= first.last_offset))
    }

    /// Lets go of all that waits to be shown. Returns those who wait for an answer.
    fn give_up(&mut self) -> impl Iterator<Item = Promise> {
        // Another leader may cut the log off below it.
        self.last_owed = None;
        self.unshown.drain(..).filter_map(|unshown| unshown.promise)
    }

    /// The keys of what waits to be shown.
    pub(super) fn unshown_keys(&self) -> BTreeSet<&[u8]> {
        let records = self.unshown.iter().filter_map(|unshown| match &unshown.what {
            Written::Records(_, records) => Some(records),
            Written::Marker(..) => None,
        });
        records.flatten().filter_map(|record| record.key.as_deref()).collect()
    }

    /// Where the marker that ends the transaction of `producer_id` waits to be shown.
    pub(super) fn unshown_end(&self, producer_id: i64) -> Option<u64> {
        let is_end = |unshown: &&Unshown| matches!(&unshown.what, Written::Marker(producer, _) if producer.id == producer_id);
        self.unshown.iter().rev().find(is_end).map(|unshown| unshown.last_offset)
    }

    /// Whether what waits to be shown leaves `producer_id` with an open transaction; `None` if it says nothing of it.
    pub(super) fn opens_transaction(&self, producer_id: i64) -> Option<bool> {
        self.unshown.iter().rev().find_map(|unshown| match &unshown.what {
            Written::Records(Origin::Transaction { producer_id: id }, _) if *id == producer_id => Some(true),
            Written::Marker(producer, _) if producer.id == producer_id => Some(false),
            _ => None,
        })
    }
}

impl Unshown {
    /// Offsets that it commits.
    fn commits(&self) -> u64 {
        match &self.what {
            Written::Records(_, records) => records.iter().filter(|record| record.value.is_some()).count() as u64,
            Written::Marker(..) => 0,
        }
    }

    fn show(&self, replay: &mut Replay) {
        match &self.what {
            Written::Marker(producer, outcome) => replay.marker(producer.id, *outcome),
            Written::Records(origin, records) => {
                let origin = if is_planted(Defect::ShowBeforeMarker) { &Origin::Plain } else { origin };
                for (offset, record) in (self.base_offset..).zip(records) {
                    // invariant: these bytes were made by the encoders of this crate.
                    replay.record(*origin, offset, record.key.as_deref(), record.value.as_deref()).expect("reads what it writes");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
