//! Where the outputs of a pass go: under temporary names, until they are put in the place of their sources.
//!
//! That is done at the end, oldest first. While a log grows fast its outputs would come on top of all that is there and all that
//! comes meanwhile, so there ([`Watch::wants_room`]) each group is swapped as soon as it is finished, newest first, if that loses
//! nothing in a crash:
//! - It lost no tombstone by age: older records of the key would come back. A record goes because of a newer one, which is in its
//!   place; the marker of an aborted transaction because all data of that was gone when the pass began.
//! - No output below is begun: one that is unfinished makes those above count as unfinished.

use std::ops::Range;
use std::sync::Arc;

use keeplog_engine::sync::Mutex;
use keeplog_engine::{Log, OutputSegment, Replaced, Result, Rewrite, SealedOutput, Segment};
use keeplog_index::AbortedTxn;

use crate::clean::Slot;
use crate::options::Watch;
use crate::pass::{Outputs, Target};
use crate::work::{lock, unlocked};

/// So many groups may have outputs whose sync is still to come. Syncing many at a time costs little more than syncing one
/// (what the device has been given meanwhile is there by then), but each holds its files open.
const UNSYNCED_MAX: usize = 64;

/// The outputs of a group.
struct Finished {
    /// The places of their sources.
    sources: Range<usize>,
    outputs: Vec<SealedOutput>,
    /// See [`Outputs::hand_over`].
    stands_alone: bool,
}

/// What is not in its place yet.
#[derive(Default)]
struct Pending {
    /// How often outputs are being written or synced that are in neither of the lists: nobody knows how low they are.
    elsewhere: usize,
    unsynced: Vec<Finished>,
    synced: Vec<Finished>,
    /// All that makes others go is on stable storage.
    is_log_synced: bool,
}

impl Pending {
    /// Takes out all that is finished, the oldest first.
    fn take(&mut self) -> Vec<Finished> {
        let mut all = std::mem::take(&mut self.synced);
        all.append(&mut self.unsynced);
        all.sort_unstable_by_key(|finished| finished.sources.start);
        all
    }
}

/// A rewrite of a log as the target of a pass over it.
pub(crate) struct RewriteTarget<'l> {
    log: &'l Log,
    rewrite: Rewrite,
    segments: &'l [Slot],
    watch: &'l dyn Watch,
    pending: Mutex<Pending>,
}

impl<'l> RewriteTarget<'l> {
    /// For a pass over `segments`.
    pub(crate) fn new(log: &'l Log, rewrite: Rewrite, segments: &'l [Slot], watch: &'l dyn Watch) -> Self {
        Self { log, rewrite, segments, watch, pending: Mutex::default() }
    }

    /// Puts all outputs in the place of their sources, whose files are left to be removed.
    pub(crate) fn commit(mut self) -> Result<Replaced> {
        let mut pending = unlocked(std::mem::take(&mut self.pending));
        pending.unsynced.iter_mut().try_for_each(sync)?;
        self.sync_log(&mut pending)?;
        // Oldest first: a tombstone or an abort marker must not go while older data that it covers can come back.
        pending.take().into_iter().try_for_each(|finished| self.swap(finished))?;
        Ok(self.rewrite.replaced())
    }

    /// A record goes because a newer one is there: that one must outlast a crash too. Until its own segment is swapped, or if
    /// that is left untouched, it may never have been synced. So may the marker that aborts what goes, which can stand above all
    /// that is cleaned. Nor may the offset that this pass came to be remembered longer than what lies below it.
    fn sync_log(&self, pending: &mut Pending) -> Result<()> {
        if !pending.is_log_synced && self.log.recovery_point() < self.log.end_offset() {
            self.log.sync()?;
        }
        pending.is_log_synced = true;
        Ok(())
    }

    /// Puts outputs in their places. A segment that was swapped is open for whoever still reads it, and closed when nobody does:
    /// nor is it held here.
    fn swap(&self, finished: Finished) -> Result<()> {
        let sources: Vec<Arc<Segment>> = self.segments[finished.sources].iter().filter_map(|slot| lock(slot).take()).collect();
        self.rewrite.swap(&sources, finished.outputs)
    }

    /// Swaps what may be swapped before the end.
    fn swap_early(&self, pending: &mut Pending) -> Result<()> {
        if pending.elsewhere > 0 {
            return Ok(());
        }
        let mut all = pending.take();
        let is_free = |finished: &&Finished| finished.stands_alone;
        let kept = all.split_off(all.iter().take_while(is_free).count());
        pending.unsynced = kept;
        if all.is_empty() {
            return Ok(());
        }
        self.sync_log(pending)?;
        all.into_iter().try_for_each(|finished| self.swap(finished))?;
        self.rewrite.replaced().remove();
        Ok(())
    }
}

/// Puts outputs on stable storage.
fn sync(finished: &mut Finished) -> Result<()> {
    finished.outputs.iter_mut().try_for_each(SealedOutput::sync)
}

impl Target for RewriteTarget<'_> {
    fn begin(&self, sources: Range<usize>) -> Result<Box<dyn Outputs + '_>> {
        lock(&self.pending).elsewhere += 1;
        Ok(Box::new(RewriteOutputs { target: self, sources, open: None, sealed: Vec::new() }))
    }

    fn is_unwanted(&self) -> bool {
        self.rewrite.is_unwanted()
    }
}

struct RewriteOutputs<'t> {
    target: &'t RewriteTarget<'t>,
    sources: Range<usize>,
    open: Option<OutputSegment>,
    sealed: Vec<SealedOutput>,
}

impl Outputs for RewriteOutputs<'_> {
    fn start(&mut self, base_offset: u64) -> Result<()> {
        self.open = Some(self.target.rewrite.create_output(base_offset)?);
        Ok(())
    }

    fn append(&mut self, entries: &[u8]) -> Result<()> {
        match &mut self.open {
            Some(open) if !entries.is_empty() => open.append(entries),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, aborts: &[AbortedTxn], modified_ms: i64) -> Result<()> {
        if let Some(mut open) = self.open.take() {
            aborts.iter().try_for_each(|txn| open.append_aborted(*txn))?;
            self.sealed.push(open.seal(modified_ms)?);
        }
        Ok(())
    }

    fn hand_over(self: Box<Self>, stands_alone: bool) -> Result<()> {
        let Self { target, sources, sealed, .. } = *self;
        let mut due: Vec<_> = {
            let mut pending = lock(&target.pending);
            pending.elsewhere -= 1;
            pending.unsynced.push(Finished { sources, outputs: sealed, stands_alone });
            if target.watch.wants_room() {
                target.swap_early(&mut pending)?;
            }
            if pending.unsynced.len() < UNSYNCED_MAX {
                return Ok(());
            }
            pending.elsewhere += 1;
            // The older half: by now most of it is with the device.
            pending.unsynced.drain(..UNSYNCED_MAX / 2).collect()
        };
        due.iter_mut().try_for_each(sync)?;
        let mut pending = lock(&target.pending);
        pending.elsewhere -= 1;
        pending.synced.append(&mut due);
        Ok(())
    }
}

/// Where the outputs of a dry run go.
pub(crate) struct NoTarget;

impl Target for NoTarget {
    fn begin(&self, _: Range<usize>) -> Result<Box<dyn Outputs + '_>> {
        Ok(Box::new(Self))
    }
}

impl Outputs for NoTarget {
    fn start(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &[AbortedTxn], _: i64) -> Result<()> {
        Ok(())
    }

    fn hand_over(self: Box<Self>, _: bool) -> Result<()> {
        Ok(())
    }
}
