//! Records as a broker writes them: straight into the log.

use keeplog::inspect::offsets::record::{GroupKey, GroupMember, GroupMetadata, OffsetKey, OffsetValue};
use keeplog::{CommittedOffset, Durability, Record as LogRecord};

use super::model::{Held, Members, Record};
use super::run::{Done, Run, partition_of};
use super::steps::Foreign;

/// A commit or its tombstone under the key of 0.8.2 begins with 0, of today with 1; the rest is the same.
fn key_of(group: &str, topic: &str, partition: i32, version: u8) -> Vec<u8> {
    let mut key = Vec::new();
    assert!(OffsetKey { group, topic, partition }.encode(&mut key));
    key[1] = version;
    key
}

fn value_of_group(members: Members) -> Vec<u8> {
    let (mut value, mut subscription) = (Vec::new(), vec![0, 1, 0, 0, 0, 1]);
    let metadata = match members {
        Members::Nobody(protocol_type, since_ms) => {
            GroupMetadata { protocol_type, current_state_timestamp_ms: since_ms, ..GroupMetadata::default() }
        }
        Members::Reads(topic) => {
            subscription.extend((topic.len() as u16).to_be_bytes());
            subscription.extend(topic.bytes());
            subscription.extend([0xFF; 4]);
            let member = GroupMember { member_id: "m", subscription: &subscription, ..GroupMember::default() };
            GroupMetadata { protocol_type: "consumer", protocol: Some("range"), members: vec![member], ..GroupMetadata::default() }
        }
    };
    assert!(metadata.encode(&mut value));
    value
}

/// Appends `foreign` as one batch to the log of `group`.
pub(super) fn write(run: &mut Run<'_>, group: &'static str, producer: Option<i64>, foreign: &[Foreign]) -> Done {
    let log = run.log(partition_of(group));
    let (mut written, mut known) = (Vec::new(), Vec::new());
    for one in foreign {
        let record_offset = log.end_offset() + written.len() as u64;
        match one {
            Foreign::Commit { topic, partition, old, offset, age_ms, expires_in_ms } => {
                let commit_timestamp_ms = age_ms.map_or(-1, |age| run.now_ms() - age);
                let expire_timestamp_ms = expires_in_ms.map(|ms| run.now_ms() + ms);
                let (offset, metadata) = (*offset, "of a broker");
                let value = OffsetValue { offset, leader_epoch: None, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id: None };
                let mut bytes = Vec::new();
                assert!(value.encode(&mut bytes));
                written.push(LogRecord::new(key_of(group, topic, *partition, u8::from(!*old)), bytes));
                let committed = u64::try_from(offset).ok().map(|offset| CommittedOffset {
                    offset,
                    leader_epoch: None,
                    metadata: metadata.into(),
                    commit_timestamp_ms,
                    expire_timestamp_ms,
                    topic_id: None,
                    record_offset,
                });
                run.counts.note(match (old, offset < 0) {
                    (_, true) => "negative offsets",
                    (true, false) => "commits of 0.8.2",
                    (false, false) => "commits of a broker",
                });
                known.push(Record::Commit(producer, (group, topic, *partition), Held { record_offset, committed }));
            }
            Foreign::Tombstone(topic, partition) => {
                written.extend([0, 1].map(|version| LogRecord::tombstone(key_of(group, topic, *partition, version))));
                known.push(Record::Tombstone((group, topic, *partition)));
            }
            Foreign::Group(members) => {
                let members = members.map(|members| match members {
                    Members::Nobody(protocol_type, since) => Members::Nobody(protocol_type, since.map(|age| run.now_ms() - age)),
                    reads @ Members::Reads(_) => reads,
                });
                let mut key = Vec::new();
                assert!(GroupKey::classic(group).encode(&mut key));
                written.push(members.map_or(LogRecord::tombstone(key.clone()), |members| LogRecord::new(key, value_of_group(members))));
                run.counts.note("records of groups");
                known.push(Record::Group(group, members));
            }
            Foreign::Unknown => written.push(LogRecord::new(vec![0, 99, 1], vec![1])),
        }
    }
    let partition = &mut run.partitions[partition_of(group)];
    match producer {
        None => log.append(&written, Durability::Buffered),
        Some(id) => {
            let epoch = *partition.producers.entry(id).or_insert(0);
            run.counts.note("transactions of a broker");
            log.append_in_transaction(id, epoch, &written, Durability::Buffered)
        }
    }
    .map_err(|error| format!("{error:?}"))?;
    partition.write(known, None);
    Ok(())
}
