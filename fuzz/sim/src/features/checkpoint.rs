use super::Feature;
use super::clean::pass_ended;
use crate::dice::Dice;
use crate::world::{Stop, World};

/// Recovery points, start offsets and cleaner offsets are saved.
pub(super) struct Checkpoint;

impl Feature for Checkpoint {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, _: &mut Dice) -> Result<(), Stop> {
        world.note(|| "save the checkpoints".to_owned());
        world.offsets.store().checkpoint()?;
        world.events().iter().for_each(|log| pass_ended(world, log));
        Ok(())
    }
}
