use keeplog::inspect::storage::{OpenMode, Storage, write_all_at};

use super::clean::with_others;
use super::lead::any_partition;
use super::offsets::{check, served};
use super::{Feature, any};
use crate::dice::Dice;
use crate::model::{Partition, Served, log_of};
use crate::world::{Stop, World, snapshot_of};

/// The background saves the snapshots that are due, and other things are done in the middle of it.
pub(super) struct SaveSnapshots;
/// Something befalls a snapshot: a bit, its end, another one in its place.
pub(super) struct SpoilSnapshot;
/// A partition of the offset store gets another leader, and the end of its log, which that one does not have, is cut off.
pub(super) struct TruncateOffsets;

/// Not a second save, which waits for the first, and nothing that makes files look saved.
fn any_meanwhile(dice: &mut Dice) -> usize {
    any(dice, |feature| feature.goes_with_a_pass() && ![SaveSnapshots.name(), SpoilSnapshot.name()].contains(&feature.name()))
}

impl Feature for SaveSnapshots {
    fn name(&self) -> &'static str {
        "save snapshots"
    }

    fn weight(&self) -> u64 {
        4
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        world.note(|| "save snapshots".to_owned());
        let seen = |number| (number, world.partition(number, |partition| partition.shown_end()), world.read_snapshot(number));
        let before: Vec<_> = served(world).into_iter().map(seen).collect();
        let saved = with_others(world, dice.roll(1 << 32), 2, any_meanwhile, || world.offsets.save_snapshots());
        if let Some(stop) = world.outside.take_aside() {
            return Err(stop);
        }
        world.note(|| format!("  {saved:?}"));
        saved?;
        for (number, shown_end, before) in before {
            let after = world.read_snapshot(number);
            let safe = log_of(&world.offsets, number).map_or(0, |log| log.recovery_point());
            // What is in it was shown by then, and no power failure may take that back.
            if after.is_some() && after != before && safe < shown_end {
                return Err(Stop::Wrong(format!("the snapshot of partition {number} was saved, and its log is safe below {safe} only")));
            }
            world.keep_copy(number, after);
        }
        check(world)
    }
}

impl Feature for SpoilSnapshot {
    fn name(&self) -> &'static str {
        "spoil snapshot"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let number = any_partition(world, dice);
        let (path, here) = (snapshot_of(number), world.read_snapshot(number));
        let other = world.read_snapshot((number + 1) % world.outside.settings.offset_logs as usize);
        let copies = world.outside.copies.borrow();
        let (how, what) = (dice.roll(5), dice.any() as usize);
        let instead = match (how, here) {
            (0, Some(_)) => None,
            (1, Some(here)) if !here.is_empty() => {
                world.note(|| format!("a bit flips in {}", path.display()));
                let _ = world.disk.flip_bit(&path, (what % (8 * here.len())) as u64);
                return Ok(());
            }
            (2, Some(here)) if !here.is_empty() => Some(here[..what % here.len()].to_vec()),
            (3, _) => other,
            _ => copies.iter().filter(|(of, _)| *of == number).map(|(_, bytes)| bytes).nth(what % 4).cloned(),
        };
        world.note(|| format!("{} bytes take the place of {}", instead.as_ref().map_or(0, Vec::len), path.display()));
        // Nobody syncs it, and whether it works out matters to nobody.
        let _ = match instead {
            None => world.disk.remove_file(&path),
            Some(bytes) => world.disk.open(&path, OpenMode::Truncate).and_then(|file| write_all_at(&*file, &bytes, 0)),
        };
        Ok(())
    }
}

impl Feature for TruncateOffsets {
    fn name(&self) -> &'static str {
        "truncate offsets"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let number = any_partition(world, dice);
        let Some(log) = log_of(&world.offsets, number) else { return Ok(()) };
        if world.partition(number, |partition| partition.served) == Served::Yes {
            world.note(|| format!("resign partition {number}"));
            world.offsets.resign(number as u32, None)?;
            world.partition(number, |partition| partition.changes_to(Served::NotLed));
        }
        // Below the active segment a pass may have taken away what the records to be cut off replaced.
        let (last, from_offset) = (1 + dice.roll(3) as usize, log.segments().active().base_offset());
        let truncating = |partition: &mut Partition| (partition.served == Served::NotLed).then(|| partition.truncating(last, from_offset));
        let Some(to) = world.partition(number, truncating).flatten() else { return check(world) };
        world.note(|| format!("truncate {} from {} to {to}", log.topic_partition(), log.end_offset()));
        log.truncate_to(to)?;
        world.partition(number, Partition::truncated);
        check(world)
    }
}
