use std::collections::BTreeSet;

use super::Feature;
use super::offsets::{acknowledge, ask, check, check_count, group, is_waiting, partition_of, refusal, refused, remove, served, topic};
use crate::dice::Dice;
use crate::model::{Place, What};
use crate::world::{Stop, World};

/// Some committed offsets of a group are deleted.
pub(super) struct Delete;
/// All of a group is deleted.
pub(super) struct DeleteGroup;
/// All that was committed for a topic is deleted.
pub(super) struct DeleteTopic;

/// The places of which there is anything, shown or not, that `which` says.
fn places(world: &World, partition: usize, which: impl Fn(&Place) -> bool) -> Vec<Place> {
    world.partition(partition, |partition| {
        let all: BTreeSet<_> = partition.state().places().chain(partition.unshown()).filter(|place| which(place)).cloned().collect();
        all.into_iter().collect()
    })
}

impl Feature for Delete {
    fn name(&self) -> &'static str {
        "delete offset"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let (group, topic, number) = (group(dice), topic(dice), dice.roll(4) as i32);
        world.note(|| format!("delete the offset of {group} for {topic} {number}"));
        let partition = partition_of(world, group);
        let work = || world.offsets.delete_offsets(group, &[(topic, number)]);
        if let Some(kind) = refusal(world, partition) {
            return refused(kind, work);
        }
        let asked = (group.to_owned(), topic.to_owned(), number);
        let places = places(world, partition, |place| *place == asked);
        let right = places.len();
        check_count("deleted", remove(world, partition, places, work)? as u64, right)?;
        check(world)
    }
}

impl Feature for DeleteGroup {
    fn name(&self) -> &'static str {
        "delete group"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let group = group(dice);
        world.note(|| format!("delete {group}"));
        let partition = partition_of(world, group);
        let work = || world.offsets.delete_group(group);
        if let Some(kind) = refusal(world, partition) {
            return refused(kind, work);
        }
        let places = places(world, partition, |place| place.0 == group);
        let right = places.len();
        check_count("deleted", remove(world, partition, places, work)? as u64, right)?;
        check(world)
    }
}

impl Feature for DeleteTopic {
    fn name(&self) -> &'static str {
        "delete topic"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let topic = topic(dice);
        world.note(|| format!("delete what was committed for {topic}"));
        if is_waiting(world) {
            // Of what there is no telling yet, nothing is deleted; what comes before it may be.
            return Ok(());
        }
        let mut right = 0;
        let mut concerned = Vec::new();
        for partition in served(world) {
            let places = places(world, partition, |place| place.1 == topic);
            right += places.len();
            if !places.is_empty() {
                ask(world, partition, What::Tombstones(places));
                concerned.push(partition);
            }
        }
        let deleted = world.offsets.delete_topic(topic)?;
        concerned.into_iter().for_each(|partition| acknowledge(world, partition));
        check_count("deleted", deleted as u64, right)?;
        check(world)
    }
}
