use std::time::Duration;

use super::commit::Draft;
use super::offsets::{acknowledge, acks, check, refusal, refused};
use super::{Feature, offsets};
use crate::dice::Dice;
use crate::model::{Partition, Until};
use crate::world::{Stop, World};

/// A group commits, and is answered later.
pub(super) struct CommitLater;
/// What waits for a sync gets it.
pub(super) struct Flush;

impl Feature for CommitLater {
    fn name(&self) -> &'static str {
        "commit later"
    }

    fn weight(&self) -> u64 {
        6
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let (draft, waits) = (Draft::new(world, dice), dice.one_in(5));
        world.note(|| format!("commit later{} {}", if waits { ", and wait," } else { "" }, draft.describe()));
        if let Some(kind) = refusal(world, draft.partition) {
            return refused(kind, || world.offsets.commit_async(draft.group, &draft.commits).wait());
        }
        let acks = acks(world);
        let until = world.partition(draft.partition, |partition| partition.until(acks));
        let Some(number) = draft.ask(world, None) else {
            let told = world.offsets.commit_async(draft.group, &draft.commits).wait();
            return if told.is_err() { Ok(()) } else { Err(Stop::Wrong("metadata that is too long was taken".into())) };
        };
        let is_at_once = until == Until::Written || (until == Until::Queued && !world.owes(draft.partition));
        let pending = world.offsets.commit_async(draft.group, &draft.commits);
        if !waits {
            world.owe(draft.partition, number, draft.is_refused(), pending);
            world.hear()?;
            return check(world);
        }
        if pending.is_answered() != is_at_once && !world.disk.has_struck() {
            return Err(Stop::Wrong("it is answered before it is synced, or was not at once".into()));
        }
        match pending.wait() {
            Err(error) if !draft.is_refused() || error.kind() != keeplog::ErrorKind::InvalidInput => return Err(error.into()),
            Ok(()) if draft.is_refused() => return Err(Stop::Wrong("nothing is said of what was refused".into())),
            _ => {}
        }
        if is_at_once {
            acknowledge(world, draft.partition);
        } else {
            // Whoever waits has all before it synced and shown, too.
            world.partition(draft.partition, Partition::settle);
        }
        check(world)
    }
}

impl Feature for Flush {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        if dice.one_in(3) {
            world.note(|| "flush".to_owned());
            world.offsets.flush()?;
        } else {
            world.note(|| "the background syncs what waits".to_owned());
            world.offsets.flush_what_waits(Duration::ZERO);
            if world.disk.has_struck() {
                // Told to the log of the process only.
                return Ok(());
            }
        }
        offsets::served(world).into_iter().for_each(|number| world.partition(number, Partition::settle));
        check(world)
    }
}
