//! Only what is led is held and served: a partition is loaded when the store begins to lead it, and forgotten when it ends.

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::sync::Arc;
use keeplog_engine::{Error, Result};

use super::OffsetStore;
use super::leading::{Lead, LoadProgress, PartitionState, Served, Shown};
use super::shard::Shard;
use super::types::LoadReport;
use crate::load::{load_restoring, load_with, threads_for};

impl OffsetStore {
    /// Begins to lead a partition, as of leader epoch `epoch`: its load is begun by the next [`OffsetStore::load_next`], and
    /// until it is through, whoever asks gets `Loading`. One that is led already goes on and notes the epoch; one whose load
    /// failed is loaded again.
    ///
    /// # Errors
    /// `InvalidInput` for a partition that there is not.
    pub fn lead(&self, partition: u32, epoch: i32) -> Result<Lead> {
        Ok(self.led_shard(partition)?.lead(epoch))
    }

    /// Ends leading a partition: what is held of it is forgotten, and those who wait for their commits are told that the
    /// outcome is not known (`NotLeader`). `epoch` is that of the new leader; one below the last that was told is ignored.
    /// `None` ends it whatever the epoch, as for a topic that is deleted. Returns whether it counted.
    ///
    /// # Errors
    /// `InvalidInput` for a partition that there is not.
    pub fn resign(&self, partition: u32, epoch: Option<i32>) -> Result<bool> {
        Ok(self.led_shard(partition)?.resign(epoch))
    }

    /// Loads the largest of the partitions that wait for it, in the caller's thread; several threads may call it at a time.
    /// Returns the partition and what its load met, and `None` if none waits. A load that fails serves nothing, and the reason is kept
    /// for those who ask.
    pub fn load_next(&self) -> Option<(u32, Result<LoadReport>)> {
        let waiting = (0u32..).zip(&self.inner.shards).filter_map(|(partition, shard)| Some((shard.waiting_load()?, partition, shard)));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable_by_key(|(progress, ..)| progress.bytes());
        let (progress, partition, shard) = waiting.into_iter().rev().find(|(progress, ..)| progress.begin())?;
        let loaded = shard.load(&progress, self.inner.options().snapshots);
        match &loaded {
            Ok(report) => tracing::info!(partition, %report, "committed offsets are loaded"),
            Err(error) => tracing::error!(partition, %error, "committed offsets could not be loaded"),
        }
        Some((partition, loaded))
    }

    /// Whether a partition waits for its load to be begun.
    #[must_use]
    pub fn has_waiting_loads(&self) -> bool {
        self.inner.shards.iter().any(|shard| shard.waiting_load().is_some())
    }

    /// What a partition is doing.
    ///
    /// # Errors
    /// `InvalidInput` for a partition that there is not.
    pub fn partition_state(&self, partition: u32) -> Result<PartitionState> {
        Ok(self.led_shard(partition)?.served().state())
    }

    fn led_shard(&self, partition: u32) -> Result<&Arc<Shard>> {
        self.inner.shards.get(partition as usize).ok_or_else(|| {
            let detail = format!("there is no partition {partition}, the store has {}", self.inner.partitions);
            Error::invalid("lead a partition of committed offsets", detail)
        })
    }
}

impl Shard {
    pub(super) fn is_led(&self) -> bool {
        !matches!(&*self.served(), Served::NotLed)
    }

    fn lead(&self, epoch: i32) -> Lead {
        let mut order = self.order();
        if order.leading.epoch.is_some_and(|known| known >= epoch) {
            return Lead::Stale;
        }
        order.leading.epoch = Some(epoch);
        let mut served = self.served_mut();
        if matches!(&*served, Served::Loaded(_) | Served::Loading(_)) {
            return Lead::Led;
        }
        order.leading.life += 1;
        *served = Served::Loading(LoadProgress::of(self.log(), order.leading.life));
        Lead::Loads
    }

    /// For a store that leads all of its partitions from the start on, whatever their epoch.
    pub(super) fn lead_at_open(&self) {
        let mut order = self.order();
        order.leading.life += 1;
        let progress = LoadProgress::of(self.log(), order.leading.life);
        progress.begin();
        *self.served_mut() = Served::Loading(progress);
    }

    fn resign(&self, epoch: Option<i32>) -> bool {
        let mut order = self.order();
        if epoch.zip(order.leading.epoch).is_some_and(|(told, known)| told < known) {
            return false;
        }
        order.leading.epoch = epoch.or(order.leading.epoch);
        order.leading.life += 1;
        *self.served_mut() = Served::NotLed;
        self.abandon(&mut order);
        drop(order);
        self.give_answers();
        true
    }

    /// A load that nobody has begun.
    pub(super) fn waiting_load(&self) -> Option<Arc<LoadProgress>> {
        match &*self.served() {
            Served::Loading(progress) if !progress.has_begun() => Some(Arc::clone(progress)),
            _ => None,
        }
    }

    /// Does the load that `progress` stands for. It counts if the partition is still in the life that it was begun in.
    pub(super) fn load(&self, progress: &LoadProgress, restores: bool) -> Result<LoadReport> {
        // Nothing is written meanwhile: writers are refused until it is through. What is shown must be durable.
        let loaded = self.log().sync().and_then(|()| self.load_log(progress, None, restores));
        let order = self.order();
        if order.leading.life != progress.life() && !is_planted(Defect::KeepEarlierLoad) {
            return loaded.map(|(_, report)| report);
        }
        self.take_over(loaded)
    }

    /// Reads the log anew. If that fails, nothing is served until it succeeds.
    ///
    /// `all_bytes` is how much is loaded at the same time. If it `restores`, a snapshot counts for what it was made of.
    pub(super) fn reload(&self, all_bytes: u64, restores: bool) -> Result<LoadReport> {
        let mut order = self.order();
        if !self.is_led() {
            // It was resigned while others were loaded.
            return Ok(LoadReport::default());
        }
        // One that is under way is not waited for.
        order.leading.life += 1;
        let progress = LoadProgress::of(self.log(), order.leading.life);
        // What is shown must be durable, and all that the log holds is about to be shown.
        let loaded = match self.log().sync() {
            // What is served is as true as it was.
            Err(error) if matches!(&*self.served(), Served::Loaded(_)) => return Err(error),
            synced => synced.and_then(|()| self.load_log(&progress, Some(all_bytes), restores)),
        };
        let report = self.take_over(loaded)?;
        self.answer_all(&mut order);
        drop(order);
        self.give_answers();
        Ok(report)
    }

    fn load_log(&self, progress: &LoadProgress, all_bytes: Option<u64>, restores: bool) -> Result<(Shown, LoadReport)> {
        let span = tracing::info_span!("load committed offsets", log = %self.log().topic_partition(), bytes = progress.bytes());
        let _entered = span.enter();
        let clock = self.log().storage();
        let began = clock.monotonic();
        let log = self.log();
        let (start_offset, end_offset, truncations) = (log.start_offset(), log.end_offset(), log.truncations());
        let (threads, progress_by) = (threads_for(log, all_bytes), |bytes| progress.add(bytes));
        let (replay, report) = if restores {
            let (replay, report, kept) = load_restoring(log, threads, &progress_by)?;
            self.note_snapshot(kept);
            (replay, report)
        } else {
            load_with(log, threads, &progress_by)?
        };
        self.counters().loaded(clock.monotonic().saturating_sub(began));
        let has_gaps = (start_offset, end_offset, truncations) != (log.start_offset(), log.end_offset(), log.truncations());
        Ok((Shown { replay, start_offset, end_offset, has_gaps, truncations, life: progress.life() }, report))
    }

    fn take_over(&self, loaded: Result<(Shown, LoadReport)>) -> Result<LoadReport> {
        let mut served = self.served_mut();
        match loaded {
            Ok((shown, report)) => {
                *served = Served::Loaded(Box::new(shown));
                Ok(report)
            }
            Err(error) => {
                *served = Served::Failed { kind: error.kind(), why: error.to_string() };
                Err(error)
            }
        }
    }
}
