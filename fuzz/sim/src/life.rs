//! One life: eras of steps, each of which ends in one way or another, and what must hold between them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use keeplog::{Error, ErrorKind};

use crate::afterlife::afterlife;
use crate::dice::Dice;
use crate::disk::{Call, Disk, Fault, Survival, without_faults};
use crate::features::{ALL, take};
use crate::world::{Extents, Outside, Settings, Stop, T0, World};

/// A whole life. The same life always goes the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// What does not change.
    pub settings: Settings,
    /// One after the other.
    pub eras: Vec<Era>,
}

/// From one start of the process to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Era {
    /// What it does.
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: End,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which of [`ALL`].
    pub feature: usize,
    /// What exactly it does.
    pub seed: u64,
    /// What goes wrong meanwhile.
    pub fault: Fault,
}

/// How an era ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Close,
    /// The process is killed. What it wrote is still in the page cache.
    Kill(Moment),
    /// The machine loses power.
    PowerFailure {
        /// When.
        moment: Moment,
        /// What is left.
        survival: Survival,
        /// Of what is left.
        seed: u64,
    },
}

/// When an era ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// In the opening (0) or in this step, counted from 1.
    pub step: usize,
    /// At this change or sync of it, counted from 0; after the step if it makes fewer.
    pub call: u64,
}

/// What went wrong, and where.
#[derive(Clone, Debug)]
pub struct Failure {
    /// In which era.
    pub era: usize,
    /// What.
    pub what: String,
    /// What was done until then, if that was asked for.
    pub trace: Vec<String>,
}

/// What a life was made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Steps taken.
    pub steps: u64,
    /// Processes killed.
    pub kills: u64,
    /// Power failures.
    pub power_failures: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Changes and syncs of the storage.
    pub calls: u64,
    /// Opens that began with a snapshot of committed offsets.
    pub restored: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.kills += other.kills;
        self.power_failures += other.power_failures;
        self.faults += other.faults;
        self.calls += other.calls;
        self.restored += other.restored;
    }
}

/// A defect of the storage's making: syncs that are left out.
pub type Omission = Option<fn(&Call<'_>) -> bool>;

/// Lives `life`.
///
/// # Errors
/// The first thing that is not as it must be; a panic is one, too.
pub fn run(life: &Life, omission: Omission, trace: bool) -> Result<Tally, Failure> {
    run_in(life, omission, &Outside::new(life.settings.clone(), trace), trace)
}

/// What `life` does, a line for each thing, whether anything is wrong with it or not.
#[must_use]
pub fn trace_of(life: &Life) -> Vec<String> {
    let outside = Outside::new(life.settings.clone(), true);
    match run_in(life, None, &outside, true) {
        Ok(_) => outside.take_notes(),
        Err(failure) => failure.trace,
    }
}

fn run_in(life: &Life, omission: Omission, outside: &Rc<Outside>, trace: bool) -> Result<Tally, Failure> {
    let outside = Rc::clone(outside);
    let mut runner = Runner { disk: Disk::new(T0), outside, tally: Tally::default(), era: 0 };
    runner.disk.omit_syncs(omission);
    runner.disk.trace(trace);
    let outcome = catch_unwind(AssertUnwindSafe(|| runner.live(life)));
    let result = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("a panic: {}", text.unwrap_or("of unknown kind")))
    });
    match result {
        Ok(()) => Ok(Tally { restored: runner.outside.restored.get(), ..runner.tally }),
        Err(what) => {
            let mut trace = runner.outside.take_notes();
            let calls = runner.disk.take_trace();
            if trace.len() > 1 {
                trace.push("the last changes and syncs of the disk:".to_owned());
                trace.extend(calls[calls.len().saturating_sub(30)..].iter().cloned());
            }
            Err(Failure { era: runner.era, what, trace })
        }
    }
}

struct Runner {
    disk: Disk,
    outside: Rc<Outside>,
    tally: Tally,
    era: usize,
}

/// What is known of the disk when the process starts.
enum Before {
    /// The process ended in order, or there was none.
    Order,
    /// It was killed.
    Kill,
    /// The power was gone.
    PowerFailure {
        /// What came of opening it with one more crash on the way.
        twice: Option<Extents>,
        /// There may be damage that recovery leaves in place.
        scars: bool,
        /// All that is found is safe: nobody has worked on it since.
        durable: bool,
    },
}

impl Before {
    /// What is known when the process came to an end before anybody looked at what this had left.
    fn unseen(&self, end: Self) -> Self {
        let Self::PowerFailure { scars: earlier, .. } = *self else { return end };
        match end {
            Self::PowerFailure { scars, durable, .. } => Self::PowerFailure { twice: None, scars: scars || earlier, durable },
            Self::Order | Self::Kill => Self::PowerFailure { twice: None, scars: earlier, durable: false },
        }
    }
}

type Done = Result<(), String>;

impl Runner {
    fn live(&mut self, life: &Life) -> Done {
        let mut before = Before::Order;
        for (number, era) in life.eras.iter().enumerate() {
            self.era = number;
            self.outside.note(|| format!("== era {number}, ends by {}", describe(&era.end)));
            before = self.era(era, &before)?;
        }
        self.outside.note(|| "== afterlife".to_owned());
        let world = self.open(&before)?;
        afterlife(world)
    }

    /// Opens everything and looks; nothing is wrong with the disk meanwhile.
    fn open(&self, before: &Before) -> Result<World, String> {
        let mut opened = World::open(&self.disk, &self.outside);
        if matches!(before, Before::PowerFailure { scars: true, .. }) && opened.as_ref().map_or(true, World::is_scarred) {
            // Sectors that were written without those before them leave damage in the middle of what was never safe.
            self.disk.stop();
            drop(opened);
            self.disk.set_fault(Fault::None);
            World::salvage(&self.disk, &self.outside).map_err(|e| format!("it can't be salvaged: {e:?}"))?;
            opened = World::open(&self.disk, &self.outside);
        }
        let world = opened.map_err(|e| format!("it does not open: {e:?}"))?;
        self.look(&world, before)?;
        Ok(world)
    }

    fn look(&self, world: &World, before: &Before) -> Done {
        if let Before::PowerFailure { twice, scars, .. } = before {
            world.lose_unsynced();
            if let Some(twice) = twice.as_ref().filter(|_| !scars) {
                let once = world.extents()?;
                if once != *twice {
                    return Err(format!("recovery ended with {once:?}, after a crash in it with {twice:?}"));
                }
            }
        }
        world.opened()?;
        world.check()?;
        world.take_over(matches!(before, Before::PowerFailure { durable: true, .. }))
    }

    fn era(&mut self, era: &Era, before: &Before) -> Result<Before, String> {
        let moment = match era.end {
            End::Close => None,
            End::Kill(moment) | End::PowerFailure { moment, .. } => Some(moment),
        };
        let arm = |step: usize, fault: Fault| match moment {
            Some(moment) if moment.step == step => Fault::Crash { at: moment.call },
            _ => fault,
        };
        self.disk.set_fault(arm(0, Fault::None));
        if moment.is_some_and(|moment| moment.step == 0) {
            let opened = World::open(&self.disk, &self.outside);
            self.disk.stop();
            drop(opened);
            return Ok(before.unseen(self.end(&era.end)));
        }
        let mut world = self.open(before)?;
        for (number, step) in (1..).zip(&era.steps) {
            self.tally.calls += self.disk.calls();
            let fault = arm(number, step.fault);
            self.disk.set_fault(fault);
            self.tally.steps += 1;
            let result = take(ALL[step.feature], &mut world, &mut Dice::new(step.seed));
            if matches!(fault, Fault::Crash { .. }) {
                if let Err(Stop::Wrong(what)) = result
                    && !self.disk.has_struck()
                {
                    return Err(what);
                }
                self.disk.stop();
                drop(world);
                return Ok(self.end(&era.end));
            }
            world = self.after_step(world, step, result)?;
        }
        self.disk.set_fault(Fault::None);
        if let Some(moment) = moment {
            // A shorter life than it was meant for.
            debug_assert!(moment.step > era.steps.len());
            self.disk.stop();
            drop(world);
            return Ok(self.end(&era.end));
        }
        world.clone().close().map_err(|e| format!("it does not close: {e:?}"))?;
        world.closed()?;
        Ok(Before::Order)
    }

    /// What follows from how a step ended. After a failure the process goes on with everything opened anew.
    fn after_step(&mut self, world: World, step: &Step, result: Result<(), Stop>) -> Result<World, String> {
        let struck = self.disk.has_struck();
        self.disk.set_fault(Fault::None);
        match result {
            Ok(()) if !struck => return Ok(world),
            Ok(()) => {}
            Err(Stop::Wrong(what)) => return Err(what),
            Err(Stop::Failed(error)) if struck => check_error(&error)?,
            Err(Stop::Failed(error)) => return Err(format!("{} failed: {error:?}", ALL[step.feature].name())),
        }
        self.tally.faults += 1;
        without_faults(|| self.outside.models.borrow_mut().offsets.look(&world.offsets))?;
        self.outside.note(|| format!("  {:?} struck", step.fault));
        let mut dice = Dice::new(step.seed ^ 0x5EED);
        let before = match dice.roll(4) {
            // Nothing that matters failed, and it goes on.
            0 if goes_on_after(ALL[step.feature].name(), &world) => {
                world.check()?;
                world.take_over(false)?;
                return Ok(world);
            }
            // What can be closed is, and nothing but what failed needs recovery.
            1 => {
                let _ = world.close();
                Before::Kill
            }
            how => {
                self.disk.stop();
                drop(world);
                let moment = Moment { step: 0, call: 0 };
                let survival = if dice.one_in(2) { Survival::Nothing } else { Survival::InOrder };
                let end = if how == 2 { End::PowerFailure { moment, survival, seed: dice.any() } } else { End::Kill(moment) };
                self.end(&end)
            }
        };
        self.open(&before)
    }

    fn end(&mut self, end: &End) -> Before {
        if let End::PowerFailure { survival, seed, .. } = *end {
            self.tally.power_failures += 1;
            let mut dice = Dice::new(seed);
            let image = self.disk.after_power_failure(survival, &mut dice);
            let twice = recover_twice(&image, &self.outside, survival, dice.roll(25), &mut dice);
            let trace = self.disk.take_trace();
            self.disk = image;
            self.disk.trace(!trace.is_empty());
            return Before::PowerFailure { twice, scars: survival == Survival::AnyOrder, durable: true };
        }
        self.tally.kills += 1;
        self.disk.set_fault(Fault::None);
        Before::Kill
    }
}

/// What recovery comes to if the power goes once more in the middle of it, at this call.
pub(crate) fn recover_twice(image: &Disk, outside: &Rc<Outside>, survival: Survival, call: u64, dice: &mut Dice) -> Option<Extents> {
    let again = image.after_power_failure(Survival::Everything, dice);
    again.set_fault(Fault::Crash { at: call });
    let opened = World::open(&again, outside);
    again.stop();
    drop(opened);
    let again = again.after_power_failure(survival, dice);
    // If this one does not open, neither will the other, or the two differ: both are found.
    let world = World::open(&again, outside).ok()?;
    let extents = world.extents().ok();
    again.stop();
    extents
}

/// Whether nothing that failed in a step matters to later ones.
fn goes_on_after(feature: &str, world: &World) -> bool {
    let is_sound = world.logs().iter().all(|log| !log.needs_reopen()) && world.offsets.counters().failed_partitions == 0;
    is_sound && matches!(feature, "append" | "save snapshots")
}

/// An error of the storage must say what failed, and where.
fn check_error(error: &Error) -> Done {
    let text = format!("{error:?}");
    let kind = matches!(error.kind(), ErrorKind::Io | ErrorKind::StorageFull | ErrorKind::Poisoned | ErrorKind::NotFound);
    if kind && text.contains(" /") { Ok(()) } else { Err(format!("the error does not say what failed: {text}")) }
}

fn describe(end: &End) -> String {
    match end {
        End::Close => "a clean close".to_owned(),
        End::Kill(moment) => format!("a kill in step {} at call {}", moment.step, moment.call),
        End::PowerFailure { moment, survival, .. } => {
            format!("a power failure in step {} at call {}, of the unsynced survives: {survival:?}", moment.step, moment.call)
        }
    }
}
