//! Answers to those who wait, given one after the other and outside of any lock.

use std::collections::VecDeque;

use keeplog_engine::Result;
use keeplog_engine::sync::{Mutex, MutexGuard, PoisonError};

use crate::pending::Promise;

#[derive(Default)]
pub(super) struct Answers {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    due: VecDeque<(Promise, Result<()>)>,
    /// A thread gives them. It gives those too that come meanwhile, so that their order is kept.
    is_giving: bool,
}

impl Answers {
    pub(super) fn push(&self, promise: Promise, answer: Result<()>) {
        self.queue().due.push_back((promise, answer));
    }

    /// Gives all that are due, unless another thread is at it; then that one does. May be called from within an answer.
    pub(super) fn give(&self) {
        if std::mem::replace(&mut self.queue().is_giving, true) {
            return;
        }
        let giving = Giving(self);
        loop {
            let mut queue = self.queue();
            let Some((promise, answer)) = queue.due.pop_front() else {
                // Under the lock that found nothing: whoever pushes after that finds nobody giving.
                queue.is_giving = false;
                std::mem::forget(giving);
                return;
            };
            drop(queue);
            promise.answer(answer);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets others give if a callback panics.
struct Giving<'a>(&'a Answers);

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.0.queue().is_giving = false;
    }
}
