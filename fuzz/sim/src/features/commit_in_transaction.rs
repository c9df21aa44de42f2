use keeplog::{ErrorKind, Outcome, Producer};

use super::Feature;
use super::commit::Draft;
use super::offsets::{acknowledge, acks, ask, check, check_count, is_waiting, refusal, refused, served};
use crate::dice::Dice;
use crate::model::{Until, What, log_of};
use crate::world::{Stop, World};

/// A group commits in the transaction of a producer.
pub(super) struct CommitInTransaction;
/// A transaction with commits ends.
pub(super) struct EndTransaction;

pub(crate) const PRODUCERS: [i64; 2] = [20, 21];
const EPOCH: i16 = 1;

impl Feature for CommitInTransaction {
    fn name(&self) -> &'static str {
        "commit in transaction"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let (draft, id) = (Draft::new(world, dice), PRODUCERS[dice.roll(2) as usize]);
        world.note(|| format!("commit in the transaction of {id} {}", draft.describe()));
        let commit = |epoch| world.offsets.commit_in_transaction(Producer { id, epoch }, draft.group, &draft.commits);
        if let Some(kind) = refusal(world, draft.partition) {
            return refused(kind, || commit(EPOCH).and(Ok(())));
        }
        let is_known = log_of(&world.offsets, draft.partition).is_some_and(|log| log.active_producer(id).is_some());
        let is_written = !draft.is_refused.iter().all(|refused| *refused);
        if is_known && is_written && dice.one_in(8) {
            return refused(ErrorKind::ProducerFenced, || commit(EPOCH - 1));
        }
        draft.ask(world, Some(id));
        match commit(EPOCH) {
            Err(error) if !draft.is_refused() || error.kind() != ErrorKind::InvalidInput => return Err(error.into()),
            Ok(()) if draft.is_refused() => return Err(Stop::Wrong("nothing is said of what was refused".into())),
            _ => {}
        }
        if is_written {
            acknowledge(world, draft.partition);
        }
        check(world)
    }
}

impl Feature for EndTransaction {
    fn name(&self) -> &'static str {
        "end transaction"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let (id, counts) = (PRODUCERS[dice.roll(2) as usize], !dice.one_in(3));
        end(world, id, counts)
    }
}

/// Ends the transaction of a producer in all partitions where it is open, and that are led.
pub(crate) fn end(world: &World, id: i64, counts: bool) -> Result<(), Stop> {
    if is_waiting(world) {
        // It could end in some of its partitions, and fail in the one that waits.
        return Ok(());
    }
    let mut open = served(world);
    // Where it was ended before, that is waited for.
    let until = |partition: &usize| world.partition(*partition, |partition| partition.until(acks(world)));
    let ended_before: Vec<_> = open.iter().filter(|partition| until(partition) == Until::Synced).copied().collect();
    open.retain(|partition| world.partition(*partition, |partition| partition.is_open(id)));
    world.note(|| format!("{} the transaction of {id} in {open:?}", if counts { "commit" } else { "abort" }));
    for partition in &open {
        ask(world, *partition, What::Marker(id, counts));
    }
    let outcome = if counts { Outcome::Commit } else { Outcome::Abort };
    let ended = world.offsets.end_transaction(Producer { id, epoch: EPOCH }, outcome)?;
    check_count("partitions where it ended", ended as u64, open.len())?;
    for partition in ended_before.into_iter().filter(|partition| !open.contains(partition)) {
        world.partition(partition, |partition| {
            if let Some(end) = partition.unshown_end(id) {
                partition.settle_up_to(end);
            }
        });
    }
    open.into_iter().for_each(|partition| acknowledge(world, partition));
    check(world)
}
