//! The passes under way, and the logs that get none for now.

use std::collections::BTreeMap;

use keeplog_engine::sync::atomic::{AtomicBool, Ordering};
use keeplog_engine::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use keeplog_engine::{Error, ErrorKind, Result, TopicPartition};

/// Who is being cleaned, and who must not be.
#[derive(Default)]
pub(super) struct Passes {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// How often each log was paused and not resumed yet.
    paused: BTreeMap<TopicPartition, u32>,
    under_way: Vec<Arc<Running>>,
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

    /// No pass over the log begins any more; those under way are told to end, and waited for.
    pub(super) fn pause(&self, name: &TopicPartition, wake: impl FnOnce()) {
        *self.state().paused.entry(name.clone()).or_default() += 1;
        self.end(name, wake);
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

    /// Takes one pause back; whether it was the last.
    ///
    /// # Errors
    /// `InvalidInput` for a log that is not paused.
    pub(super) fn resume(&self, name: &TopicPartition) -> Result<bool> {
        let mut state = self.state();
        match state.paused.get_mut(name) {
            None => Err(Error::invalid("resume cleaning", format!("the cleaning of {name} is not paused"))),
            Some(1) => Ok(state.paused.remove(name).is_some()),
            Some(count) => {
                *count -= 1;
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
        self.state().paused.clone()
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

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.passes.state().under_way.retain(|running| !Arc::ptr_eq(running, &self.running));
        self.passes.ended.notify_all();
    }
}
