use super::Feature;
use crate::dice::Dice;
use crate::model::end_of_last_batch_below;
use crate::world::{Stop, World};

/// The end of a log is cut off.
pub(super) struct Truncate;

impl Feature for Truncate {
    fn name(&self) -> &'static str {
        "truncate"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        let end = log.end_offset();
        let to = end - dice.roll(end.min(40) + 1);
        // The batch that holds the offset goes as a whole.
        let whole = end_of_last_batch_below(&log, to);
        world.note(|| format!("truncate {} from {end} to {to}; the last whole batch ends at {whole}", log.topic_partition()));
        world.model(&log, |model| model.truncating(to, whole));
        log.truncate_to(to)?;
        if log.end_offset() != to {
            return Err(Stop::Wrong(format!("truncated to {to}, it ends at {}", log.end_offset())));
        }
        world.model(&log, |model| model.truncated(to, whole, log.start_offset()));
        Ok(())
    }
}
