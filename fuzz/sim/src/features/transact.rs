use keeplog::inspect::record::BatchSpec;
use keeplog::{Durability, Log, TransactionEnd, TxnResult};

use super::append::brief;
use super::idempotent::batch;
use super::{Feature, value};
use crate::dice::Dice;
use crate::model::Fate;
use crate::world::{Stop, World};

/// A transaction from its first record to its marker.
pub(super) struct Transact;
/// A batch of a transaction that stays open.
pub(super) struct Leave;
/// The end of a transaction that was left open.
pub(super) struct End;

const WHOLE: i64 = 9;
const LEFT_OPEN: [i64; 2] = [10, 11];

impl Feature for Transact {
    fn name(&self) -> &'static str {
        "transact"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        if open_epoch(&log, WHOLE).is_some() {
            // A crash or a truncation took its marker.
            end(world, &log, WHOLE, dice)?;
        }
        write(world, &log, WHOLE, dice)?;
        end(world, &log, WHOLE, dice)
    }
}

impl Feature for Leave {
    fn name(&self) -> &'static str {
        "leave open"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        let producer = LEFT_OPEN[dice.roll(2) as usize];
        write(world, &log, producer, dice)
    }
}

impl Feature for End {
    fn name(&self) -> &'static str {
        "end open"
    }

    fn weight(&self) -> u64 {
        2
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        end_open(world, &log, dice)
    }
}

/// Ends every open transaction of a log.
pub(crate) fn end_open(world: &World, log: &Log, dice: &mut Dice) -> Result<(), Stop> {
    for producer in world.model(log, |model| model.open_producers()) {
        if open_epoch(log, producer).is_some() {
            end(world, log, producer, dice)?;
        } else {
            // Of one that the cleaner took away, being aborted once, nothing is left to end.
            world.model(log, |model| model.forget_open(producer));
        }
    }
    Ok(())
}

fn open_epoch(log: &Log, producer: i64) -> Option<i16> {
    log.active_producers().into_iter().find(|p| p.id == producer && p.open_txn_first_offset.is_some()).map(|p| p.epoch)
}

/// A batch of the open transaction of `producer`, or the first one of a new one.
fn write(world: &World, log: &Log, producer: i64, dice: &mut Dice) -> Result<(), Stop> {
    let written: Vec<_> = (0..2).map(|_| (format!("x{}", dice.roll(3)), value(dice))).collect();
    let known = log.active_producers().into_iter().find(|p| p.id == producer);
    let (epoch, sequence) = match &known {
        Some(known) if known.open_txn_first_offset.is_some() => (known.epoch, known.last_sequence + 1),
        Some(known) => (known.epoch + 1, 0),
        None => (0, 0),
    };
    let spec =
        BatchSpec { producer_id: producer, producer_epoch: epoch, base_sequence: sequence, transactional: true, ..BatchSpec::default() };
    let base = log.end_offset();
    world.note(|| format!("append to {} at {base}, transaction of {producer}: {}", log.topic_partition(), brief(&written)));
    world.model(log, |model| model.note(base, &written, Fate::Open(producer)));
    log.append_batch(batch(spec, &written, log.storage().now_ms()), Durability::Buffered)?;
    Ok(world.model(log, |model| model.acknowledge(log, Durability::Buffered))?)
}

fn end(world: &World, log: &Log, producer: i64, dice: &mut Dice) -> Result<(), Stop> {
    let holds = dice.one_in(2);
    let Some(producer_epoch) = open_epoch(log, producer) else { return Ok(()) };
    let durability = if dice.one_in(2) { Durability::Synced } else { Durability::Buffered };
    let marker = log.end_offset();
    let result = if holds { TxnResult::Committed } else { TxnResult::Aborted };
    world.note(|| format!("end the transaction of {producer} in {} at {marker}, {durability:?}: {result:?}", log.topic_partition()));
    world.model(log, |model| model.end_transaction(producer, marker, holds));
    log.end_transaction(&TransactionEnd { producer_id: producer, producer_epoch, result, coordinator_epoch: 0 }, durability)?;
    Ok(world.model(log, |model| model.acknowledge(log, durability))?)
}
