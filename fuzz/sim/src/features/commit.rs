use keeplog::OffsetAndMetadata;

use super::Feature;
use crate::dice::Dice;
use crate::model::Place;
use crate::world::{Stop, World};

/// A group commits a few offsets at once.
pub(super) struct Commit;
/// Some committed offsets of a group are deleted.
pub(super) struct Delete;
/// All of a group is deleted.
pub(super) struct DeleteGroup;
/// The cache is loaded anew.
pub(super) struct Reload;

const TOPIC: &str = "orders";

fn group(dice: &mut Dice) -> String {
    format!("g{}", dice.roll(4))
}

fn check(world: &World) -> Result<(), Stop> {
    Ok(world.outside.models.borrow().offsets.check(&world.offsets)?)
}

/// Asks for `answer` at `places` with `work`, and settles it.
fn change(world: &World, places: &[Place], answer: Option<u64>, work: impl FnOnce() -> keeplog::Result<()>) -> Result<(), Stop> {
    let ask = |place: &Place| world.outside.models.borrow_mut().offsets.ask(place.clone(), answer);
    places.iter().for_each(ask);
    work()?;
    world.outside.models.borrow_mut().offsets.settle(places);
    check(world)
}

impl Feature for Commit {
    fn name(&self) -> &'static str {
        "commit"
    }

    fn weight(&self) -> u64 {
        9
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let (group, offset) = (group(dice), dice.roll(1_000_000));
        let places: Vec<Place> = (0..=dice.roll(3)).map(|_| (group.clone(), TOPIC.to_owned(), dice.roll(4) as i32)).collect();
        world.note(|| format!("commit {offset} of {group} for partitions {:?}", places.iter().map(|p| p.2).collect::<Vec<_>>()));
        let metadata = "m".repeat(dice.roll(300) as usize);
        let commits: Vec<_> = places.iter().map(|p| (TOPIC, p.2, OffsetAndMetadata::new(offset).metadata(&*metadata))).collect();
        change(world, &places, Some(offset), || world.offsets.commit(&group, &commits))
    }
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
        let (group, partition) = (group(dice), dice.roll(4) as i32);
        world.note(|| format!("delete the offset of {group} for partition {partition}"));
        let places = [(group.clone(), TOPIC.to_owned(), partition)];
        change(world, &places, None, || world.offsets.delete_offsets(&group, &[(TOPIC, partition)]).map(drop))
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
        let places = world.outside.models.borrow_mut().offsets.ask_deletion_of(&group);
        world.offsets.delete_group(&group)?;
        world.outside.models.borrow_mut().offsets.settle(&places);
        check(world)
    }
}

impl Feature for Reload {
    fn name(&self) -> &'static str {
        "reload"
    }

    fn weight(&self) -> u64 {
        1
    }

    fn step(&self, world: &mut World, _: &mut Dice) -> Result<(), Stop> {
        world.note(|| "load the committed offsets anew".to_owned());
        world.offsets.reload()?;
        check(world)
    }
}
