use super::Feature;
use super::clean::{pass_begins, pass_ended};
use crate::dice::Dice;
use crate::world::{Stop, World};

/// A round of background work: the dirtiest log is cleaned, retention applied, checkpoints saved when due.
pub(super) struct Housekeep;

impl Feature for Housekeep {
    fn name(&self) -> &'static str {
        "housekeep"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, _: &mut Dice) -> Result<(), Stop> {
        let passes = world.offsets.store().cleaner().passes;
        for log in world.events() {
            pass_begins(world, &log);
            retention_begins(world, &log);
        }
        world.offsets.store().housekeep();
        let cleaned = world.offsets.store().cleaner().passes - passes;
        world.note(|| format!("housekeep: {cleaned} logs cleaned"));
        for log in world.events() {
            pass_ended(world, &log);
            retention_ended(world, &log);
        }
        Ok(())
    }
}

/// Retention may raise the start up to the end, where the policy deletes.
pub(super) fn retention_begins(world: &World, log: &keeplog::Log) {
    if log.options().cleanup_policy.deletes() {
        world.model(log, |model| model.start_max = model.start_max.max(log.end_offset()));
    }
}

/// What was read as the start stays so: it is durable.
pub(super) fn retention_ended(world: &World, log: &keeplog::Log) {
    if log.options().cleanup_policy.deletes() {
        world.model(log, |model| model.start_min = model.start_min.max(log.start_offset()));
    }
}
