//! Many seeds on all cores, with word of how far it is.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::tally::Tally;

const PROGRESS_EVERY: Duration = Duration::from_secs(20);

/// What one thing that was compared came to.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name after that of the seed; empty if there is only one.
    pub(crate) name: String,
    pub(crate) differences: Vec<String>,
    /// It differed where it may: see the README.
    pub(crate) excused: bool,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, differences: Vec<String>) -> Self {
        Self { name: name.into(), differences, excused: false }
    }
}

/// Judges every one of `seeds`, `jobs` at a time.
pub(crate) fn each(seeds: &Range<u64>, jobs: usize, tally: &mut Tally, judge: impl Fn(u64) -> Vec<Case> + Sync) {
    let next = AtomicU64::new(seeds.start);
    let (sender, judged) = channel();
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, next, judge) = (sender.clone(), &next, &judge);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || sender.send((seed, judge(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut progress = Progress::new(seeds);
        for (seed, cases) in judged {
            tally.count_log();
            for case in cases {
                tally.count_excused(case.excused);
                tally.judge(format!("seed {seed} {}", case.name).trim_end(), &case.differences);
            }
            progress.done(seed, tally);
        }
    });
}

struct Progress<'a> {
    seeds: &'a Range<u64>,
    /// All seeds below are done.
    below: u64,
    above: BTreeSet<u64>,
    began: Instant,
    told: Instant,
}

impl<'a> Progress<'a> {
    fn new(seeds: &'a Range<u64>) -> Self {
        Self { seeds, below: seeds.start, above: BTreeSet::new(), began: Instant::now(), told: Instant::now() }
    }

    fn done(&mut self, seed: u64, tally: &Tally) {
        self.above.insert(seed);
        while self.above.remove(&self.below) {
            self.below += 1;
        }
        if self.told.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.told = Instant::now();
        let done = self.below - self.seeds.start + self.above.len() as u64;
        let per_second = done as f64 / self.began.elapsed().as_secs_f64();
        let total = self.seeds.end - self.seeds.start;
        let left = (total - done) as f64 / per_second / 60.0;
        eprintln!("{tally}: {done} of {total} seeds, all below {} among them; {per_second:.1} a second, {left:.0} min left", self.below);
    }
}
