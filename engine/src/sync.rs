//! Locks, condition variables, atomics and threads, for this crate and those above it: std's, or with the feature
//! `shuttle` those of a scheduler that explores interleavings (see `fuzz/models`). Never switch that feature on in a
//! build that others share: its primitives work nowhere but under that scheduler.
//!
//! Storages take std's: to what lies above, each of their calls is one step.

pub use std::sync::{Arc, PoisonError, Weak};

pub use primitives::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, is_finished, map_each, on_threads, thread,
    wait_at_most,
};

#[cfg(not(feature = "shuttle"))]
mod primitives {
    use std::sync::PoisonError;
    pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use std::thread;
    use std::time::Duration;

    use rayon::prelude::*;

    /// Waits for a change of what `mutex` holds, no longer than `at_most`; it may return without any.
    pub fn wait_at_most<'a, T>(changed: &Condvar, _: &'a Mutex<T>, guard: MutexGuard<'a, T>, at_most: Duration) -> MutexGuard<'a, T> {
        changed.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// What `make` makes of each of `items`, in their order. As many of them are worked on at a time as the current rayon
    /// pool has threads.
    pub fn map_each<T: Send, R: Send>(items: Vec<T>, make: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
        items.into_par_iter().map(make).collect()
    }

    /// Whether a thread has ended, so that nobody waits who joins it.
    pub fn is_finished<T>(thread: &thread::JoinHandle<T>) -> bool {
        thread.is_finished()
    }

    /// Does `work` on so many threads at a time, one of them the caller's. Where the system gives fewer, fewer do it. A panic
    /// of one of them goes on here.
    pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
        thread::scope(|scope| {
            let start = |number| thread::Builder::new().name(format!("keeplog-{number}")).spawn_scoped(scope, &work);
            let helpers: Vec<_> = (1..threads).map_while(|number| start(number).ok()).collect();
            work();
            helpers.into_iter().for_each(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        });
    }
}

#[cfg(feature = "shuttle")]
mod primitives {
    use std::sync::{LockResult, PoisonError};
    use std::time::Duration;

    use shuttle::rand::{Rng, thread_rng};
    pub use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use shuttle::thread;

    pub fn map_each<T: Send, R: Send>(items: Vec<T>, make: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
        let waiting = Mutex::new(items.into_iter().enumerate());
        let work = || {
            let mut made = Vec::new();
            loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((at, item)) = next else { return made };
                made.push((at, make(item)));
            }
        };
        let mut made = thread::scope(|scope| {
            // The caller works not: the scheduler would wake it from any wait when the last thread of its scope ends.
            let helpers = [scope.spawn(work), scope.spawn(work)];
            let made = helpers.map(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            made.into_iter().flatten().collect::<Vec<_>>()
        });
        made.sort_unstable_by_key(|(at, _)| *at);
        made.into_iter().map(|(_, made)| made).collect()
    }

    /// Lets others go on, who may want the lock.
    pub fn wait_at_most<'a, T>(_: &Condvar, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>, _: Duration) -> MutexGuard<'a, T> {
        drop(guard);
        thread::yield_now();
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scheduler does not tell.
    pub fn is_finished<T>(_: &thread::JoinHandle<T>) -> bool {
        false
    }

    pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
        if threads == 1 {
            return work();
        }
        // As above: the caller works not.
        thread::scope(|scope| {
            let helpers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
            helpers.into_iter().for_each(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        });
    }

    /// A condition variable that now and then wakes without cause. There is no time under the scheduler: a wait with a
    /// deadline either meets it at once or never.
    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub const fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }

        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
            if thread_rng().gen_ratio(1, 8) { Ok(guard) } else { self.0.wait(guard) }
        }

        pub fn wait_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<MutexGuard<'a, T>> {
            while condition(&mut guard) {
                guard = self.wait(guard)?;
            }
            Ok(guard)
        }

        pub fn wait_timeout_while<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            at_most: Duration,
            condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, Duration)> {
            let waited = if thread_rng().gen_ratio(1, 2) { Ok(guard) } else { self.0.wait_while(guard, condition) };
            waited.map(|guard| (guard, at_most)).map_err(|poisoned| PoisonError::new((poisoned.into_inner(), at_most)))
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A cell whose every use is a step.
    #[derive(Debug)]
    pub struct OnceLock<T>(std::sync::OnceLock<T>);

    impl<T> OnceLock<T> {
        pub const fn new() -> Self {
            Self(std::sync::OnceLock::new())
        }

        pub fn get(&self) -> Option<&T> {
            thread::sleep(Duration::ZERO);
            self.0.get()
        }

        /// `make` takes no step: others would wait for it outside of the scheduler.
        pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            thread::sleep(Duration::ZERO);
            self.0.get_or_init(make)
        }
    }

    impl<T> From<T> for OnceLock<T> {
        fn from(value: T) -> Self {
            Self(value.into())
        }
    }
}
