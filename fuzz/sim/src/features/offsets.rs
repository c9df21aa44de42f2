//! What the features of the offset store share.

use keeplog::{ErrorKind, RequiredAcks};

use crate::dice::Dice;
use crate::model::{GROUPS, Partition, Place, Served, TOPICS, What, log_of};
use crate::world::{Stop, World};

/// One of those that commit.
pub(super) fn group(dice: &mut Dice) -> &'static str {
    GROUPS[dice.roll(GROUPS.len() as u64) as usize]
}

/// One of the topics that they commit for: most of the time the first.
pub(super) fn topic(dice: &mut Dice) -> &'static str {
    if dice.one_in(4) { TOPICS[1] } else { TOPICS[0] }
}

/// The partition that a group lies in.
pub(super) fn partition_of(world: &World, group: &str) -> usize {
    world.outside.models.borrow().offsets.partition_of(&world.offsets, group)
}

/// When what is written now is acknowledged.
pub(super) fn acks(world: &World) -> RequiredAcks {
    world.offsets.options().offsets_commit_required_acks
}

/// The partitions that are served.
pub(super) fn served(world: &World) -> Vec<usize> {
    let models = world.outside.models.borrow();
    (0..).zip(&models.offsets.partitions).filter(|(_, partition)| partition.served == Served::Yes).map(|(number, _)| number).collect()
}

/// Whether a partition waits for its load.
pub(super) fn is_waiting(world: &World) -> bool {
    world.outside.models.borrow().offsets.partitions.iter().any(|partition| partition.served == Served::Waiting)
}

/// Tells the oracle that `what` is about to be written. Returns its number.
pub(super) fn ask(world: &World, partition: usize, what: What) -> usize {
    let end_offset = log_of(&world.offsets, partition).map_or(0, |log| log.end_offset());
    let acks = acks(world);
    world.partition(partition, |partition| {
        let until = partition.until(acks);
        partition.ask(end_offset, what, until)
    })
}

/// The last that was asked for is acknowledged.
pub(super) fn acknowledge(world: &World, partition: usize) {
    world.partition(partition, Partition::acknowledge);
}

pub(super) fn check(world: &World) -> Result<(), Stop> {
    Ok(world.outside.models.borrow().offsets.check(&world.offsets)?)
}

/// What a partition answers that is not served; `None` for one that is.
pub(super) fn refusal(world: &World, partition: usize) -> Option<ErrorKind> {
    match world.partition(partition, |partition| partition.served) {
        Served::Yes => None,
        Served::Waiting => Some(ErrorKind::Loading),
        Served::NotLed => Some(ErrorKind::NotLeader),
    }
}

/// Does `work`, which a partition that is not served must refuse as told.
pub(super) fn refused<T>(kind: ErrorKind, work: impl FnOnce() -> keeplog::Result<T>) -> Result<(), Stop> {
    match work() {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(Stop::Wrong(format!("{kind:?} would be right: {error:?}"))),
        Ok(_) => Err(Stop::Wrong(format!("it was done, {kind:?} would be right"))),
    }
}

/// Writes tombstones for `places` of a partition by `work`, if there are any.
pub(super) fn remove<T>(world: &World, partition: usize, places: Vec<Place>, work: impl FnOnce() -> keeplog::Result<T>) -> Result<T, Stop> {
    if let Some(kind) = refusal(world, partition) {
        return Err(Stop::Wrong(format!("nothing can be removed from a partition that answers {kind:?}")));
    }
    let is_empty = places.is_empty();
    if !is_empty {
        ask(world, partition, What::Tombstones(places));
    }
    let done = work()?;
    if !is_empty {
        acknowledge(world, partition);
    }
    Ok(done)
}

/// Refuses a count that is not right.
pub(super) fn check_count(what: &str, told: u64, right: usize) -> Result<(), Stop> {
    if told == right as u64 { Ok(()) } else { Err(Stop::Wrong(format!("{told} {what}, {right} would be right"))) }
}
