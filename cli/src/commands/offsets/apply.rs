//! Writing changes into the logs of `__consumer_offsets`.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::owned::{OwnedPartition, OwnedTarget};

/// More than what any batch header and the framing of one record take.
const BATCH_OVERHEAD_BYTES: usize = 128;
const RECORD_OVERHEAD_BYTES: usize = 32;

/// The records to write, by partition of `__consumer_offsets` and group.
pub(super) type Work = BTreeMap<TopicPartition, BTreeMap<String, Vec<Record>>>;

impl Change {
    /// The records that make it so.
    pub(super) fn records(&self, folded: &Folded, now_ms: i64) -> Result<Vec<Record>, Failure> {
        let Self { group, topic, partition, old, new } = self;
        let refuse = |what: &str| {
            let place = format!("{} partition {partition} of group {}", output::shown(topic), output::shown(group));
            Err(Failure::new(format!("could not write the offset of {place}: {what}")).advise("nothing was changed"))
        };
        // What is there already may have any name.
        let is_name = || u32::try_from(*partition).is_ok_and(|number| TopicPartition::new(topic, number).is_ok());
        if new.is_some() && old.is_none() && !is_name() {
            return refuse("this is not the name of a partition");
        }
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

/// What came of the writing.
pub(super) struct Outcome {
    /// Groups of which everything is written, and synced.
    pub(super) done: BTreeSet<String>,
    /// Groups of which everything is written, and not known to be synced.
    pub(super) unsure: BTreeSet<String>,
    /// Whether it came to writing.
    pub(super) has_begun: bool,
    /// What could not be written was complained about.
    pub(super) result: Result<Status, Failure>,
}

/// Writes all of it to the logs in `dir`, which `owned` holds: those of a group in one batch, as far as they fit. Nothing is
/// written unless every log is one to write to.
pub(super) fn write(storage: &Arc<dyn Storage>, dir: &Path, owned: &OwnedTarget, work: &Work) -> Outcome {
    let (mut done, mut unsure) = (BTreeSet::new(), BTreeSet::new());
    let open = |partition: &OwnedPartition| open_sound(storage, dir, owned, partition, &LogOptions::new());
    let is_meant = |partition: &OwnedPartition| work.contains_key(&partition.topic_partition);
    let checked = owned.each(|partition| {
        if is_meant(partition) {
            open(partition)?.close()?;
        }
        Ok(Status::Fine)
    });
    if !matches!(checked, Ok(Status::Fine)) {
        return Outcome { done, unsure, has_begun: false, result: checked };
    }
    let result = owned.each(|partition| {
        let Some(groups) = work.get(&partition.topic_partition) else { return Ok(Status::Fine) };
        let log = open(partition)?;
        let (written, appended) = append_all(&log, groups);
        let synced = log.sync();
        let closed = log.close();
        if synced.is_ok() { &mut done } else { &mut unsure }.extend(written);
        appended?;
        synced?;
        closed?;
        Ok(Status::Fine)
    });
    Outcome { done, unsure, has_begun: true, result }
}

/// Which groups are written, and what stood against the others. One sync is to follow for all of them.
fn append_all(log: &Log, groups: &BTreeMap<String, Vec<Record>>) -> (Vec<String>, Result<(), Failure>) {
    let mut appended = Vec::with_capacity(groups.len());
    for (group, records) in groups {
        if let Err(failure) = append(log, records) {
            return (appended, Err(failure));
        }
        appended.push(group.clone());
    }
    (appended, Ok(()))
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
        log.append(&records[from..], Durability::Buffered)?;
    }
    Ok(())
}
