//! From a life that fails to the shortest one that still does.

use crate::disk::{Fault, Survival};
use crate::life::{End, Failure, Life, Moment, Omission, run};

/// Runs at most, so that it ends.
const RUNS_MAX: usize = 3000;

/// A shorter life that fails too, and how.
#[must_use]
pub fn shrink(life: &Life, failure: Failure, omission: Omission) -> (Life, Failure) {
    let mut shrinker = Shrinker { best: life.clone(), failure, omission, runs: 0 };
    shrinker.best.eras.truncate(shrinker.failure.era + 1);
    if !shrinker.try_life(shrinker.best.clone()) {
        shrinker.best = life.clone();
    }
    while shrinker.runs < RUNS_MAX && shrinker.round() {}
    let Shrinker { best, failure, .. } = shrinker;
    // Once more, for its trace.
    let failure = run(&best, omission, true).err().unwrap_or(failure);
    (best, failure)
}

struct Shrinker {
    best: Life,
    failure: Failure,
    omission: Omission,
    runs: usize,
}

impl Shrinker {
    /// Tries everything once; whether anything helped.
    fn round(&mut self) -> bool {
        let mut helped = false;
        for era in (0..self.best.eras.len()).rev() {
            helped |= self.edit(|life| {
                (life.eras.len() > 1 && era < life.eras.len()).then(|| {
                    life.eras.remove(era);
                })
            });
        }
        for era in 0..self.best.eras.len() {
            let mut size = self.best.eras[era].steps.len();
            while size > 0 {
                let mut from = 0;
                while from < self.best.eras[era].steps.len() {
                    if self.edit(|life| remove_steps(life, era, from, size)) {
                        helped = true;
                    } else {
                        from += size;
                    }
                }
                size /= 2;
            }
            helped |= self.simplify(era);
        }
        helped
    }

    fn simplify(&mut self, era: usize) -> bool {
        let mut helped = false;
        for step in 0..self.best.eras[era].steps.len() {
            helped |= self.edit(|life| {
                let fault = &mut life.eras[era].steps[step].fault;
                (*fault != Fault::None).then(|| *fault = Fault::None)
            });
        }
        helped |= self.edit(|life| (life.eras[era].end != End::Close).then(|| life.eras[era].end = End::Close));
        for simple in [Survival::Nothing, Survival::Everything] {
            helped |= self.edit(|life| match &mut life.eras[era].end {
                End::PowerFailure { survival, .. } if *survival > simple && *survival > Survival::Nothing => {
                    *survival = simple;
                    Some(())
                }
                _ => None,
            });
        }
        for call in [0, 1, 2, 4, 8] {
            helped |= self.edit(|life| {
                let moment = moment_of(&mut life.eras[era].end)?;
                (moment.call > call).then(|| moment.call = call)
            });
        }
        helped
    }

    /// Keeps a change if the life fails with it, too.
    fn edit(&mut self, change: impl FnOnce(&mut Life) -> Option<()>) -> bool {
        let mut life = self.best.clone();
        change(&mut life).is_some() && self.try_life(life)
    }

    fn try_life(&mut self, life: Life) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        match run(&life, self.omission, false) {
            Ok(_) => false,
            Err(failure) => {
                (self.best, self.failure) = (life, failure);
                true
            }
        }
    }
}

fn moment_of(end: &mut End) -> Option<&mut Moment> {
    match end {
        End::Close => None,
        End::Kill(moment) | End::PowerFailure { moment, .. } => Some(moment),
    }
}

/// Removes some steps of an era; the one that it ends in stays the same.
fn remove_steps(life: &mut Life, era: usize, from: usize, count: usize) -> Option<()> {
    let era = &mut life.eras[era];
    let to = (from + count).min(era.steps.len());
    if from >= to {
        return None;
    }
    if let Some(moment) = moment_of(&mut era.end) {
        // The step numbered n is the one at n - 1.
        if (from + 1..=to).contains(&moment.step) {
            *moment = Moment { step: from, call: u64::MAX };
        } else if moment.step > to {
            moment.step -= to - from;
        }
    }
    era.steps.drain(from..to);
    Some(())
}
