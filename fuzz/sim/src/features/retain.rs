use super::Feature;
use super::housekeep::{retention_begins, retention_ended};
use crate::dice::Dice;
use crate::world::{Stop, World};

/// Old segments are given up.
pub(super) struct Retain;

impl Feature for Retain {
    fn name(&self) -> &'static str {
        "retain"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        let start = log.start_offset();
        retention_begins(world, &log);
        let removed = log.apply_retention()?.segments;
        world.note(|| format!("retention: {removed} segments of {} removed", log.topic_partition()));
        if !log.options().cleanup_policy.deletes() && log.start_offset() != start {
            return Err(Stop::Wrong(format!("retention moved the start of a log that is only compacted from {start}")));
        }
        retention_ended(world, &log);
        Ok(())
    }
}
