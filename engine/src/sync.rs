//! Locks, condition variables, atomics and threads, for this crate and those above it: std's, or with the feature
//! `shuttle` those of a scheduler that explores interleavings (see `fuzz/models`). Never switch that feature on in a
//! build that others share: its primitives work nowhere but under that scheduler.
//!
//! Storages take std's: to what lies above, each of their calls is one step.

pub use std::sync::{Arc, PoisonError, Weak};

pub use primitives::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, processors, thread};

/// What `make` makes of each of `items`, in their order. As many of them are worked on at a time as there are processors.
pub fn map_each<T: Send, R: Send>(items: Vec<T>, make: impl Fn(T) -> R + Sync) -> Vec<R> {
    let helpers = processors().min(items.len()).saturating_sub(1);
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
        let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
        let mut made = work();
        for helper in helpers {
            made.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made
    });
    made.sort_unstable_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, made)| made).collect()
}

#[cfg(not(feature = "shuttle"))]
mod primitives {
    pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use std::thread;

    /// How many threads can run at the same time.
    pub fn processors() -> usize {
        thread::available_parallelism().map_or(1, Into::into)
    }
}

#[cfg(feature = "shuttle")]
mod primitives {
    use std::sync::LockResult;
    use std::time::Duration;

    use shuttle::rand::{Rng, thread_rng};
    pub use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use shuttle::thread;

    pub fn processors() -> usize {
        2
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

        pub fn wait_timeout_while<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            at_most: Duration,
            condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, Duration)> {
            let waited = if thread_rng().gen_ratio(1, 2) { Ok(guard) } else { self.0.wait_while(guard, condition) };
            waited.map(|guard| (guard, at_most)).map_err(|poisoned| super::PoisonError::new((poisoned.into_inner(), at_most)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once_and_the_results_keep_the_order() {
        for count in [0u64, 1, 2, 1000] {
            let calls = atomic::AtomicU64::new(0);
            let made = map_each((0..count).collect(), |item| {
                calls.fetch_add(1, atomic::Ordering::Relaxed);
                item * 3
            });
            assert_eq!(made, (0..count).map(|item| item * 3).collect::<Vec<_>>());
            assert_eq!(calls.into_inner(), count);
        }
    }

    #[test]
    #[should_panic = "item 7"]
    fn a_panic_over_an_item_reaches_the_caller() {
        map_each((0..20).collect(), |item| assert_ne!(item, 7, "item 7"));
    }
}
