//! Logs made by hand: batches of `(key, value)` records, segment by segment.

use keeplog_engine::record::{BatchSpec, BatchWriter, EndMarker, TxnResult, write_end_marker};

use super::memory::{MemoryLog, Segment};

/// When the logs of these tests were written, ms.
pub(crate) const T0: i64 = 1_700_000_000_000;

/// A record: key and value, either of which may be null.
pub(crate) type KeyValue<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

pub(crate) fn put<'a>(key: &'a str, value: &'a str) -> KeyValue<'a> {
    (Some(key.as_bytes()), Some(value.as_bytes()))
}

pub(crate) fn delete(key: &str) -> KeyValue<'_> {
    (Some(key.as_bytes()), None)
}

/// A producer and where its sequence stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
    pub(crate) transactional: bool,
}

impl MemoryLog {
    /// An empty log.
    pub(crate) fn new() -> Self {
        Self { segments: vec![Segment::new(0, Vec::new())], ..Self::default() }
    }

    /// One past the last offset.
    pub(crate) fn end_offset(&self) -> u64 {
        let active = self.segments.last().unwrap();
        let last = self.entries().last().map_or(0, |(_, header, _)| header.next_offset());
        last.max(active.base)
    }

    /// Starts a new segment at the end of the log, or at `base` if that is higher.
    pub(crate) fn roll_at(&mut self, base: u64) {
        let base = self.end_offset().max(base);
        self.segments.push(Segment::new(base, Vec::new()));
    }

    pub(crate) fn roll(&mut self) {
        self.roll_at(0);
    }

    /// One batch; returns its base offset.
    pub(crate) fn append(&mut self, records: &[KeyValue<'_>]) -> u64 {
        self.append_spec(BatchSpec::default(), records)
    }

    /// One batch that is otherwise as `spec` says; a base offset of 0 there stands for the end of the log.
    pub(crate) fn append_spec(&mut self, mut spec: BatchSpec, records: &[KeyValue<'_>]) -> u64 {
        spec.base_offset = spec.base_offset.max(self.end_offset());
        let mut writer = BatchWriter::new();
        writer.begin(spec);
        for (i, (key, value)) in records.iter().enumerate() {
            let offset = spec.base_offset + i as u64;
            writer.push(offset, T0 + i64::try_from(offset % 1_000_000).unwrap(), *key, *value, &[]).unwrap();
        }
        writer.finish(&mut self.segments.last_mut().unwrap().log).unwrap();
        spec.base_offset
    }

    pub(crate) fn append_by(&mut self, producer: &mut Producer, records: &[KeyValue<'_>]) -> u64 {
        let spec = BatchSpec {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence: producer.sequence,
            transactional: producer.transactional,
            ..BatchSpec::default()
        };
        producer.sequence += i32::try_from(records.len()).unwrap();
        self.append_spec(spec, records)
    }

    /// The marker that ends a transaction; returns its offset.
    pub(crate) fn end_txn(&mut self, producer: &Producer, result: TxnResult) -> u64 {
        let offset = self.end_offset();
        let marker = EndMarker {
            offset,
            leader_epoch: 0,
            timestamp: T0,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            result,
            coordinator_epoch: 0,
        };
        write_end_marker(&marker, &mut self.segments.last_mut().unwrap().log).unwrap();
        offset
    }

    /// As [`MemoryLog::records`], readable.
    pub(crate) fn contents(&self) -> Vec<(u64, String, Option<String>)> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        self.records().into_iter().map(|(offset, key, value)| (offset, key.map_or_else(|| "-".to_owned(), text), value.map(text))).collect()
    }

    /// Offsets of the control batches that are left.
    pub(crate) fn markers(&self) -> Vec<u64> {
        self.entries().iter().filter(|(_, header, _)| header.is_control()).map(|(_, header, _)| header.base_offset).collect()
    }
}

/// What [`MemoryLog::contents`] gives for these records.
pub(crate) fn records(all: &[(u64, &str, Option<&str>)]) -> Vec<(u64, String, Option<String>)> {
    all.iter().map(|(offset, key, value)| (*offset, (*key).to_owned(), value.map(str::to_owned))).collect()
}

impl Producer {
    pub(crate) fn new(id: i64) -> Self {
        Self { id, epoch: 0, sequence: 0, transactional: false }
    }

    pub(crate) fn transactional(id: i64) -> Self {
        Self { transactional: true, ..Self::new(id) }
    }
}
