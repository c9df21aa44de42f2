//! The passes under way, and the logs that get none for now.

use std::collections::BTreeMap;
use std::fmt;

use keeplog_engine::sync::atomic::{AtomicBool, Ordering};
use keeplog_engine::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use keeplog_engine::{Error, ErrorKind, Result, TopicPartition};

use super::Inner;

/// Who is being cleaned, and who must not be.
#[derive(Default)]
pub(super) struct Passes {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Logs that were paused and not resumed as often yet.
    paused: BTreeMap<TopicPartition, Paused>,
    /// Numbers given so far.
    numbers: u64,
    under_way: Vec<Arc<Running>>,
}

#[derive(Clone, Copy)]
struct Paused {
    /// Another one, where the log was deleted and made anew meanwhile.
    number: u64,
    times: u32,
}

struct Running {
    name: TopicPartition,
    is_unwanted: AtomicBool,
}

/// A pass under way, until it is dropped.
pub(super) struct Pass<'p> {
    passes: &'p Passes,
    running: Arc<Running>,
}

impl Passes {
    /// A pass over a log begins.
    ///
    /// # Errors
    /// `Locked` for a log whose cleaning is paused.
    pub(super) fn begin(&self, name: &TopicPartition) -> Result<Pass<'_>> {
        let mut state = self.state();
        if state.paused.contains_key(name) {
            return Err(Error::new(ErrorKind::Locked, "clean", format!("the cleaning of {name} is paused: resume it first")));
        }
        let running = Arc::new(Running { name: name.clone(), is_unwanted: AtomicBool::new(false) });
        state.under_way.push(Arc::clone(&running));
        Ok(Pass { passes: self, running })
    }

    /// No pass over the log begins any more; those under way are told to end, and waited for. Gives the number of the pause.
    pub(super) fn pause(&self, name: &TopicPartition, wake: impl FnOnce()) -> u64 {
        let number = {
            let mut state = self.state();
            state.numbers += 1;
            let next = Paused { number: state.numbers, times: 0 };
            let paused = state.paused.entry(name.clone()).or_insert(next);
            paused.times += 1;
            paused.number
        };
        self.end(name, wake);
        number
    }

    /// Passes over the log that are under way are told to end, and waited for. `wake` wakes those that sleep.
    pub(super) fn end(&self, name: &TopicPartition, wake: impl FnOnce()) {
        let mut state = self.state();
        let its = |running: &Arc<Running>| running.name == *name;
        state.under_way.iter().filter(|running| its(running)).for_each(|running| running.is_unwanted.store(true, Ordering::Release));
        wake();
        while state.under_way.iter().any(|running| its(running) && running.is_unwanted.load(Ordering::Acquire)) {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes one pause back, of this number if it has one; whether it was the last.
    ///
    /// # Errors
    /// `InvalidInput` for a log that is not paused.
    pub(super) fn resume(&self, name: &TopicPartition, number: Option<u64>) -> Result<bool> {
        let mut state = self.state();
        match state.paused.get_mut(name).filter(|paused| number.is_none_or(|number| number == paused.number)) {
            None => Err(Error::invalid("resume cleaning", format!("the cleaning of {name} is not paused"))),
            Some(Paused { times: 1, .. }) => Ok(state.paused.remove(name).is_some()),
            Some(paused) => {
                paused.times -= 1;
                Ok(false)
            }
        }
    }

    /// A log is gone, and its pauses with it.
    pub(super) fn forget(&self, name: &TopicPartition) {
        self.state().paused.remove(name);
    }

    pub(super) fn is_paused(&self, name: &TopicPartition) -> bool {
        self.state().paused.contains_key(name)
    }

    pub(super) fn paused(&self) -> BTreeMap<TopicPartition, u32> {
        self.state().paused.iter().map(|(name, paused)| (name.clone(), paused.times)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // every change to it is a single step
    }
}

impl Pass<'_> {
    /// Whether it was told to end.
    pub(super) fn is_unwanted(&self) -> bool {
        self.running.is_unwanted.load(Ordering::Acquire)
    }
}

/// Keeps a log from being cleaned until it is dropped: see [`Store::hold_cleaning`](crate::Store::hold_cleaning).
#[must_use = "cleaning goes on when it is dropped"]
pub struct CleaningPause {
    inner: Weak<Inner>,
    name: TopicPartition,
    number: u64,
}

impl CleaningPause {
    pub(super) fn new(inner: &Arc<Inner>, name: TopicPartition, number: u64) -> Self {
        Self { inner: Arc::downgrade(inner), name, number }
    }
}

impl Drop for CleaningPause {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        // Whoever has deleted the log, or taken the pause back otherwise, has ended it.
        if inner.passes.resume(&self.name, Some(self.number)).is_ok_and(|is_last| is_last) {
            inner.data_dir.note_change(&self.name);
        }
    }
}

impl fmt::Debug for CleaningPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CleaningPause").field("log", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.passes.state().under_way.retain(|running| !Arc::ptr_eq(running, &self.running));
        self.passes.ended.notify_all();
    }
}
