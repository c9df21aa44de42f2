use keeplog::{Durability, Record};

use super::{Feature, value};
use crate::dice::Dice;
use crate::model::Fate;
use crate::world::{Stop, World};

/// Appends a batch of a few records.
pub(super) struct Append;

impl Feature for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn weight(&self) -> u64 {
        11
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        let written: Vec<_> = (0..=dice.roll(4)).map(|_| (format!("k{}", dice.roll(6)), value(dice))).collect();
        let record =
            |(key, value): &(String, Option<String>)| Record { value: value.clone().map(Into::into), ..Record::tombstone(key.clone()) };
        let records: Vec<_> = written.iter().map(record).collect();
        let durability = if dice.one_in(3) { Durability::Synced } else { Durability::Buffered };
        let base = log.end_offset();
        world.note(|| format!("append to {} at {base}, {durability:?}: {}", log.topic_partition(), brief(&written)));
        world.model(&log, |model| model.note(base, &written, Fate::Holds));
        log.append(&records, durability)?;
        Ok(world.model(&log, |model| model.acknowledge(&log, durability))?)
    }
}

/// Keys, and which of them are deleted.
pub(super) fn brief(written: &[(String, Option<String>)]) -> String {
    let one = |(key, value): &(String, Option<String>)| format!("{key}{}", if value.is_some() { "" } else { " deleted" });
    written.iter().map(one).collect::<Vec<_>>().join(", ")
}
