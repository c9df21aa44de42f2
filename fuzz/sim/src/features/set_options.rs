use std::time::Duration;

use keeplog::RequiredAcks;

use super::Feature;
use super::offsets::check;
use crate::dice::Dice;
use crate::world::{Stop, World};

/// The settings of commits change.
pub(super) struct SetOptions;

impl Feature for SetOptions {
    fn name(&self) -> &'static str {
        "set options"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let acks = [RequiredAcks::Synced, RequiredAcks::Synced, RequiredAcks::Written, RequiredAcks::Queued][dice.roll(4) as usize];
        let retention_ms = World::RETENTION_MS / (1 + dice.roll(3));
        let options = world.offsets.options().offsets_commit_required_acks(acks).offsets_retention(Duration::from_millis(retention_ms));
        let options = options.offset_metadata_max_bytes(if dice.one_in(3) { 200 } else { 4096 });
        world.note(|| format!("set {options:?}"));
        world.offsets.set_options(options)?;
        check(world)
    }
}
