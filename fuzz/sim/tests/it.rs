//! The simulator in small. More of it: `fuzz/sim/README.md`.

use keeplog_sim::disk::{Fault, Survival};
use keeplog_sim::life::{End, Era, Failure, Life, Moment, Omission, Step, run, trace_of};
use keeplog_sim::shrink::shrink;
use keeplog_sim::{crowd, exhaustive, features, random};

#[test]
fn random_lives_lose_nothing() {
    let failures = crowd::Findings::default();
    crowd::each(150, |seed| run(&random::life(seed, true), None, false).map_err(|failure| failures.add(seed, failure.what)).is_err());
    assert_eq!(failures.sorted(), []);
}

#[test]
fn a_life_repeats_itself() {
    for seed in 0..8 {
        let trace = || crowd::alone(|| trace_of(&random::life(seed, true)));
        let first = trace();
        assert!(first.len() > 3, "{first:?}");
        assert_eq!(first, trace(), "seed {seed}");
    }
}

#[test]
fn small_histories_survive_a_crash_at_every_call() {
    for script in exhaustive::SCRIPTS.iter().filter(|script| ["append", "restart"].contains(&script.name)) {
        let count = exhaustive::crash_everywhere(script, None).unwrap();
        assert!(count.crashes > 20 && count.disks > 2 * count.crashes, "{} {count:?}", script.name);
        assert!(exhaustive::fail_everywhere(script, None).unwrap() > 50);
    }
}

/// With a disk that keeps nothing of what is synced, an acknowledged append is lost; and of the life that shows it no more
/// is left than that append.
#[test]
fn a_life_that_fails_is_shortened() {
    let step = |name| Step { feature: features::named(name), seed: 7, fault: Fault::None };
    let steps: Vec<_> = ["pass time", "append", "commit", "roll", "append", "sync", "checkpoint"].map(step).into();
    let moment = Moment { step: 7, call: 0 };
    let life = Life {
        settings: random::life(1, false).settings,
        eras: vec![
            Era { steps: steps.clone(), end: End::Close },
            Era { steps, end: End::PowerFailure { moment, survival: Survival::InOrder, seed: 1 } },
        ],
    };
    let omission: Omission = Some(|call| call.path.to_str().is_some_and(|path| path.ends_with(".log")));
    let failure = crowd::alone(|| run(&life, omission, false)).unwrap_err();
    let (shortest, failure): (Life, Failure) = crowd::alone(|| shrink(&life, failure, omission));
    let steps: usize = shortest.eras.iter().map(|era| era.steps.len()).sum();
    assert!(steps <= 3, "{steps} steps are left: {:?}", failure.trace);
    assert!(failure.trace.iter().any(|line| line.contains("power failure") || line.contains("clean close")), "{:?}", failure.trace);
}
