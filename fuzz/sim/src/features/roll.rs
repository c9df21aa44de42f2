use super::Feature;
use crate::dice::Dice;
use crate::world::{Stop, World};

/// The active segment is closed.
pub(super) struct Roll;

impl Feature for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        world.note(|| format!("roll {} at {}", log.topic_partition(), log.end_offset()));
        Ok(log.roll()?)
    }
}
