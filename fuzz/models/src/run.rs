//! Runs a model under many schedules, and one schedule again.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Enough for the deepest call of the engine.
const STACK_BYTES: usize = 1 << 20;
/// Far more than any model takes: who gets there goes round in circles.
const STEPS_MAX: usize = 1_000_000;
/// How many changes of priority a schedule of the PCT scheduler has.
const PCT_DEPTH: usize = 3;

/// A model: what it is called, what it claims, and one run of it under whatever scheduler is in force.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// As on the command line.
    pub name: &'static str,
    /// In a few words.
    pub claim: &'static str,
    /// Sets up, runs the threads, checks.
    pub run: fn(),
}

/// Which choices a scheduler makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any runnable thread, at each step.
    Random,
    /// The thread of highest priority, and a few random changes of priority: finds what needs few switches in the right places.
    Pct,
}

/// How a model fared under one scheduler.
#[derive(Debug)]
pub struct Outcome {
    /// Schedules run, the failing one included.
    pub schedules: usize,
    /// How long they took.
    pub took: Duration,
    /// The file that replays the first that failed.
    pub failure: Option<PathBuf>,
}

/// Runs `schedules` schedules of `model`, the choices made from `seed`; the first that fails ends it, and is saved in `dir`.
#[must_use]
pub fn explore(model: Model, choice: Choice, seed: u64, schedules: usize, dir: &Path) -> Outcome {
    match choice {
        Choice::Random => run(model, RandomScheduler::new_from_seed(seed, schedules), dir),
        Choice::Pct => run(model, PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), dir),
    }
}

/// Runs the one schedule that `file` holds.
#[must_use]
pub fn replay(model: Model, file: &Path) -> Outcome {
    let scheduler = ReplayScheduler::new_from_file(file).expect("a file that this program wrote");
    run(model, scheduler, &std::env::temp_dir())
}

fn run(model: Model, scheduler: impl Scheduler + 'static, dir: &Path) -> Outcome {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::File(Some(dir.into()));
    config.silence_warnings = true;
    let before = saved(dir);
    let schedules = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&schedules);
    let began = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(scheduler, config).run(move || {
            count.fetch_add(1, Ordering::Relaxed);
            (model.run)();
        })
    }));
    let failure = ran.is_err().then(|| saved(dir).into_iter().find(|file| !before.contains(file)).unwrap_or_default());
    Outcome { schedules: schedules.load(Ordering::Relaxed), took: began.elapsed(), failure }
}

fn saved(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}
