use super::Feature;
use crate::dice::Dice;
use crate::world::{Stop, World};

/// The start of a log is raised.
pub(super) struct Trim;

impl Feature for Trim {
    fn name(&self) -> &'static str {
        "trim"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        let (start, end) = (log.start_offset(), log.end_offset());
        let to = start + dice.roll(end - start + 1) / 2;
        world.note(|| format!("raise the start of {} from {start} to {to}", log.topic_partition()));
        world.model(&log, |model| model.start_max = model.start_max.max(to));
        log.advance_start(to)?;
        if log.start_offset() != to {
            return Err(Stop::Wrong(format!("the start was raised to {to}, it is {}", log.start_offset())));
        }
        world.model(&log, |model| model.start_min = to);
        Ok(())
    }
}
