use super::Feature;
use crate::dice::Dice;
use crate::model::end_of_last_batch;
use crate::world::{Stop, World};

/// Everything of a log is synced.
pub(super) struct Sync;

impl Feature for Sync {
    fn name(&self) -> &'static str {
        "sync"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        world.note(|| format!("sync {}", log.topic_partition()));
        log.sync()?;
        world.model(&log, |model| model.must_end = end_of_last_batch(&log));
        Ok(())
    }
}
