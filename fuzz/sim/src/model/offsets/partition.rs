//! One partition of the offset store, as it must be.

use std::collections::{BTreeMap, BTreeSet};

use keeplog::{ErrorKind, OffsetStore, RequiredAcks};

use super::{Place, State, What};

/// What the store has to answer from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Served {
    /// It is led elsewhere.
    NotLed,
    /// It waits for its load.
    Waiting,
    /// It is served.
    #[default]
    Yes,
}

/// When what is written is shown, and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is on stable storage.
    Synced,
    /// It is written.
    Written,
    /// It is written, and answered before it is shown.
    Queued,
}

/// A batch that was asked for since the store was opened.
#[derive(Clone, Debug)]
struct Batch {
    base_offset: u64,
    end_offset: u64,
    what: What,
    until: Until,
}

/// What was written, and how much of it must be there.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    /// What it came to when the store was opened.
    base: State,
    batches: Vec<Batch>,
    /// So many batches are shown, and what that comes to.
    shown: usize,
    state: State,
    /// So many are acknowledged as written: the death of the process takes none of them.
    written: usize,
    /// So many are acknowledged as synced: nothing takes them.
    synced: usize,
    /// From this batch on, the log is being cut off.
    cut: Option<usize>,
    /// What the store has to answer from.
    pub served: Served,
    /// The last leader epoch that was told.
    pub epoch: Option<i32>,
    /// Counts what makes a load that is under way say nothing.
    pub life: u64,
}

impl Partition {
    /// What is shown.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The places of what is written and not shown yet.
    #[must_use]
    pub fn unshown(&self) -> BTreeSet<&Place> {
        self.batches[self.shown..].iter().flat_map(|batch| batch.what.places()).collect()
    }

    /// Whether the producer is in a transaction once all is shown.
    #[must_use]
    pub fn is_open(&self, producer: i64) -> bool {
        let said = self.batches[self.shown..].iter().rev().find_map(|batch| match &batch.what {
            What::Commits(Some(of), _) if *of == producer => Some(true),
            What::Marker(of, _) if *of == producer => Some(false),
            _ => None,
        });
        said.unwrap_or_else(|| self.state.open.contains(&producer))
    }

    /// The end of the producer's transaction, where that is written and not shown yet.
    #[must_use]
    pub fn unshown_end(&self, producer: i64) -> Option<usize> {
        let is_end = |batch: &Batch| matches!(batch.what, What::Marker(of, _) if of == producer);
        self.batches[self.shown..].iter().rposition(is_end).map(|at| self.shown + at)
    }

    /// A batch is on stable storage, with all before it, and shown.
    pub fn settle_up_to(&mut self, number: usize) {
        self.synced = self.synced.max(number + 1);
        self.written = self.written.max(number + 1);
        self.show(number + 1);
    }

    /// When a batch is shown that is asked for now.
    #[must_use]
    pub fn until(&self, acks: RequiredAcks) -> Until {
        match acks {
            RequiredAcks::Synced => Until::Synced,
            // What waits for a sync comes first.
            RequiredAcks::Written if !self.all_is_shown() => Until::Synced,
            RequiredAcks::Written => Until::Written,
            RequiredAcks::Queued => Until::Queued,
        }
    }

    /// A batch is asked for, at the end of the log. Returns its number.
    pub fn ask(&mut self, base_offset: u64, what: What, until: Until) -> usize {
        // What stood there was never appended.
        self.batches.retain(|batch| batch.end_offset <= base_offset);
        let end_offset = base_offset + what.records();
        self.batches.push(Batch { base_offset, end_offset, what, until });
        self.batches.len() - 1
    }

    /// The batch that was asked for last is acknowledged.
    pub fn acknowledge(&mut self) {
        self.answered(self.batches.len() - 1);
    }

    /// It is led, or not any more.
    pub fn changes_to(&mut self, served: Served) {
        self.served = served;
        self.life += 1;
    }

    /// It was loaded: all that the log holds is durable and shown.
    pub fn loaded(&mut self) {
        self.changes_to(Served::Yes);
        self.settle();
    }

    /// Everything that was asked for is on stable storage, and shown.
    pub fn settle(&mut self) {
        (self.written, self.synced) = (self.batches.len(), self.batches.len());
        self.show(self.batches.len());
    }

    /// Everything that was asked for is on stable storage.
    pub fn settle_unshown(&mut self) {
        (self.written, self.synced) = (self.batches.len(), self.batches.len());
    }

    /// A batch was answered as safe: it is shown, with all before it.
    pub fn answered(&mut self, number: usize) {
        match self.batches[number].until {
            Until::Synced => self.settle_up_to(number),
            Until::Written => {
                self.written = self.written.max(number + 1);
                self.show(number + 1);
            }
            Until::Queued => {}
        }
    }

    /// Whether a batch is answered before it is shown.
    #[must_use]
    pub fn is_queued(&self, number: usize) -> bool {
        self.batches[number].until == Until::Queued
    }

    /// Whether a batch whose answer comes in its turn must have been answered by now.
    #[must_use]
    pub fn is_answered(&self, number: usize) -> bool {
        number < self.shown || self.served != Served::Yes
    }

    /// Whether all that was asked for is shown.
    #[must_use]
    pub fn all_is_shown(&self) -> bool {
        self.shown == self.batches.len()
    }

    /// After a power failure, what was only written may be missing.
    pub fn lose_unsynced(&mut self) {
        self.written = self.synced;
    }

    /// Where the last batch ends that is shown; 0 if there is none of this life.
    #[must_use]
    pub fn shown_end(&self) -> u64 {
        self.batches[..self.shown].last().map_or(0, |batch| batch.end_offset)
    }

    /// The last batches, so many at most and those from an offset on, are about to be cut off. Returns where the log ends then.
    ///
    /// An abort marker stays if its transaction has records below that offset: a pass may have taken these away by its word.
    pub fn truncating(&mut self, last: usize, from_offset: u64) -> Option<u64> {
        let (below, above) = self.batches.split_at(self.batches.partition_point(|batch| batch.base_offset < from_offset));
        let began_below = |producer: i64| {
            let in_base = self.base.pending.keys().any(|(_, of)| *of == producer);
            in_base || below.iter().any(|batch| matches!(batch.what, What::Commits(Some(of), _) if of == producer))
        };
        let is_needed = |batch: &Batch| matches!(batch.what, What::Marker(producer, false) if began_below(producer));
        let needed = above.iter().rposition(is_needed).map_or(0, |at| at + 1);
        let cut = self.batches.len().saturating_sub(last).max(below.len() + needed);
        self.cut = Some(cut);
        Some(self.batches.get(cut)?.base_offset)
    }

    /// They are, and nothing brings them back.
    pub fn truncated(&mut self) {
        self.batches.truncate(self.cut.take().unwrap_or(usize::MAX));
        let count = self.batches.len();
        (self.shown, self.written, self.synced) = (0, self.written.min(count), self.synced.min(count));
        self.state = self.base.clone();
    }

    fn show(&mut self, count: usize) {
        for batch in self.batches.get(self.shown..count).unwrap_or_default() {
            self.state.apply(batch.base_offset, &batch.what);
        }
        self.shown = self.shown.max(count);
    }

    /// The store was opened anew: what is left is durable and shown. Nothing may be missing that was acknowledged, and nothing
    /// may be half there. The log holds batches `held`, by their first offset and the one behind their last, and ends at
    /// `end_offset`.
    pub fn opened(&mut self, held: &BTreeMap<u64, u64>, end_offset: u64, matches: impl Fn(&State) -> bool) -> Result<(), String> {
        let is_held = |batch: &Batch| held.get(&batch.base_offset) == Some(&batch.end_offset);
        let torn =
            |batch: &&Batch| !is_held(batch) && held.range(..batch.end_offset).next_back().is_some_and(|(_, end)| *end > batch.base_offset);
        if let Some(torn) = self.batches.iter().find(torn) {
            return Err(format!("only a part is left of {torn:?}"));
        }
        let kept = self.written.max(self.synced).min(self.cut.unwrap_or(usize::MAX));
        if let Some(lost) = self.batches[..kept].iter().find(|batch| batch.end_offset > end_offset) {
            return Err(format!("{lost:?} is missing, the log ends at {end_offset}"));
        }
        let fold = |is_left: &dyn Fn(usize, &Batch) -> bool| {
            let mut state = self.base.clone();
            let left = self.batches.iter().enumerate().filter(|(number, batch)| is_left(*number, batch));
            left.for_each(|(_, batch)| state.apply(batch.base_offset, &batch.what));
            state
        };
        // What lay in a segment that was closed, but not synced, goes by itself. Of what was acknowledged, and of what was synced
        // by a pass, some may be cleaned away.
        let mut state = fold(&|number, batch| number < kept || is_held(batch));
        if !matches(&state) {
            state = fold(&|_, batch| batch.end_offset <= end_offset);
        }
        *self = Self { base: state.clone(), state, ..Self::default() };
        Ok(())
    }

    /// Something failed, and somebody looks: what is answered was shown, and stays, as far as it was promised.
    pub fn look(&mut self, matches: impl Fn(&State) -> bool) -> Result<(), String> {
        loop {
            if matches(&self.state) {
                break;
            }
            if self.all_is_shown() {
                return Err(format!("after a failure it answers what it should not: right is {:?}", self.state));
            }
            self.show(self.shown + 1);
        }
        // What waits for a sync is shown with all before it, once they are safe.
        let is_safe = |batch: &Batch| batch.until != Until::Written;
        self.synced = self.synced.max(self.batches[..self.shown].iter().rposition(is_safe).map_or(0, |at| at + 1));
        self.written = self.written.max(self.shown);
        Ok(())
    }

    /// Refuses an answer of the store that is not right for what is served.
    pub fn check_refusal(&self, store: &OffsetStore, group: &str) -> Result<(), String> {
        let kind = match self.served {
            Served::Yes => None,
            Served::Waiting => Some(ErrorKind::Loading),
            Served::NotLed => Some(ErrorKind::NotLeader),
        };
        let told = store.fetch::<&str>(group, &[]).err().map(|error| error.kind());
        if told == kind { Ok(()) } else { Err(format!("a fetch for {group} gives {told:?}, {kind:?} is right")) }
    }
}
