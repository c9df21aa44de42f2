//! The offset store against a simple model: random steps, restarts and what befalls files among them, and after each every
//! answer is what the model says. `KEEPLOG_MODEL_RUNS` says how many runs, `KEEPLOG_MODEL_SEED` the first seed.
#![allow(clippy::print_stdout)] // what the runs were made of, for whoever asks with --nocapture

mod broker;
mod check;
mod lives;
mod model;
mod run;
mod steps;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use run::Run;
use steps::{Settings, Step};

/// How often each thing happened.
#[derive(Debug, Default)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn note(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }
}

/// The first step that goes wrong, and how.
fn fails(settings: Settings, steps: &[Step], counts: &mut Counts) -> Option<(usize, String)> {
    let mut at = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::begin(settings, counts)?;
        for step in steps {
            run.step(step)?;
            at += 1;
        }
        run.look()
    }));
    let text = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or("of unknown kind".to_owned(), ToString::to_string),
    };
    let outcome = outcome.unwrap_or_else(|panic| Err(format!("a panic: {}", text(panic))));
    outcome.err().map(|why| (at, why))
}

/// Leaves out of `steps` whatever is not needed for something to go wrong.
fn shrink(settings: Settings, mut steps: Vec<Step>, mut why: String) -> (Vec<Step>, String) {
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut from = 0;
        while from < steps.len() {
            let rest: Vec<_> = [&steps[..from], &steps[(from + size).min(steps.len())..]].concat();
            match fails(settings, &rest, &mut Counts::default()) {
                Some((at, other)) => {
                    steps = rest;
                    steps.truncate(at + 1);
                    why = other;
                }
                None => from += size,
            }
        }
        size /= 2;
    }
    (steps, why)
}

fn check_seed(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let (settings, mut steps) = steps::steps(seed);
    let Some((at, why)) = fails(settings, &steps, counts) else { return Ok(()) };
    steps.truncate(at + 1);
    let (steps, why) = shrink(settings, steps, why);
    let steps: String = steps.iter().map(|step| format!("  {step:?}\n")).collect();
    Err(format!("KEEPLOG_MODEL_RUNS=1 KEEPLOG_MODEL_SEED={seed}, begun with {settings:?}:\n{steps}{why}"))
}

/// Does `work` in one thread, whatever is loaded side by side otherwise: so it repeats itself.
fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(work)
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}

const RUNS: u64 = 200;
/// Each of these happens so often in them, at least.
const LEAST: u64 = 5;
const KINDS: &[&str] = &[
    "answers",
    "answers that it was resigned",
    "clock steps",
    "clock steps back",
    "closes",
    "commits",
    "commits in transactions",
    "commits of 0.8.2",
    "commits of a broker",
    "commits that are answered later",
    "commits that can't be",
    "commits until queued",
    "commits until synced",
    "commits until written",
    "commits where it is not served",
    "drops",
    "entries too long",
    "fenced producers",
    "flushes",
    "groups expired",
    "groups that can't be deleted",
    "kills",
    "loads from snapshots",
    "loads from snapshots and what came after",
    "loads of what is led",
    "logs made anew",
    "looks",
    "looks from snapshots",
    "negative offsets",
    "offsets deleted",
    "offsets deleted with groups",
    "offsets deleted with topics",
    "offsets expired",
    "older snapshots put back",
    "passes of the cleaner",
    "records cleaned away",
    "records of groups",
    "reloads",
    "resignations",
    "rounds of background work",
    "settings changed",
    "snapshots cut",
    "snapshots deleted",
    "snapshots of another log",
    "snapshots refused",
    "snapshots saved",
    "snapshots with a wrong bit",
    "starts that lead nothing",
    "transactions aborted",
    "transactions committed",
    "transactions of a broker",
    "waits",
];

#[test]
fn an_offset_store_answers_what_a_simple_model_says() {
    let (runs, first) = (number_in("KEEPLOG_MODEL_RUNS").unwrap_or(RUNS), number_in("KEEPLOG_MODEL_SEED").unwrap_or(0));
    let mut counts = Counts::default();
    if let Err(why) = alone(|| (first..first + runs).try_for_each(|seed| check_seed(seed, &mut counts))) {
        panic!("{why}");
    }
    println!("{runs} runs from {first}: {counts:?}");
    if runs >= RUNS {
        assert!(counts.0.keys().eq(KINDS), "what happened, and what has to");
        let seldom: Vec<_> = counts.0.iter().filter(|(_, count)| **count < LEAST).collect();
        assert!(seldom.is_empty(), "{seldom:?}");
    }
}

/// That it bites: each of these is found within the runs of every day.
#[cfg(feature = "planted")]
#[test]
fn planted_defects_of_an_offset_store_are_found() {
    use keeplog_engine::planted::{Defect, plant};
    const DEFECTS: &[Defect] = &[
        Defect::LoadSkipsTombstones,
        Defect::ForgetDeletion,
        Defect::AnswerBeforeSync,
        Defect::ForgetToWake,
        Defect::ForgetFlushAtClose,
        Defect::ShowBeforeMarker,
        Defect::MarkerBeatsLater,
        Defect::LoadForgetsPending,
        Defect::ExpireUnseen,
        Defect::ResignUntold,
        Defect::BelieveSnapshot,
        Defect::SkipSnapshotChecksums,
        Defect::SnapshotForgetsPending,
        Defect::SnapshotSaysTooMuch,
    ];
    let fails_with = |defect, seed| {
        let (settings, steps) = steps::steps(seed);
        plant(Some(defect));
        let failure = fails(settings, &steps, &mut Counts::default());
        plant(None);
        failure
    };
    // What is planted counts in one thread.
    let missed = alone(|| {
        let find = |defect: &Defect| (0..RUNS).find_map(|seed| Some((seed, fails_with(*defect, seed)?)));
        let is_missed = |defect: &&Defect| {
            let found = find(defect);
            println!("{defect:?}: {found:?}");
            found.is_none()
        };
        DEFECTS.iter().filter(is_missed).collect::<Vec<_>>()
    });
    assert!(missed.is_empty(), "{missed:?}");
}
