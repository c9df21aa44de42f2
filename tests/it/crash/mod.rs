//! The log is killed, and the machine loses power, at every change and every sync of its life.

mod disk;
mod history;
mod offsets;

use disk::{Dice, Disk, Fault, Survival};
use history::{Model, T0, World, afterlife, live};
use keeplog::ErrorKind;

const STEPS: usize = 60;

/// Runs one life up to every call (every `stride`th), crashes, recovers and looks.
fn crash_everywhere(survival: Survival, seeds: std::ops::Range<u64>, stride: u64) {
    let mut failures = Vec::new();
    let mut crashes = 0u64;
    for seed in seeds {
        let whole = Disk::new(T0);
        live(&whole, seed, STEPS, &mut Model::default()).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
        let mut at = seed % stride;
        while at < whole.calls() {
            if let Err(why) = crash_once(survival, seed, at) {
                failures.push(format!("{survival:?} seed {seed} call {at}: {why}"));
            }
            crashes += 1;
            at += stride;
        }
    }
    assert!(crashes > 20, "too few crashes to say anything: {crashes}");
    assert!(failures.is_empty(), "{} of {crashes}:\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
}

fn crash_once(survival: Survival, seed: u64, at: u64) -> Result<(), String> {
    let disk = Disk::new(T0);
    disk.set_fault(Fault::Crash { at });
    let mut model = Model::default();
    let _ = live(&disk, seed, STEPS, &mut model);
    let mut dice = Dice(seed * 1_000_003 + at);
    let image = disk.after_crash(survival, &mut dice);
    // A second crash while it recovers, and then in peace: the end must be the same.
    let again = image.after_crash(Survival::Everything, &mut dice);
    again.set_fault(Fault::Crash { at: dice.roll(25) });
    let _ = World::open(&again).map(World::close);
    let again = again.after_crash(survival, &mut dice);
    let world = World::open(&image).map_err(|e| format!("does not open: {e:?}"))?;
    let model = if survival == Survival::Everything { model } else { model.without_holes(&world.log) };
    model.check(&world.log)?;
    let twice = World::open(&again).map_err(|e| format!("does not open after a crash in recovery: {e:?}"))?;
    model.check(&twice.log).map_err(|e| format!("after a crash in recovery: {e}"))?;
    let (once, second) = (extent(&world), extent(&twice));
    if once != second {
        return Err(format!("recovery ended with {once:?}, after a crash in it with {second:?}"));
    }
    afterlife(world, model.clone()).map_err(|e| format!("later: {e}"))?;
    afterlife(twice, model).map_err(|e| format!("after a crash in recovery, later: {e}"))
}

fn extent(world: &World) -> (u64, u64, Vec<u64>) {
    let offsets = world.log.read_from(world.log.start_offset()).unwrap().map(|r| r.unwrap().offset()).collect();
    (world.log.start_offset(), world.log.end_offset(), offsets)
}

/// More seeds, for a long run: `KEEPLOG_CRASH_SEEDS=100..200`.
fn seeds(few: std::ops::Range<u64>) -> (std::ops::Range<u64>, u64) {
    match std::env::var("KEEPLOG_CRASH_SEEDS") {
        Ok(given) => {
            let (from, to) = given.split_once("..").unwrap();
            (from.parse().unwrap()..to.parse().unwrap(), 1)
        }
        Err(_) => (few, 3),
    }
}

#[test]
fn a_killed_process_loses_nothing() {
    let (seeds, stride) = seeds(1..4);
    crash_everywhere(Survival::Everything, seeds, stride);
}

#[test]
fn a_power_failure_that_takes_all_unsynced_loses_nothing_acknowledged() {
    let (seeds, stride) = seeds(4..7);
    crash_everywhere(Survival::Nothing, seeds, stride);
}

#[test]
fn a_power_failure_that_takes_some_in_order_loses_nothing_acknowledged() {
    let (seeds, stride) = seeds(7..10);
    crash_everywhere(Survival::InOrder, seeds, stride);
}

#[test]
fn a_power_failure_that_takes_any_loses_nothing_acknowledged() {
    let (seeds, stride) = seeds(10..13);
    crash_everywhere(Survival::AnyOrder, seeds, stride);
}

/// One failure at every call (every `stride`th), and the process goes on; then it opens the log anew.
fn fail_everywhere(seeds: std::ops::Range<u64>, stride: u64, fault: impl Fn(u64) -> Fault) {
    let mut failures = Vec::new();
    for seed in seeds {
        let whole = Disk::new(T0);
        live(&whole, seed, STEPS, &mut Model::default()).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
        let mut at = seed % stride;
        while at < whole.calls() {
            if let Err(why) = fail_once(seed, fault(at)) {
                failures.push(format!("seed {seed} call {at}: {why}"));
            }
            at += stride;
        }
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
}

fn fail_once(seed: u64, fault: Fault) -> Result<(), String> {
    let disk = Disk::new(T0);
    disk.set_fault(fault);
    let mut model = Model::default();
    let failure = live(&disk, seed, STEPS, &mut model).err();
    if let Some(error) = &failure {
        let text = format!("{error:?}");
        if !matches!(error.kind(), ErrorKind::Io | ErrorKind::StorageFull) || !text.contains(" /") {
            return Err(format!("the error does not say what failed: {text}"));
        }
    }
    if let Fault::Full { .. } = fault {
        // It may not even open on a full disk, but it must when there is space again.
        disk.set_fault(Fault::Full { at: 0 });
        let _ = World::open(&disk);
    }
    disk.set_fault(Fault::None);
    let world = World::open(&disk).map_err(|e| format!("does not open after {failure:?}: {e:?}"))?;
    model.check(&world.log).map_err(|why| format!("after {failure:?}: {why}"))?;
    afterlife(world, model).map_err(|why| format!("after {failure:?}, later: {why}"))
}

#[test]
fn a_failing_call_is_reported_and_harms_nothing() {
    let (seeds, stride) = seeds(13..16);
    fail_everywhere(seeds, stride, |at| Fault::Once { at, kind: std::io::ErrorKind::Other });
}

#[test]
fn a_full_disk_is_reported_and_harms_nothing() {
    let (seeds, stride) = seeds(16..19);
    fail_everywhere(seeds, stride, |at| Fault::Full { at });
}

#[test]
fn short_and_interrupted_calls_change_nothing() {
    for seed in 0..20 {
        let disk = Disk::new(T0);
        disk.set_fault(Fault::Short);
        let mut model = Model::default();
        live(&disk, seed, STEPS, &mut model).unwrap();
        let world = World::open(&disk).unwrap();
        model.check(&world.log).unwrap();
        afterlife(world, model).unwrap();
    }
}
