use std::ops::Deref;

use keeplog::{Lead, PartitionState};

use super::clean::{any_aside, with_others};
use super::offsets::check;
use super::{Feature, named};
use crate::dice::Dice;
use crate::model::Served;
use crate::world::{Stop, World};

/// A partition gets another leader.
pub(super) struct Resign;
/// A partition is led, and loaded at once or later.
pub(super) struct LeadPartition;
/// A partition that waits for it is loaded, and other things are done in the middle of it.
pub(super) struct Load;
/// The cache is loaded anew.
pub(super) struct Reload;

pub(super) fn any_partition(world: &World, dice: &mut Dice) -> usize {
    dice.roll(u64::from(world.outside.settings.offset_logs)) as usize
}

/// What was told must be what is right.
fn told<T: PartialEq + std::fmt::Debug>(told: &T, right: &T) -> Result<(), Stop> {
    if told == right { Ok(()) } else { Err(Stop::Wrong(format!("{told:?} was told, {right:?} would be right"))) }
}

/// What is done in the middle of a load: most of the time what makes it say nothing.
fn any_meanwhile(dice: &mut Dice) -> usize {
    match dice.roll(4) {
        0 | 1 => named("resign"),
        2 => named("lead"),
        _ => any_aside(dice),
    }
}

impl Feature for Resign {
    fn name(&self) -> &'static str {
        "resign"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let number = any_partition(world, dice);
        let known = world.partition(number, |partition| partition.epoch);
        let epoch = match dice.roll(4) {
            0 => None,
            1 => known.map(|known| known - 1),
            _ => Some(known.map_or(0, |known| known + 1)),
        };
        let counts = epoch.zip(known).is_none_or(|(epoch, known)| epoch >= known);
        world.note(|| format!("resign partition {number} as of {epoch:?}, after {known:?}"));
        told(&world.offsets.resign(number as u32, epoch)?, &counts)?;
        if counts {
            world.partition(number, |partition| {
                partition.epoch = epoch.or(known);
                partition.changes_to(Served::NotLed);
            });
        }
        check(world)
    }
}

impl Feature for LeadPartition {
    fn name(&self) -> &'static str {
        "lead"
    }

    fn weight(&self) -> u64 {
        4
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let number = any_partition(world, dice);
        let (known, served) = world.partition(number, |partition| (partition.epoch, partition.served));
        let epoch = known.map_or(0, |known| known + if dice.one_in(5) { 0 } else { 1 });
        let right = match served {
            _ if known == Some(epoch) => Lead::Stale,
            Served::NotLed => Lead::Loads,
            Served::Waiting | Served::Yes => Lead::Led,
        };
        let at_once = dice.one_in(3);
        world.note(|| format!("lead partition {number} as of {epoch}: {right:?}{}", if at_once { " at once" } else { "" }));
        world.partition(number, |partition| {
            partition.epoch = Some(epoch);
            if right == Lead::Loads {
                partition.changes_to(Served::Waiting);
            }
        });
        // The store over it loads whatever waits, the one beneath leaves it to whoever asks.
        let lead = if at_once { world.offsets.lead(number as u32, epoch)? } else { world.offsets.deref().lead(number as u32, epoch)? };
        told(&lead, &right)?;
        if at_once && right == Lead::Loads {
            for number in 0..world.outside.settings.offset_logs {
                let is_served = world.offsets.partition_state(number)? == PartitionState::Active;
                world.partition(number as usize, |partition| {
                    if partition.served == Served::Waiting && is_served {
                        partition.loaded();
                    }
                });
            }
            if world.disk.has_struck() {
                return Ok(());
            }
        }
        check(world)
    }
}

impl Feature for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn weight(&self) -> u64 {
        5
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let waits = |world: &World| super::offsets::is_waiting(world);
        told(&world.offsets.has_waiting_loads(), &waits(world))?;
        world.note(|| "load what waits".to_owned());
        let lives: Vec<_> = world.outside.models.borrow().offsets.partitions.iter().map(|partition| partition.life).collect();
        let loaded = with_others(world, dice.roll(1 << 32), 2, any_meanwhile, || world.offsets.load_next());
        if let Some(stop) = world.outside.take_aside() {
            return Err(stop);
        }
        let Some((number, loaded)) = loaded else { return check(world) };
        loaded?;
        world.partition(number as usize, |partition| {
            // Otherwise it is of an earlier life, and says nothing.
            if partition.life == lives[number as usize] {
                partition.loaded();
            }
        });
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
        for number in 0..world.outside.settings.offset_logs {
            world.partition(number as usize, |partition| {
                if partition.served != Served::NotLed {
                    partition.loaded();
                }
            });
        }
        check(world)
    }
}
