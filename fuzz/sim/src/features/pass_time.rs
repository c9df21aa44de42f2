use super::Feature;
use crate::dice::Dice;
use crate::world::{Stop, TOMBSTONES_STAY_MS, World};

/// Time passes.
pub(super) struct PassTime;

impl Feature for PassTime {
    fn name(&self) -> &'static str {
        "pass time"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let ms = dice.roll(2 * TOMBSTONES_STAY_MS);
        world.note(|| format!("{ms} ms pass"));
        world.disk.advance_ms(ms);
        Ok(())
    }
}
