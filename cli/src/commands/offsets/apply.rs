//! Writing changes into the logs of `__consumer_offsets`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::load::Folded;
use super::plan::{Change, New};
use crate::Status;
use crate::door::offsets_record::{OffsetKey, OffsetValue};
use crate::door::record::Record;
use crate::door::{Durability, Log, LogOptions, Storage, TopicPartition};
use crate::failure::Failure;
use crate::opened::open_sound;
use crate::output;
use crate::owned::OwnedTarget;

/// More than what any batch header and the framing of one record take.
const BATCH_OVERHEAD_BYTES: usize = 128;
const RECORD_OVERHEAD_BYTES: usize = 32;

/// The records to write, by partition of `__consumer_offsets` and group.
pub(super) type Work = BTreeMap<TopicPartition, BTreeMap<String, Vec<Record>>>;

impl Change {
    /// The records that make it so.
    pub(super) fn records(&self, folded: &Folded, now_ms: i64) -> Result<Vec<Record>, Failure> {
        let Self { group, topic, partition, new, .. } = self;
        let refuse = |what: &str| {
            let place = format!("{} partition {partition} of group {}", output::name(topic), output::name(group));
            Err(Failure::new(format!("could not write the offset of {place}: {what}")).advise("nothing was changed"))
        };
        TopicPartition::new(topic, u32::try_from(*partition).unwrap_or(u32::MAX))?;
        let place = OffsetKey { group, topic, partition: *partition };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        if !place.encode(&mut key) {
            return refuse("the name of the group has more than 32767 bytes");
        }
        let Some(New { offset, leader_epoch, metadata }) = new else { return Ok(folded.tombstones(&place).unwrap_or_default()) };
        let Ok(offset) = i64::try_from(*offset) else { return refuse("the offset is above 2^63 - 1") };
        let committed = OffsetValue {
            offset,
            leader_epoch: *leader_epoch,
            metadata,
            commit_timestamp_ms: now_ms,
            expire_timestamp_ms: None,
            topic_id: None,
        };
        if !committed.encode(&mut value) {
            return refuse("the metadata has more than 32767 bytes");
        }
        Ok(vec![Record::new(key, value)])
    }
}

/// Writes all of it to the logs in `dir`, which `owned` holds: those of a group in one batch, as far as they fit, and
/// synced.
pub(super) fn write(storage: &Arc<dyn Storage>, dir: &Path, owned: &OwnedTarget, work: &Work) -> Result<Status, Failure> {
    owned.each(|partition| {
        let Some(groups) = work.get(&partition.topic_partition) else { return Ok(Status::Fine) };
        let log = open_sound(storage, dir, owned, partition, &LogOptions::new())?;
        let written = groups.values().try_for_each(|records| append(&log, records));
        let closed = log.close();
        written?;
        closed?;
        Ok(Status::Fine)
    })
}

fn append(log: &Log, records: &[Record]) -> Result<(), Failure> {
    let limit = log.options().max_message_bytes.min(log.options().segment_bytes) as usize;
    let part = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let size = |record: &Record| part(record.key.as_deref()) + part(record.value.as_deref()) + RECORD_OVERHEAD_BYTES;
    let mut from = 0;
    let mut bytes = BATCH_OVERHEAD_BYTES;
    for (i, record) in records.iter().enumerate() {
        if bytes + size(record) > limit && i > from {
            log.append(&records[from..i], Durability::Buffered)?;
            from = i;
            bytes = BATCH_OVERHEAD_BYTES;
        }
        bytes += size(record);
    }
    if from < records.len() {
        log.append(&records[from..], Durability::Synced)?;
    }
    Ok(())
}
