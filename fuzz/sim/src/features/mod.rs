//! What a running process may do, one file each.
//!
//! A feature is a step that the scheduler may take. It draws what exactly it does from its dice, tells the oracle what it is
//! about to do, does it, and tells the oracle that it was acknowledged. To add one: a file here, and a line in [`ALL`].

mod append;
mod checkpoint;
mod clean;
mod commit;
mod commit_in_transaction;
mod commit_later;
mod delete_offsets;
mod expire;
mod housekeep;
mod idempotent;
mod lead;
mod offsets;
mod pass_time;
mod restart;
mod retain;
mod roll;
mod set_options;
mod snapshot;
mod sync;
mod transact;
mod trim;
mod truncate;

use crate::dice::Dice;
use crate::world::{Stop, World};

pub(crate) use commit_in_transaction::{PRODUCERS, end as end_commits};
pub(crate) use transact::end_open;

/// Something that a running process does.
pub trait Feature: Sync {
    /// What it is called in traces and in scripts.
    fn name(&self) -> &'static str;

    /// How often it is done, compared to others.
    fn weight(&self) -> u64;

    /// Does it once.
    ///
    /// # Errors
    /// `Failed` for what the engine could not do, `Wrong` for what it did wrong.
    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop>;

    /// Whether it can be done while a pass of the cleaner reads: it must wait for nothing that a pass holds.
    fn goes_with_a_pass(&self) -> bool {
        false
    }
}

/// Every feature.
pub static ALL: &[&dyn Feature] = &[
    &append::Append,
    &idempotent::Idempotent,
    &transact::Transact,
    &transact::Leave,
    &transact::End,
    &sync::Sync,
    &roll::Roll,
    &clean::Clean,
    &housekeep::Housekeep,
    &truncate::Truncate,
    &trim::Trim,
    &retain::Retain,
    &checkpoint::Checkpoint,
    &restart::Restart,
    &pass_time::PassTime,
    &commit::Commit,
    &commit_later::CommitLater,
    &commit_later::Flush,
    &commit_in_transaction::CommitInTransaction,
    &commit_in_transaction::EndTransaction,
    &delete_offsets::Delete,
    &delete_offsets::DeleteGroup,
    &delete_offsets::DeleteTopic,
    &expire::Expire,
    &lead::Resign,
    &lead::LeadPartition,
    &lead::Load,
    &lead::Reload,
    &set_options::SetOptions,
    &snapshot::SaveSnapshots,
    &snapshot::SpoilSnapshot,
    &snapshot::TruncateOffsets,
];

/// Does a step, and hears what is answered meanwhile.
///
/// # Errors
/// Those of the step, and answers that are not right.
pub fn take(feature: &dyn Feature, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
    let done = feature.step(world, dice);
    world.hear()?;
    done
}

/// The feature with this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn named(name: &str) -> usize {
    ALL.iter().position(|feature| feature.name() == name).unwrap_or_else(|| panic!("there is no feature {name}"))
}

/// Any feature, by weight, of those that `which` says.
pub fn any(dice: &mut Dice, which: impl Fn(&dyn Feature) -> bool) -> usize {
    let weight = |at: usize| if which(ALL[at]) { ALL[at].weight() } else { 0 };
    let mut left = dice.roll((0..ALL.len()).map(weight).sum());
    for at in 0..ALL.len() {
        if left < weight(at) {
            return at;
        }
        left -= weight(at);
    }
    unreachable!("the roll is below the sum of all weights")
}

/// A value, or none.
fn value(dice: &mut Dice) -> Option<String> {
    (!dice.one_in(4)).then(|| format!("{:x}", dice.any()).repeat(1 + dice.roll(20) as usize))
}
