//! What must hold for as long as the store lives on: what was deleted does not come back when the cleaner has been there
//! again, and what was answered stays so.

use keeplog::{CONSUMER_OFFSETS, Durability, Log, Record};

use crate::dice::Dice;
use crate::features::{PRODUCERS, end_commits, end_open};
use crate::model::Fate;
use crate::world::{Stop, TOMBSTONES_STAY_MS, World};

/// Goes on with a store that was just opened, to its end.
///
/// # Errors
/// What is not as it must be.
pub(crate) fn afterlife(world: World) -> Result<(), String> {
    let (disk, outside) = (world.disk.clone(), world.outside.clone());
    go_on(&world).map_err(|stop| match stop {
        Stop::Wrong(what) => format!("later: {what}"),
        Stop::Failed(error) => format!("later: going on: {error:?}"),
    })?;
    world.clone().close().map_err(|e| format!("later: closing: {e:?}"))?;
    world.closed().map_err(|why| format!("later: closing: {why}"))?;
    drop(world);
    let world = World::open(&disk, &outside).map_err(|e| format!("later: opening: {e:?}"))?;
    world.opened().map_err(|why| format!("later: {why}"))?;
    world.check().map_err(|why| format!("later: {why}"))
}

fn go_on(world: &World) -> Result<(), Stop> {
    for producer in PRODUCERS {
        end_commits(world, producer, true)?;
    }
    for log in world.events() {
        end_open(world, &log, &mut Dice::new(0))?;
        if log.options().cleanup_policy.compacts() {
            for key in ["k0", "k1", "i0"] {
                append(world, &log, key, None)?;
            }
        }
    }
    for _ in 0..3 {
        for log in world.events() {
            log.roll()?;
            append(world, &log, "last", Some("1"))?;
            if log.options().cleanup_policy.compacts() {
                world.model(&log, |model| model.cleaned_below(log.segments().active().base_offset(), log.storage().now_ms()));
                world.offsets.store().clean(&log)?;
            }
        }
        for log in world.logs().iter().filter(|log| log.topic_partition().topic() == CONSUMER_OFFSETS) {
            log.roll()?;
            world.offsets.store().clean(log)?;
        }
        world.disk.advance_ms(2 * TOMBSTONES_STAY_MS);
    }
    world.offsets.flush()?;
    world.settle_offsets();
    world.check()?;
    world.offsets.reload()?;
    Ok(world.outside.models.borrow().offsets.check(&world.offsets)?)
}

fn append(world: &World, log: &Log, key: &str, value: Option<&str>) -> Result<(), Stop> {
    let written = [(key.to_owned(), value.map(str::to_owned))];
    world.model(log, |model| model.note(log.end_offset(), &written, Fate::Holds));
    let record = value.map_or_else(|| Record::tombstone(key.to_owned()), |value| Record::new(key.to_owned(), value.to_owned()));
    log.append(&[record], Durability::Synced)?;
    Ok(world.model(log, |model| model.acknowledge(log, Durability::Synced))?)
}
