//! Logs of a given shape, the same that the yardstick's `bench-make` writes.

use keeplog_engine::record::{BatchSpec, BatchWriter, Codec, EncodeError};
use keeplog_engine::{Durability, Log, LogOptions, Result};

use crate::java::JavaRandom;

/// Time of the first record, ms since the Unix epoch, and the time of every pass.
pub const T0: i64 = 1_760_000_000_000;

/// What a log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size, MiB.
    pub mib: u64,
    /// Distinct keys, drawn evenly.
    pub keys: u32,
    /// Records in a batch.
    pub records_per_batch: u32,
    /// Bytes of a value, a quarter of them random.
    pub value_bytes: usize,
    /// How batches are compressed.
    pub codec: Codec,
    /// `segment.bytes`, MiB.
    pub segment_mib: u32,
}

impl Shape {
    /// The settings of a log of this shape: those of the yardstick.
    #[must_use]
    pub fn log_options(&self) -> LogOptions {
        LogOptions::new().segment_bytes(self.segment_mib << 20).segment_index_bytes(10 << 20).max_message_bytes(i32::MAX as u32)
    }

    /// Writes a log of this shape to the empty `log`, all of it in sealed segments but one last record. Returns the number of
    /// records.
    ///
    /// # Errors
    /// As [`Log::append_as_follower`].
    pub fn write(&self, log: &Log) -> Result<u64> {
        let mut generator = Generator::new(*self);
        let (mut bytes, mut batch) = (0, Vec::new());
        while bytes < self.mib << 20 {
            batch.clear();
            // invariant: the records of a shape fit into a batch, or the shape is of no use to anybody
            generator.batch(&mut batch).expect("a batch of this shape can't be written");
            bytes += batch.len() as u64;
            log.append_as_follower(&batch, Durability::Buffered)?;
        }
        log.roll()?;
        batch.clear();
        generator.last(&mut batch).expect("one small record fits");
        log.append_as_follower(&batch, Durability::Synced)?;
        Ok(generator.offset)
    }
}

/// Makes the batches of a log one after the other. Two generators of the same shape make the same.
pub struct Generator {
    shape: Shape,
    random: JavaRandom,
    writer: BatchWriter,
    offset: u64,
    value: Vec<u8>,
}

impl Generator {
    /// At the start of the log.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { shape, random: JavaRandom::new(1), writer: BatchWriter::new(), offset: 0, value: vec![0; shape.value_bytes] }
    }

    /// Appends the next batch to `out`.
    ///
    /// # Errors
    /// If a batch of this shape would be too large.
    pub fn batch(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.writer.begin(BatchSpec { base_offset: self.offset, leader_epoch: 0, codec: self.shape.codec, ..BatchSpec::default() });
        for _ in 0..self.shape.records_per_batch {
            let (key, offset) = (key(self.key_number()), self.offset);
            self.next_value();
            self.writer.push(offset, T0 + (offset / 100) as i64, Some(key.as_bytes()), Some(&self.value), &[])?;
            self.offset += 1;
        }
        self.writer.finish(out).map(drop)
    }

    /// Appends the batch that stands in the active segment at the end.
    fn last(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.writer.begin(BatchSpec { base_offset: self.offset, leader_epoch: 0, ..BatchSpec::default() });
        self.writer.push(self.offset, T0, Some(b"last"), Some(b"x"), &[])?;
        self.writer.finish(out).map(drop)
    }

    /// The number of the next record's key.
    pub fn key_number(&mut self) -> u32 {
        self.random.below(self.shape.keys as i32) as u32
    }

    /// The value of the next record.
    pub fn next_value(&mut self) -> &[u8] {
        self.random.fill(&mut self.value);
        let random_bytes = self.value.len() / 4;
        self.value[random_bytes..].iter_mut().for_each(|byte| *byte = b'a' + (*byte & 7));
        &self.value
    }
}

/// The key of a number, 25 bytes: partitions of topics of groups, as in a log of committed offsets.
#[must_use]
pub fn key(number: u32) -> String {
    format!("group-{:05}:topic-{:03}:{:03}", number / 1000, number / 50 % 20, number % 50)
}

/// The number of a key that [`key`] has made.
#[must_use]
pub fn key_number(key: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(key).ok()?.strip_prefix("group-")?;
    let (group, rest) = text.split_once(":topic-")?;
    let (topic, partition) = rest.split_once(':')?;
    let number = |digits: &str| digits.parse::<u32>().ok();
    Some(number(group)?.checked_mul(1000)? + number(topic)? * 50 + number(partition)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_numbers() {
        for number in [0, 49, 50, 999, 1000, 123_456, 7_999_999] {
            assert_eq!(key_number(key(number).as_bytes()), Some(number));
        }
        assert_eq!(key(800_000).len(), 25);
        assert_eq!(key_number(b"last"), None);
    }
}
