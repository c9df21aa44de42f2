use super::Feature;
use crate::dice::Dice;
use crate::model::end_of_last_batch;
use crate::world::{Stop, World};

/// Everything is closed in order and opened again.
pub(super) struct Restart;

impl Feature for Restart {
    fn name(&self) -> &'static str {
        "restart"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn step(&self, world: &mut World, _: &mut Dice) -> Result<(), Stop> {
        world.note(|| "close everything and open it again".to_owned());
        let ends: Vec<_> = world.events().into_iter().map(|log| (end_of_last_batch(&log), log)).collect();
        world.clone().close()?;
        world.closed()?;
        for (end, log) in ends {
            world.model(&log, |model| model.must_end = end);
        }
        *world = World::open(&world.disk, &world.outside)?;
        for log in world.logs() {
            // One that could not be opened at first is opened once more, and not believed to be clean then.
            if !log.recovery_report().clean && !world.disk.has_struck() {
                return Err(Stop::Wrong(format!("{} was closed in order, and recovered nevertheless", log.topic_partition())));
            }
        }
        world.opened()?;
        world.check().map_err(|why| format!("after a clean close: {why}"))?;
        Ok(world.take_over(true)?)
    }
}
