//! Small histories, crashed at every single change and sync, with every combination of what the disk may have kept.

use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use keeplog::{Codec, RequiredAcks};

use crate::afterlife::afterlife;
use crate::crowd;
use crate::dice::{Dice, Odometer};
use crate::disk::{Disk, Fault, Survival};
use crate::features::{ALL, named, take};
use crate::life::{End, Era, Life, Moment, Omission, Step, recover_twice, run, trace_of};
use crate::world::{Outside, Settings, Stop, T0, World};

/// More combinations than this are not gone through; that a history has more is an error.
const COMBINATIONS_MAX: u64 = 200_000;

/// A history: which features, with which seeds.
#[derive(Debug)]
pub struct Script {
    /// What it shows.
    pub name: &'static str,
    /// Features by name, and their seeds.
    pub steps: &'static [(&'static str, u64)],
}

/// Histories that touch everything that is ever written, renamed or removed, each short enough to be gone through.
pub static SCRIPTS: &[Script] = &[
    Script { name: "append", steps: &[("append", 1), ("append", 2), ("sync", 0), ("idempotent", 1), ("append", 3)] },
    Script { name: "roll", steps: &[("append", 1), ("roll", 0), ("append", 2), ("roll", 0), ("sync", 0)] },
    Script { name: "clean", steps: &[("append", 1), ("append", 2), ("roll", 0), ("append", 3), ("clean", 1)] },
    Script { name: "clean twice", steps: &[("append", 1), ("roll", 0), ("clean", 1), ("append", 2), ("roll", 0), ("clean", 1)] },
    Script { name: "truncate", steps: &[("append", 1), ("roll", 0), ("append", 2), ("truncate", 1), ("append", 3)] },
    Script { name: "trim", steps: &[("append", 1), ("roll", 0), ("append", 2), ("trim", 2), ("retain", 0), ("checkpoint", 0)] },
    Script { name: "restart", steps: &[("append", 1), ("checkpoint", 0), ("restart", 0), ("append", 2)] },
    Script { name: "transact", steps: &[("transact", 1), ("roll", 0), ("append", 3), ("clean", 1)] },
    Script { name: "leave open", steps: &[("leave open", 1), ("roll", 0), ("clean", 1), ("end open", 1)] },
    Script { name: "commit", steps: &[("commit", 1), ("commit", 2), ("delete offset", 1), ("clean", 2), ("commit", 3)] },
    Script {
        name: "commit later",
        steps: &[("commit later", 13), ("commit later", 56), ("flush", 0), ("commit later", 29), ("restart", 0)],
    },
    Script { name: "written", steps: &[("set options", 2), ("commit", 13), ("commit later", 56), ("flush", 0), ("commit", 29)] },
    Script { name: "queued", steps: &[("set options", 7), ("commit", 13), ("commit later", 56), ("flush", 0), ("commit", 29)] },
    Script {
        name: "transaction",
        steps: &[("commit", 13), ("commit in transaction", 12), ("commit", 29), ("end transaction", 2), ("reload", 0)],
    },
    Script { name: "aborted", steps: &[("commit", 13), ("commit in transaction", 12), ("end transaction", 14), ("reload", 0)] },
    Script { name: "expire", steps: &[("commit", 13), ("commit", 53), ("commit later", 26), ("expire", 0), ("flush", 0), ("clean", 2)] },
    Script { name: "lead", steps: &[("commit", 13), ("commit later", 56), ("resign", 0), ("lead", 1), ("load", 0), ("commit", 29)] },
    // It is resigned in the middle of its load.
    Script { name: "lead twice", steps: &[("commit", 13), ("resign", 0), ("lead", 1), ("load", 3), ("lead", 2), ("load", 0)] },
    Script { name: "delete topic", steps: &[("commit", 13), ("commit", 18), ("commit later", 56), ("delete topic", 1), ("reload", 0)] },
    Script { name: "snapshot", steps: &[("commit", 13), ("save snapshots", 1), ("commit", 29), ("restart", 0)] },
    Script { name: "delete group", steps: &[("commit", 1), ("delete group", 1), ("reload", 0), ("housekeep", 0)] },
];

/// What was gone through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Changes and syncs that a history was crashed at.
    pub crashes: u64,
    /// Disks that were recovered from.
    pub disks: u64,
    /// Combinations at one crash at most.
    pub most: u64,
}

/// Crashes `script` everywhere.
///
/// # Errors
/// What is not as it must be, the first in the order of the history.
///
/// # Panics
/// If a history can't be gone through.
pub fn crash_everywhere(script: &Script, omission: Omission) -> Result<Count, String> {
    let moments = crowd::alone(|| moments(script, omission))?;
    let (total, failures) = (Mutex::new(Count::default()), crowd::Findings::default());
    crowd::each(moments.len() as u64, |number| {
        let moment = moments[number as usize];
        match crash(script, moment, omission) {
            Ok(disks) => {
                let mut total = total.lock().unwrap();
                total.crashes += 1;
                total.disks += disks;
                total.most = total.most.max(disks);
                false
            }
            Err(what) => {
                failures.add(number, format!("{}: power failure in step {} at call {}: {what}", script.name, moment.step, moment.call));
                true
            }
        }
    });
    match failures.sorted().into_iter().next() {
        Some((_, what)) => Err(what),
        None => Ok(total.into_inner().unwrap()),
    }
}

/// Lets every call of `script` fail once, in every way, and goes on with what is left. Returns the number of failures.
///
/// # Errors
/// What is not as it must be, the first in the order of the history.
///
/// # Panics
/// If a history can't be gone through.
pub fn fail_everywhere(script: &Script, omission: Omission) -> Result<u64, String> {
    let moments = crowd::alone(|| moments(script, omission))?;
    let (lives, failures) = (AtomicU64::new(0), crowd::Findings::default());
    crowd::each(moments.len() as u64, |number| {
        let Moment { step, call: at } = moments[number as usize];
        let faults = [
            Fault::Once { at, kind: ErrorKind::Other },
            Fault::Once { at, kind: ErrorKind::StorageFull },
            Fault::Full { at },
            Fault::Read { at },
        ];
        for fault in faults.into_iter().filter(|_| step > 0) {
            lives.fetch_add(1, Ordering::Relaxed);
            let mut life = script.life();
            life.eras[0].steps[step - 1].fault = fault;
            if let Err(failure) = run(&life, omission, false) {
                failures.add(number, format!("{}: {fault:?} in step {step}: {}", script.name, failure.what));
                return true;
            }
        }
        false
    });
    match failures.sorted().into_iter().next() {
        Some((_, what)) => Err(what),
        None => Ok(lives.into_inner()),
    }
}

/// What `script` does, a line for each thing.
#[must_use]
pub fn trace(script: &Script) -> Vec<String> {
    crowd::alone(|| trace_of(&script.life()))
}

impl Script {
    fn settings(&self) -> Settings {
        let (compression, acks) = (Codec::None, RequiredAcks::Synced);
        // Others would only be longer.
        let snapshots = self.steps.iter().any(|(feature, _)| *feature == "save snapshots");
        Settings { logs: 1, offset_logs: 1, segment_bytes: 4096, compression, acks, lead_all: true, snapshots }
    }

    /// The history with nothing that goes wrong.
    fn life(&self) -> Life {
        let step = |(name, seed): &(&str, u64)| Step { feature: named(name), seed: *seed, fault: Fault::None };
        Life { settings: self.settings(), eras: vec![Era { steps: self.steps.iter().map(step).collect(), end: End::Close }] }
    }
}

/// Every change and sync of the history.
fn moments(script: &Script, omission: Omission) -> Result<Vec<Moment>, String> {
    let mut moments = Vec::new();
    let (disk, _, outcome) = live(script, omission, |step, disk| {
        if let Some(before) = step.checked_sub(1) {
            // One more than there are: the power goes after the step.
            moments.extend((0..=disk.calls()).map(|call| Moment { step: before, call }));
        }
        Some(Fault::None)
    });
    outcome.map_err(|what| format!("{}: {what}", script.name))?;
    moments.extend((0..=disk.calls()).map(|call| Moment { step: script.steps.len(), call }));
    Ok(moments)
}

/// The history until the power goes.
fn until(script: &Script, moment: Moment, omission: Omission) -> (Disk, Rc<Outside>) {
    let (disk, outside, _) = live(script, omission, |step, _| match step.cmp(&moment.step) {
        std::cmp::Ordering::Less => Some(Fault::None),
        std::cmp::Ordering::Equal => Some(Fault::Crash { at: moment.call }),
        std::cmp::Ordering::Greater => None,
    });
    (disk, outside)
}

/// Runs the history. `arm` is asked before the opening (0) and before each step what goes wrong in it; at `None` it ends.
fn live(
    script: &Script,
    omission: Omission,
    mut arm: impl FnMut(usize, &Disk) -> Option<Fault>,
) -> (Disk, Rc<Outside>, Result<(), String>) {
    let (disk, outside) = (Disk::new(T0), Outside::new(script.settings(), false));
    disk.omit_syncs(omission);
    let mut go = || -> Result<(), Stop> {
        disk.set_fault(arm(0, &disk).unwrap_or(Fault::None));
        let mut world = World::open(&disk, &outside)?;
        world.opened()?;
        for (number, (feature, seed)) in (1..).zip(script.steps) {
            let Some(fault) = arm(number, &disk) else { break };
            disk.set_fault(fault);
            take(ALL[named(feature)], &mut world, &mut Dice::new(*seed))?;
        }
        // The power is gone, and so it is not closed. The count of calls stays.
        disk.stop();
        Ok(())
    };
    let outcome = go().map_err(|stop| match stop {
        Stop::Failed(error) => format!("{error:?}"),
        Stop::Wrong(what) => what,
    });
    (disk, outside, outcome)
}

/// The history until the power goes, and every disk that may be left. Returns how many there were.
fn crash(script: &Script, moment: Moment, omission: Omission) -> Result<u64, String> {
    let (disk, outside) = until(script, moment, omission);
    let mut odometer = Odometer::default();
    let mut disks = 0;
    loop {
        let image = disk.after_power_failure(Survival::Each, &mut odometer);
        let told = |why: String| format!("disk {disks}: {why}");
        // The second crash comes at another call each time.
        let twice = recover_twice(&image, &outside.fork(), Survival::Nothing, disks % 40, &mut Dice::new(disks));
        let outside = outside.fork();
        let world = World::open(&image, &outside).map_err(|e| told(format!("it does not open: {e:?}")))?;
        if let Some(twice) = twice {
            let once = world.extents().map_err(told)?;
            if once != twice {
                return Err(told(format!("recovery ended with {once:?}, after a crash in it with {twice:?}")));
            }
        }
        world.lose_unsynced();
        world.opened().map_err(told)?;
        world.check().map_err(told)?;
        world.take_over(true).map_err(told)?;
        afterlife(world).map_err(told)?;
        disks += 1;
        assert!(disks < COMBINATIONS_MAX, "{} has too many combinations at {moment:?}", script.name);
        if !odometer.advance() {
            return Ok(disks);
        }
    }
}
