//! The plain way to load committed offsets, for comparison: a map with all of each key, record by record in the order of the log.

use std::collections::HashMap;

use keeplog_engine::Log;
use keeplog_engine::record::Decoder;
use keeplog_offsets::record::{OffsetKey, OffsetValue};

use crate::Outcome;

/// What is committed, by group, topic and partition.
#[derive(Default)]
pub(crate) struct Reference {
    pub(crate) offsets: HashMap<(String, String, i32), Committed>,
    pub(crate) records: u64,
}

/// As much of a commit as a fetch answers with, and when it goes.
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) metadata: String,
    pub(crate) commit_timestamp_ms: i64,
}

impl Reference {
    /// Adds what `log` says, which has no transactions.
    pub(crate) fn load(&mut self, log: &Log) -> Outcome<()> {
        let mut decoder = Decoder::new(log.options().decompressed_bytes_max);
        for batch in log.batches_from(log.start_offset())? {
            for record in decoder.records(&batch?.bytes)? {
                let record = record?;
                self.records += 1;
                let Some(OffsetKey { group, topic, partition }) = OffsetKey::decode(record.key.unwrap_or_default())? else { continue };
                let key = (group.to_owned(), topic.to_owned(), partition);
                let Some(value) = record.value else {
                    self.offsets.remove(&key);
                    continue;
                };
                let OffsetValue { offset, leader_epoch, metadata, commit_timestamp_ms, .. } = OffsetValue::decode(value)?;
                self.offsets.insert(key, Committed { offset, leader_epoch, metadata: metadata.to_owned(), commit_timestamp_ms });
            }
        }
        Ok(())
    }

    /// A sum over all that is there, that can be told of a cache as well.
    pub(crate) fn sum(&self) -> u64 {
        let committed = self.offsets.values();
        committed.fold(0, |sum, c| sum_with(sum, c.offset.cast_unsigned(), c.leader_epoch, &c.metadata, c.commit_timestamp_ms))
    }
}

/// The sum with one commit more, in any order.
pub(crate) fn sum_with(sum: u64, offset: u64, leader_epoch: Option<i32>, metadata: &str, commit_timestamp_ms: i64) -> u64 {
    let epoch = leader_epoch.map_or(0, |epoch| 1 + u64::from(epoch.cast_unsigned()));
    let one = offset.wrapping_mul(31)
        ^ epoch.wrapping_mul(1_000_003)
        ^ commit_timestamp_ms.cast_unsigned().rotate_left(17)
        ^ metadata.len() as u64;
    sum.wrapping_add(one.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
