//! Logs of a given shape, the same that the yardstick's `bench-make` writes.

use keeplog_engine::record::{BatchSpec, BatchWriter, Codec, EncodeError, EndMarker, TxnResult, write_end_marker};
use keeplog_engine::{Durability, Log, LogOptions, Result};

use crate::java::JavaRandom;

/// Time of the first record, ms since the Unix epoch, and the time of every pass.
pub const T0: i64 = 1_760_000_000_000;

/// One batch in so many is part of a transaction, in a log that has some.
const BATCHES_PER_TRANSACTIONAL: u64 = 5;
/// Batches of a transaction.
const TRANSACTION_BATCHES: u32 = 10;
/// One transaction in so many is aborted.
const TRANSACTIONS_PER_ABORTED: u64 = 10;
/// Producers that take turns with transactions.
const PRODUCERS: usize = 8;

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
    /// Whether a fifth of the batches is in transactions of ten, one of ten of them aborted. The yardstick writes none such.
    pub transactions: bool,
}

impl Shape {
    /// The settings of a log of this shape: those of the yardstick.
    #[must_use]
    pub fn log_options(&self) -> LogOptions {
        LogOptions::new().segment_bytes(self.segment_mib << 20).segment_index_bytes(10 << 20).max_message_bytes(i32::MAX as u32)
    }

    /// The same with `factor` times the bytes and keys, at least 1 MiB and 100 keys, and segments small enough that there are
    /// several. A factor of 1 changes nothing.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let mib = ((self.mib as f64 * factor).round() as u64).max(1);
        let keys = ((f64::from(self.keys) * factor).round() as u32).max(100);
        let segment_mib = if factor < 1.0 { self.segment_mib.min((mib / 4).max(1) as u32) } else { self.segment_mib };
        Self { mib, keys, segment_mib, ..self }
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
        batch.clear();
        generator.end_transaction(&mut batch).expect("a marker fits");
        if !batch.is_empty() {
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
    batches: u64,
    transactions: Transactions,
}

/// The transactions so far, and the one that is open.
#[derive(Default)]
struct Transactions {
    begun: u64,
    /// Batches that the open one is still to get.
    batches_left: u32,
    /// The next sequence number of each producer.
    sequences: [i32; PRODUCERS],
}

impl Transactions {
    /// Who writes the open transaction, or wrote the last.
    fn producer(&self) -> usize {
        (self.begun % PRODUCERS as u64) as usize
    }

    fn producer_id(&self) -> i64 {
        1000 + self.producer() as i64
    }

    fn result(&self) -> TxnResult {
        if self.begun.is_multiple_of(TRANSACTIONS_PER_ABORTED) { TxnResult::Aborted } else { TxnResult::Committed }
    }
}

impl Generator {
    /// At the start of the log.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            random: JavaRandom::new(1),
            writer: BatchWriter::new(),
            offset: 0,
            value: vec![0; shape.value_bytes],
            batches: 0,
            transactions: Transactions::default(),
        }
    }

    /// Appends the next batch to `out`, and the marker behind it if it ends a transaction.
    ///
    /// # Errors
    /// If a batch of this shape would be too large.
    pub fn batch(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.batches += 1;
        let transactional = self.shape.transactions && self.batches.is_multiple_of(BATCHES_PER_TRANSACTIONAL);
        let mut spec = BatchSpec { base_offset: self.offset, leader_epoch: 0, codec: self.shape.codec, ..BatchSpec::default() };
        if transactional {
            self.join_transaction(&mut spec);
        }
        self.writer.begin(spec);
        for _ in 0..self.shape.records_per_batch {
            let (key, offset) = (key(self.key_number()), self.offset);
            self.next_value();
            self.writer.push(offset, time(offset), Some(key.as_bytes()), Some(&self.value), &[])?;
            self.offset += 1;
        }
        self.writer.finish(out)?;
        if transactional && self.transactions.batches_left == 0 {
            self.write_marker(out)?;
        }
        Ok(())
    }

    fn join_transaction(&mut self, spec: &mut BatchSpec) {
        let transactions = &mut self.transactions;
        if transactions.batches_left == 0 {
            transactions.begun += 1;
            transactions.batches_left = TRANSACTION_BATCHES;
        }
        transactions.batches_left -= 1;
        let producer = transactions.producer();
        let sequence = transactions.sequences[producer];
        transactions.sequences[producer] = sequence.wrapping_add_unsigned(self.shape.records_per_batch) & i32::MAX;
        (spec.producer_id, spec.producer_epoch, spec.base_sequence) = (transactions.producer_id(), 0, sequence);
        spec.transactional = true;
    }

    /// Ends the transaction that is open, if there is one.
    fn end_transaction(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if std::mem::take(&mut self.transactions.batches_left) == 0 { Ok(()) } else { self.write_marker(out) }
    }

    fn write_marker(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let marker = EndMarker {
            offset: self.offset,
            leader_epoch: 0,
            timestamp: time(self.offset),
            producer_id: self.transactions.producer_id(),
            producer_epoch: 0,
            result: self.transactions.result(),
            coordinator_epoch: 0,
        };
        write_end_marker(&marker, out)?;
        self.offset += 1;
        Ok(())
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

/// Time of the record at an offset, ms since the Unix epoch.
fn time(offset: u64) -> i64 {
    T0 + (offset / 100) as i64
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
    use std::path::Path;
    use std::sync::Arc;

    use keeplog_engine::storage::MemoryStorage;

    use super::*;

    const SMALL: Shape =
        Shape { mib: 1, keys: 500, records_per_batch: 3, value_bytes: 20, codec: Codec::None, segment_mib: 1, transactions: true };

    #[test]
    fn keys_have_their_numbers() {
        for number in [0, 49, 50, 999, 1000, 123_456, 7_999_999] {
            assert_eq!(key_number(key(number).as_bytes()), Some(number));
        }
        assert_eq!(key(800_000).len(), 25);
        assert_eq!(key_number(b"last"), None);
    }

    #[test]
    fn a_fifth_of_the_batches_is_in_transactions_that_all_end() {
        let log = Log::open_with(Arc::new(MemoryStorage::new()), Path::new("/data/bench-0"), SMALL.log_options()).unwrap();
        SMALL.write(&log).unwrap();
        let (mut data, mut transactional, mut markers) = (0, 0, 0);
        for batch in log.batches_from(0).unwrap() {
            let header = batch.unwrap().header;
            markers += u32::from(header.is_control());
            data += u32::from(!header.is_control());
            transactional += u32::from(header.is_transactional() && !header.is_control());
        }
        assert_eq!(transactional, data / BATCHES_PER_TRANSACTIONAL as u32);
        assert_eq!(markers, transactional.div_ceil(TRANSACTION_BATCHES));
        assert_eq!(log.last_stable_offset(), log.end_offset());
        // One of ten is aborted, and not shown to those who ask for what was committed.
        let committed = log.read_committed_from(0).unwrap().count() as u32;
        let shown = u64::from(committed) + u64::from(markers / 10 * TRANSACTION_BATCHES * SMALL.records_per_batch) + u64::from(markers);
        assert_eq!(shown, log.end_offset());
    }

    #[test]
    fn a_smaller_shape_still_has_segments() {
        let large = Shape { mib: 1024, keys: 800_000, segment_mib: 100, ..SMALL };
        assert_eq!(large.scaled(1.0), large);
        assert_eq!(large.scaled(0.25), Shape { mib: 256, keys: 200_000, segment_mib: 64, ..SMALL });
        assert_eq!(large.scaled(0.000_01), Shape { mib: 1, keys: 100, segment_mib: 1, ..SMALL });
    }
}
