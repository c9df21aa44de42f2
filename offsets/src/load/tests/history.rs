//! Logs that nobody would write on purpose: records of all kinds and ages, transactions across one another, in any format.

use keeplog_engine::record::{BatchSpec, BatchWriter, Codec, EndMarker, TxnResult, write_end_marker};
use keeplog_fixtures::Dice;

use crate::record::{OffsetKey, OffsetValue};

pub(super) const GROUPS: [&str; 4] = ["", "a", "b", "größe"];
pub(super) const PRODUCERS: [i64; 4] = [1, 2, 3, 4];
const TOPICS: [&str; 2] = ["t", "u"];
const PARTITIONS: [i32; 6] = [0, 1, 63, 64, -1, i32::MAX];

/// A record or marker about one and the same place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Value(Option<i64>, i64),
    Tombstone(Option<i64>),
    Commit(i64),
    Abort(i64),
}

pub(super) struct History {
    pub(super) dice: Dice,
    pub(super) next: u64,
    writer: BatchWriter,
}

impl History {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), next: 0, writer: BatchWriter::new() }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.dice.roll(all.len() as u64) as usize]
    }

    /// Adds a batch, or a marker.
    pub(super) fn batch(&mut self, out: &mut Vec<u8>) {
        self.next += if self.dice.roll(5) == 0 { self.dice.roll(9) } else { 0 };
        match self.dice.roll(10) {
            0 | 1 => {
                let (producer_id, commits) = (self.one_of(&PRODUCERS), self.dice.roll(3) > 0);
                self.marker(producer_id, commits, out);
            }
            2 => self.old_message(out),
            3..6 => {
                let producer_id = self.one_of(&PRODUCERS);
                self.records(Some(producer_id), out);
            }
            _ => self.records(None, out),
        }
    }

    /// Adds a batch with one record, or a marker.
    pub(super) fn step(&mut self, step: &Step, out: &mut Vec<u8>) {
        let mut key = Vec::new();
        assert!(OffsetKey { group: "a", topic: "t", partition: 0 }.encode(&mut key));
        let (producer_id, value) = match *step {
            Step::Value(producer_id, offset) => (producer_id, Some(self.plain_value(offset))),
            Step::Tombstone(producer_id) => (producer_id, None),
            Step::Commit(producer_id) => return self.marker(producer_id, true, out),
            Step::Abort(producer_id) => return self.marker(producer_id, false, out),
        };
        self.begin(producer_id, Codec::None);
        self.writer.push(self.next, 5, Some(&key), value.as_deref(), &[]).unwrap();
        self.next += 1;
        self.writer.finish(out).unwrap();
    }

    fn marker(&mut self, producer_id: i64, commits: bool, out: &mut Vec<u8>) {
        let result = if commits { TxnResult::Committed } else { TxnResult::Aborted };
        let (offset, timestamp) = (self.next, 5);
        let marker = EndMarker { offset, leader_epoch: 0, timestamp, producer_id, producer_epoch: 0, result, coordinator_epoch: 0 };
        write_end_marker(&marker, out).unwrap();
        self.next += 1;
    }

    fn begin(&mut self, producer_id: Option<i64>, codec: Codec) {
        let spec = BatchSpec { base_offset: self.next, codec, ..BatchSpec::default() };
        let in_transaction = |producer_id| BatchSpec { producer_id, producer_epoch: 0, base_sequence: 0, transactional: true, ..spec };
        self.writer.begin(producer_id.map_or(spec, in_transaction));
    }

    fn records(&mut self, producer_id: Option<i64>, out: &mut Vec<u8>) {
        let codec = self.one_of(&[Codec::None, Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]);
        self.begin(producer_id, codec);
        for _ in 0..=self.dice.roll(8) {
            let (key, value) = self.record();
            self.writer.push(self.next, 5, Some(&key), value.as_deref(), &[]).unwrap();
            self.next += 1 + self.dice.roll(2);
        }
        // What comes next may begin above the last record.
        self.writer.finish(out).unwrap();
    }

    /// A message as written by old brokers.
    fn old_message(&mut self, out: &mut Vec<u8>) {
        let magic = self.dice.roll(2) as u8;
        let (key, value) = self.record();
        let mut body = vec![magic, 0];
        if magic == 1 {
            body.extend_from_slice(&5_i64.to_be_bytes());
        }
        for part in [Some(key), value] {
            body.extend_from_slice(&part.as_ref().map_or(-1, |part| part.len() as i32).to_be_bytes());
            body.extend_from_slice(&part.unwrap_or_default());
        }
        out.extend_from_slice(&self.next.to_be_bytes());
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(&crc32(&body).to_be_bytes());
        out.extend_from_slice(&body);
        self.next += 1;
    }

    fn record(&mut self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut key = Vec::new();
        if self.dice.roll(10) == 0 {
            // Of a group, or of a type that nobody knows.
            let length = 1 + self.dice.roll(10) as u8 / 9; // one of ten cannot be read
            key.extend_from_slice(&[0, self.one_of(&[2, 3, 99]), 0, length, b'a' + self.dice.roll(3) as u8]);
            let value = vec![0; self.dice.roll(40) as usize];
            return (key, (self.dice.roll(3) > 0).then_some(value));
        }
        let (group, topic, partition) = (self.one_of(&GROUPS), self.one_of(&TOPICS), self.one_of(&PARTITIONS));
        assert!(OffsetKey { group, topic, partition }.encode(&mut key));
        key[1] = self.dice.roll(2) as u8;
        let value = (self.dice.roll(6) > 0).then(|| self.value());
        (key, value)
    }

    fn value(&mut self) -> Vec<u8> {
        let offset = if self.dice.roll(6) == 0 { -1 } else { self.dice.roll(1000) as i64 };
        let metadata = "mé".repeat(self.dice.roll(4).saturating_sub(1) as usize);
        let mut value = OffsetValue {
            offset,
            leader_epoch: (self.dice.roll(2) == 0).then_some(self.dice.roll(9) as i32),
            metadata: &metadata,
            commit_timestamp_ms: self.dice.roll(1 << 30) as i64,
            expire_timestamp_ms: None,
            topic_id: None,
        };
        let version = self.dice.roll(6);
        match version {
            0 => value.expire_timestamp_ms = Some(77),
            1 => value.topic_id = Some([9; 16]),
            _ => {}
        }
        let mut out = Vec::new();
        assert!(value.encode(&mut out));
        if version == 1 && self.dice.roll(2) == 0 {
            out[1] = 5; // to be read as the newest that is known
        }
        out
    }

    fn plain_value(&self, offset: i64) -> Vec<u8> {
        let mut out = Vec::new();
        let value =
            OffsetValue { offset, leader_epoch: None, metadata: "", commit_timestamp_ms: 5, expire_timestamp_ms: None, topic_id: None };
        assert!(value.encode(&mut out));
        out
    }
}

/// The checksum of the old formats, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
