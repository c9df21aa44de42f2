use std::cell::RefCell;
use std::rc::Rc;

use keeplog::{CONSUMER_OFFSETS, CleanOptions, Log, Watch};

use super::{ALL, Feature, any, take};
use crate::dice::Dice;
use crate::disk::during_reads;
use crate::model::end_of_last_batch_below;
use crate::world::{Stop, World};

/// A pass of the cleaner over one log, and other things in the middle of it.
pub(super) struct Clean;

/// Steps in the middle of one pass at most.
const ASIDE_MAX: u64 = 3;

impl Feature for Clean {
    fn name(&self) -> &'static str {
        "clean"
    }

    fn weight(&self) -> u64 {
        3
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let mut logs = world.logs();
        logs.retain(|log| log.options().cleanup_policy.compacts() && !log.needs_reopen());
        if logs.is_empty() {
            return Ok(());
        }
        let log = &logs[dice.roll(logs.len() as u64) as usize];
        world.note(|| format!("clean {} below {}", log.topic_partition(), log.segments().active().base_offset()));
        pass_begins(world, log);
        if log.topic_partition().topic() == CONSUMER_OFFSETS {
            log.roll()?;
        }
        let (seed, is_short_of_room) = (dice.roll(1 << 32), dice.one_in(2));
        let cleaned = with_others(world, seed, 4, any_aside, || {
            if !is_short_of_room {
                return world.offsets.store().clean(log);
            }
            world.note(|| "  each segment by itself, swapped at once".to_owned());
            let options = CleanOptions::for_log(&log.current_options(), log.storage().now_ms()).segment_bytes(1);
            world.offsets.store().clean_with(log, &options, &ShortOfRoom)
        });
        pass_ended(world, log);
        if let Some(stop) = world.outside.take_aside() {
            return Err(stop);
        }
        let report = cleaned?;
        world.note(|| format!("  {} of {} records stay", report.records_kept, report.records_read));
        Ok(())
    }
}

/// Wants what is finished to be swapped at once.
struct ShortOfRoom;

impl Watch for ShortOfRoom {
    fn wants_room(&self) -> bool {
        true
    }
}

/// Anything that waits for nothing which a pass holds.
pub(super) fn any_aside(dice: &mut Dice) -> usize {
    any(dice, |feature| feature.goes_with_a_pass())
}

/// Tells the oracle what the pass may take away.
pub(super) fn pass_begins(world: &World, log: &Log) {
    if log.topic_partition().topic() != CONSUMER_OFFSETS && log.options().cleanup_policy.compacts() {
        let bound = log.segments().active().base_offset();
        world.model(log, |model| model.cleaned_below(bound, log.storage().now_ms()));
    }
}

/// A pass syncs the log before it takes anything away. What the recovery point says is believed.
pub(super) fn pass_ended(world: &World, log: &Log) {
    if log.topic_partition().topic() != CONSUMER_OFFSETS {
        let synced = end_of_last_batch_below(log, log.recovery_point());
        world.model(log, |model| model.must_end = model.must_end.max(synced));
    }
}

/// Runs `work`; while it reads, others get their turn, once in so many reads: those that `pick` chooses.
pub(super) fn with_others<T>(world: &World, seed: u64, reads: u64, pick: fn(&mut Dice) -> usize, work: impl FnOnce() -> T) -> T {
    let (world, dice, left) = (world.clone(), RefCell::new(Dice::new(seed)), Rc::new(RefCell::new(ASIDE_MAX)));
    let others = move |_: &std::path::Path| {
        let mut dice = dice.borrow_mut();
        if *left.borrow() == 0 || !dice.one_in(reads) {
            return;
        }
        *left.borrow_mut() -= 1;
        let feature = ALL[pick(&mut dice)];
        world.note(|| "  in the middle of it:".to_owned());
        if let Err(stop) = take(feature, &mut world.clone(), &mut dice) {
            world.outside.put_aside(stop);
            *left.borrow_mut() = 0;
        }
    };
    during_reads(others, work)
}
