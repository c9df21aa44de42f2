//! Lets one holder at a time replace or remove segments, and asks a long-running one to give way.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    taken: Mutex<bool>,
    freed: Condvar,
    /// How many wait for the holder to give way.
    waiting: AtomicUsize,
}

impl Turnstile {
    /// Takes the turn if nobody has it; the caller gives it back by [`Turnstile::leave`].
    pub(crate) fn try_take(&self) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut *taken, true)
    }

    /// The turn if nobody has it.
    pub(crate) fn try_enter(&self) -> Option<Turn<'_>> {
        // Not `then_some`: a turn that was not taken must not be given back.
        self.try_take().then(|| Turn(self))
    }

    /// Waits for the turn, asking the holder to give way.
    pub(crate) fn enter(&self) -> Turn<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Turn(self)
    }

    /// Asks the present and every later holder to give way.
    pub(crate) fn request_abort(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether somebody waits for the holder.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Gives the turn back.
    pub(crate) fn leave(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.freed.notify_one();
    }
}

/// The turn, given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t>(&'t Turnstile);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
