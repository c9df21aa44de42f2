use keeplog::inspect::storage::Storage;

use super::Feature;
use super::offsets::{acknowledge, ask, check, check_count, served};
use crate::dice::Dice;
use crate::model::{Place, What};
use crate::world::{Stop, World};

/// What is too old goes.
pub(super) struct Expire;

impl Feature for Expire {
    fn name(&self) -> &'static str {
        "expire"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, _: &mut Dice) -> Result<(), Stop> {
        let retention_ms = world.offsets.options().offsets_retention.as_millis() as i64;
        let now_ms = world.disk.now_ms();
        world.note(|| format!("expire what is {retention_ms} ms old at {now_ms}"));
        let (mut right, mut concerned) = (0, Vec::new());
        for number in served(world) {
            let places: Vec<Place> = world.partition(number, |partition| {
                let (state, unshown) = (partition.state(), partition.unshown());
                let old = state.committed.iter().filter(|(_, held)| now_ms - held.timestamp_ms >= retention_ms);
                old.map(|(place, _)| place).filter(|place| !state.is_pending(place) && !unshown.contains(place)).cloned().collect()
            });
            right += places.len();
            if !places.is_empty() {
                ask(world, number, What::Tombstones(places));
                concerned.push(number);
            }
        }
        let expired = world.offsets.expire()?;
        concerned.into_iter().for_each(|number| acknowledge(world, number));
        check_count("have expired", expired.offsets, right)?;
        check(world)
    }
}
