//! Answers that come later: a future that needs no runtime, and that blocking callers can wait for.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keeplog_engine::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use keeplog_engine::{Error, ErrorKind, Result};

type Callback<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// An answer that is not there yet, such as that to a commit that waits to be on stable storage.
///
/// A [`Future`], for any executor or none. Dropping it takes nothing back: what was begun goes on, and nobody is told.
#[must_use = "whether it succeeded is told here only"]
pub struct Pending<T = ()> {
    shared: Arc<Shared<T>>,
    driver: Option<Arc<dyn Drive>>,
}

/// The other end: whoever has it owes the answer.
pub struct Promise<T = ()> {
    shared: Arc<Shared<T>>,
}

/// Something that can be made to answer by whoever waits for it, so that a blocking wait needs no other thread.
pub(crate) trait Drive: Send + Sync {
    /// Does what is left to do; the answer is there afterwards, or comes from another thread.
    fn drive(&self);
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Waiting {
        waker: Option<Waker>,
    },
    /// Nobody asks any more: the answer goes here.
    Called(Callback<T>),
    Answered(Result<T>),
    Taken,
}

impl<T> Pending<T> {
    /// Both ends of an answer that is owed.
    pub fn new() -> (Promise<T>, Self) {
        let shared = Arc::new(Shared { state: Mutex::new(State::Waiting { waker: None }), changed: Condvar::new() });
        (Promise { shared: Arc::clone(&shared) }, Self { shared, driver: None })
    }

    /// An answer that is there already.
    pub fn ready(answer: Result<T>) -> Self {
        let (promise, pending) = Self::new();
        promise.answer(answer);
        pending
    }

    /// One that a blocking wait may bring about itself.
    pub(crate) fn driven_by(mut self, driver: Arc<dyn Drive>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// Those of what was asked; `Closed` if nobody is left to answer.
    pub fn wait(self) -> Result<T> {
        if let Some(driver) = self.driver.as_ref().filter(|_| !self.is_answered()) {
            driver.drive();
        }
        let waiting = self.shared.lock();
        let mut state = self.shared.changed.wait_while(waiting, |state| state.is_waiting()).unwrap_or_else(PoisonError::into_inner);
        state.take()
    }

    /// Waits no longer than `at_most` for the answer, which another thread has to give: one that gives none in time is
    /// handed back.
    pub fn wait_timeout(self, at_most: Duration) -> std::result::Result<Result<T>, Self> {
        let waiting = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(waiting, at_most, |state| state.is_waiting());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_waiting() {
            drop(state);
            return Err(self);
        }
        Ok(state.take())
    }

    /// Has `callback` called with the answer, by the thread that gives it, or at once if it is there. Answers of one group
    /// are given in the order of its commits, so a callback holds up those behind it: it must not wait for any of them.
    pub fn on_answer(self, callback: impl FnOnce(Result<T>) + Send + 'static) {
        let mut state = self.shared.lock();
        if state.is_waiting() {
            *state = State::Called(Box::new(callback));
            return;
        }
        let answer = state.take();
        drop(state);
        callback(answer);
    }

    /// Whether the answer is there.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        !self.shared.lock().is_waiting()
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.shared.lock();
        match &mut *state {
            State::Waiting { waker: Some(known) } if known.will_wake(context.waker()) => Poll::Pending,
            State::Waiting { waker } => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(state.take()),
        }
    }
}

impl<T> Promise<T> {
    /// Gives the answer.
    pub fn answer(self, answer: Result<T>) {
        self.shared.answer(answer);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if self.shared.lock().is_open() {
            let detail = "it was closed before the answer was known: it may have been done or not";
            self.shared.answer(Err(Error::new(ErrorKind::Closed, "wait for the offset store", detail)));
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, answer: Result<T>) {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Taken) {
            State::Waiting { waker } => {
                *state = State::Answered(answer);
                drop(state);
                self.changed.notify_all();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Called(callback) => {
                drop(state);
                callback(answer);
            }
            // A promise is kept once.
            earlier @ (State::Answered(_) | State::Taken) => *state = earlier,
        }
    }
}

impl<T> State<T> {
    fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Called(_))
    }

    /// The answer, which is there.
    fn take(&mut self) -> Result<T> {
        match mem::replace(self, Self::Taken) {
            Self::Answered(answer) => answer,
            _ => Err(Error::invalid("wait for the offset store", "the answer was taken already")),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_answered", &self.is_answered()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
