//! Keeplog over the offsets partitions of a broker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use keeplog::inspect::offsets::groups::{AssignedPartitions, GroupDescription, MemberDescription};
use keeplog::inspect::offsets::{Escaped, GroupOffset, Origin, Outcome, Replay};
use keeplog::inspect::record::{ControlType, Decoder};
use keeplog::{CONSUMER_OFFSETS, Log, LogOptions, OffsetOptions, OffsetStore, StoreOptions};

use super::live::Known;
use super::{PARTITION_METADATA, PARTITIONS};
use crate::directory::{self, describe};

const DECODED_BYTES_MAX: usize = 1 << 26;

/// An offset store over a copy of a broker's offsets partitions.
#[derive(Debug)]
pub(super) struct Ours {
    store: OffsetStore,
    /// Names of the broker's topics by their ids.
    topics: BTreeMap<String, String>,
}

impl Ours {
    /// Copies the partitions in `broker` to the new directory `copy`. Tombstones and markers stay for `delete_retention_ms`.
    pub(super) fn over_copy(broker: &Path, copy: &Path, delete_retention_ms: i64) -> Result<Self> {
        for partition in 0..PARTITIONS {
            let name = format!("{CONSUMER_OFFSETS}-{partition}");
            directory::copy(&broker.join(&name), &copy.join(&name))?;
        }
        directory::copy(broker, copy)?; // checkpoints, mark
        let options = OffsetOptions::new()
            .store(StoreOptions::new().log_cleaner_enable(false))
            .log(LogOptions::new().delete_retention_ms(delete_retention_ms));
        Ok(Self { store: OffsetStore::open(copy, options).map_err(describe)?, topics: topics(broker)? })
    }

    pub(super) fn known(&self) -> Result<Known> {
        known(&self.store, &self.topics)
    }

    /// Cleans everything that is there. Returns how many records have gone.
    pub(super) fn clean(&self) -> Result<u64> {
        let mut gone = 0;
        for log in self.store.store().logs() {
            log.roll().map_err(describe)?;
            let report = self.store.store().clean(&log).map_err(describe)?;
            gone += report.records_read - report.records_kept;
        }
        Ok(gone)
    }

    pub(super) fn close(self) -> Result<()> {
        self.store.close().map_err(describe)
    }
}

/// What is known in the store: as it was loaded, and by a plain fold over its logs.
pub(super) fn known(store: &OffsetStore, topics: &BTreeMap<String, String>) -> Result<Known> {
    let committed = list(store)?;
    let mut known = Known::default();
    for log in store.store().logs() {
        let replay = fold(&log)?;
        for group in replay.cache().groups() {
            known.committed.extend(replay.cache().list_group(group).iter().map(|offset| line(group, offset)));
        }
        for group in replay.groups().names() {
            let described = replay.groups().describe(group).with_context(|| format!("{group} is there, and is not"))?;
            known.groups.extend(lines(group, &described, topics));
        }
    }
    ensure!(known.committed == committed, "the store loads {} offsets, a fold over its logs {}", committed.len(), known.committed.len());
    Ok(known)
}

fn line(group: &str, GroupOffset { topic, partition, committed, .. }: &GroupOffset) -> String {
    let epoch = committed.leader_epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
    let (group, topic, metadata) = (Escaped(group), Escaped(topic), Escaped(&committed.metadata));
    format!("{group}\t{topic}\t{partition}\t{}\t{epoch}\t{metadata}", committed.offset)
}

/// What `keeplog offsets list --tsv` prints, and a fetch of each line says the same.
pub(super) fn list(store: &OffsetStore) -> Result<BTreeSet<String>> {
    let listed = store.list().map_err(describe)?;
    for line in &listed {
        let fetched = store.fetch(&line.group, &[(&*line.topic, line.partition)]).map_err(describe)?;
        ensure!(fetched == [Some(line.committed.clone().into())], "{line} is listed, {fetched:?} fetched");
    }
    Ok(listed.iter().map(ToString::to_string).collect())
}

/// One record after the other.
fn fold(log: &Log) -> Result<Replay> {
    let (mut replay, mut decoder) = (Replay::new(), Decoder::new(DECODED_BYTES_MAX));
    for batch in log.batches_from(log.start_offset()).map_err(describe)? {
        let batch = batch.map_err(describe)?;
        let producer_id = batch.header.producer_id;
        let origin = if batch.header.is_transactional() { Origin::Transaction { producer_id } } else { Origin::Plain };
        for record in decoder.records(&batch.bytes)? {
            let record = record?;
            if !batch.header.is_control() {
                replay.record(origin, record.offset, record.key, record.value)?;
                continue;
            }
            match ControlType::of_key(record.key.context("a marker without a key")?)? {
                ControlType::Commit => replay.marker(producer_id, Outcome::Commit),
                ControlType::Abort => replay.marker(producer_id, Outcome::Abort),
                _ => {}
            }
        }
    }
    Ok(replay)
}

/// What Kafka's side says of a group and its members, in the same words.
fn lines(group: &str, described: &GroupDescription, topics: &BTreeMap<String, String>) -> Vec<String> {
    let GroupDescription { kind, state, protocol_type, members, .. } = described;
    let count = members.len();
    let own = format!("group\t{}\t{kind}\t{state}\t{protocol_type}\t{count}", Escaped(group));
    let member = |member: &MemberDescription| {
        let MemberDescription { member_id, instance_id, client_id, client_host, assignment, .. } = member;
        let instance = instance_id.as_deref().unwrap_or("-");
        let assigned: BTreeSet<String> = assignment.iter().flatten().flat_map(|assigned| partitions(assigned, topics)).collect();
        let assigned: Vec<String> = assigned.into_iter().collect();
        format!("member\t{}\t{member_id}\t{instance}\t{client_id}\t{client_host}\t[{}]", Escaped(group), assigned.join(", "))
    };
    std::iter::once(own).chain(members.iter().map(member)).collect()
}

fn partitions(assigned: &AssignedPartitions, topics: &BTreeMap<String, String>) -> Vec<String> {
    let topic = topics.get(&assigned.topic).unwrap_or(&assigned.topic);
    assigned.partitions.iter().map(|partition| format!("{topic}-{partition}")).collect()
}

/// The topics that lie in a data directory, by their ids.
fn topics(data_dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(data_dir)? {
        let dir = entry?.path();
        let name = dir.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
        let (Some((topic, _)), Ok(metadata)) = (name, fs::read_to_string(dir.join(PARTITION_METADATA))) else { continue };
        let id = metadata.lines().find_map(|line| line.strip_prefix("topic_id: "));
        found.extend(id.map(|id| (id.trim().to_owned(), topic.to_owned())));
    }
    Ok(found)
}
