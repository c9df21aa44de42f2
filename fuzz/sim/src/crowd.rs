//! Many lives side by side, each of them in one thread alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `one` for every number below `count`, on all cores. Within one, whatever the engine would do side by side is done
/// in turn, so that it repeats itself. `true` from `one` ends it all.
///
/// # Panics
/// If a thread can't be started, or `one` panics.
pub fn each(count: u64, one: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || alone.install(|| one(number)) {
                        next.store(count, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
}

/// Runs `work` as each of [`each`] runs.
///
/// # Panics
/// If the thread can't be started.
pub fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread").install(work)
}

/// Collects what many lives come to.
#[derive(Debug)]
pub struct Findings<T>(Mutex<Vec<(u64, T)>>);

impl<T> Default for Findings<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Findings<T> {
    /// Adds one.
    ///
    /// # Panics
    /// If another thread panicked here.
    pub fn add(&self, number: u64, found: T) {
        self.0.lock().unwrap().push((number, found));
    }

    /// All, by number.
    ///
    /// # Panics
    /// If another thread panicked here.
    pub fn sorted(self) -> Vec<(u64, T)> {
        let mut all = self.0.into_inner().unwrap();
        all.sort_by_key(|(number, _)| *number);
        all
    }
}
