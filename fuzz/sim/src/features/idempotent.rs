use keeplog::Durability;
use keeplog::inspect::record::{BatchSpec, BatchWriter};

use super::append::brief;
use super::{Feature, value};
use crate::dice::Dice;
use crate::world::{Stop, World};

/// A producer with sequence numbers sends a batch, and at times sends it again.
pub(super) struct Idempotent;

const PRODUCERS: [i64; 2] = [7, 8];

impl Feature for Idempotent {
    fn name(&self) -> &'static str {
        "idempotent"
    }

    fn weight(&self) -> u64 {
        4
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let log = world.any_log(dice)?;
        let producer = PRODUCERS[dice.roll(2) as usize];
        let written = vec![(format!("i{}", dice.roll(3)), value(dice))];
        let last = log.active_producers().into_iter().find(|p| p.id == producer).map_or(-1, |p| p.last_sequence);
        let spec = BatchSpec { producer_id: producer, producer_epoch: 0, base_sequence: last + 1, ..BatchSpec::default() };
        let base = log.end_offset();
        world.note(|| {
            format!("append to {} at {base}, producer {producer} sequence {}: {}", log.topic_partition(), last + 1, brief(&written))
        });
        let bytes = batch(spec, &written, log.storage().now_ms());
        world.model(&log, |model| model.note_idempotent(producer, base, &written));
        log.append_batch(bytes.clone(), Durability::Buffered)?;
        world.model(&log, |model| model.acknowledge(&log, Durability::Buffered))?;
        if dice.one_in(3) {
            world.note(|| format!("sequence {} of producer {producer} again", last + 1));
            let again = log.append_batch(bytes, Durability::Buffered)?;
            if !again.duplicate || again.base_offset != base {
                return Err(Stop::Wrong(format!("a batch of producer {producer} that was sent again was placed as {again:?}")));
            }
        }
        Ok(())
    }
}

/// The bytes of a batch.
pub(super) fn batch(spec: BatchSpec, written: &[(String, Option<String>)], now_ms: i64) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(spec);
    for (i, (key, value)) in (0..).zip(written) {
        writer.push(i, now_ms, Some(key.as_bytes()), value.as_deref().map(str::as_bytes), &[]).expect("small records fit");
    }
    let mut out = Vec::new();
    writer.finish(&mut out).expect("a small batch fits");
    out
}
