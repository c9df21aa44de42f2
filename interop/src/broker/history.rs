//! A long history of an offset store: commits of every kind, in transactions and outside, deletions, expiries, and records of
//! groups, with cleaning and restarts in between.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use fastrand::Rng;
use keeplog::inspect::offsets::record::{GROUP_METADATA_KEY, GroupKey, GroupMetadata};
use keeplog::inspect::storage::RealStorage;
use keeplog::{
    CONSUMER_OFFSETS, Durability, OffsetAndMetadata, OffsetOptions, OffsetStore, Outcome, Producer, Record, RequiredAcks, StoreOptions,
};

use super::PARTITIONS;
use super::live::Known;
use super::ours::{known, list};
use crate::directory::describe;

const SEED: u64 = 7;
const OPERATIONS: u32 = 200_000;
const GROUPS: usize = 400;
/// After so many the logs are cleaned and the store is opened again; the last of them are left for the broker to clean.
const STAGE: u32 = OPERATIONS / 8;
/// What is older expires, and so does what is said to be. All of it is long ago, so that the broker finds nothing to expire.
const RETENTION: Duration = Duration::from_secs(3 * 24 * 60 * 60);
const LONG_AGO: Duration = Duration::from_secs(5 * 24 * 60 * 60);

/// Groups that producers commit for in their open transactions.
type Open = BTreeMap<i64, Producer>;

/// Writes the history into the directory `dir`. Returns what is known at its end.
pub(super) fn write(dir: &Path) -> Result<Known> {
    let mut rng = Rng::with_seed(SEED);
    let groups: Vec<String> = (0..GROUPS).map(name).collect();
    let mut open = Open::new();
    let mut store = open_store(dir)?;
    for number in 0..OPERATIONS {
        operate(&store, &mut rng, &groups, &mut open)?;
        if number % STAGE == STAGE / 2 {
            store.expire().map_err(describe)?;
            clean(&store)?;
            let before = list(&store)?;
            store.close().map_err(describe)?;
            store = open_store(dir)?;
            ensure!(before == list(&store)?, "another opening gives other answers after {number} operations");
        }
    }
    store.expire().map_err(describe)?;
    let known = known(&store, &BTreeMap::new())?;
    let committed = known.committed.len();
    ensure!(committed > 1000 && !open.is_empty(), "only {committed} committed offsets, {} open transactions", open.len());
    store.close().map_err(describe)?;
    Ok(known)
}

fn open_store(dir: &Path) -> Result<OffsetStore> {
    // What is cleaned when is part of the history.
    let options = OffsetOptions::new()
        .offsets_topic_num_partitions(PARTITIONS)
        .offsets_topic_segment_bytes(256 << 10)
        .offsets_commit_required_acks(RequiredAcks::Written)
        .offsets_retention(RETENTION)
        .store(StoreOptions::new().log_cleaner_enable(false));
    OffsetStore::open_with(Arc::new(RealStorage::new()), dir, options).map_err(describe)
}

fn operate(store: &OffsetStore, rng: &mut Rng, groups: &[String], open: &mut Open) -> Result<()> {
    let group = &groups[rng.usize(0..groups.len())];
    match rng.u16(0..1000) {
        0..700 => store.commit(group, &some(rng)),
        700..800 => store.commit_async(group, &some(rng)).wait(),
        800..880 => {
            let id = rng.i64(0..40);
            let producer = *open.entry(id).or_insert_with(|| Producer { id, epoch: 0 });
            store.commit_in_transaction(producer, group, &some(rng))
        }
        880..930 => match open.keys().copied().nth(rng.usize(0..open.len().max(1))).and_then(|id| open.remove(&id)) {
            Some(producer) => {
                let outcome = if rng.u8(0..3) == 0 { Outcome::Abort } else { Outcome::Commit };
                store.end_transaction(producer, outcome).map(|_| ())
            }
            None => Ok(()),
        },
        930..980 => {
            let doomed: Vec<_> = some(rng).into_iter().map(|(topic, partition, _)| (topic, partition)).collect();
            store.delete_offsets(group, &doomed).map(|_| ())
        }
        980..990 => store.delete_group(group).map(|_| ()),
        990..998 => describe_group(store, rng, group),
        _ => store.delete_topic("gone").map(|_| ()),
    }
    .map_err(describe)
}

/// A record of an empty group, as a broker leaves when its last member has gone.
fn describe_group(store: &OffsetStore, rng: &mut Rng, group: &str) -> keeplog::Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let metadata = GroupMetadata {
        protocol_type: "consumer",
        generation: rng.i32(1..100),
        current_state_timestamp_ms: Some(now_ms()),
        ..GroupMetadata::default()
    };
    // Names are short.
    let is_written = GroupKey { key_type: GROUP_METADATA_KEY, group, rest: &[] }.encode(&mut key) && metadata.encode(&mut value);
    debug_assert!(is_written);
    let partition = keeplog::inspect::offsets::partition_for(group, store.partitions());
    store.store().log(CONSUMER_OFFSETS, partition)?.append(&[Record::new(key, value)], Durability::Buffered).map(|_| ())
}

fn clean(store: &OffsetStore) -> Result<()> {
    for log in store.store().logs() {
        log.roll().map_err(describe)?;
        let report = store.store().clean(&log).map_err(describe)?;
        ensure!(report.records_kept < report.records_read, "nothing was cleaned away: {report}");
    }
    Ok(())
}

fn name(i: usize) -> String {
    match i % 5 {
        0 => format!("größe-组-🚀-{i}"),
        1 => format!("with spaces & signs/\\\"{i}"),
        _ => format!("group-{i}"),
    }
}

fn some(rng: &mut Rng) -> Vec<(&'static str, i32, OffsetAndMetadata)> {
    (0..rng.usize(1..6)).map(|_| (topic(rng), rng.i32(0..4), position(rng))).collect()
}

fn topic(rng: &mut Rng) -> &'static str {
    // The broker has none of them, and nothing says that it must.
    ["orders", "codecs", "gone", "a.topic_of-no_one"][rng.usize(0..4)]
}

fn position(rng: &mut Rng) -> OffsetAndMetadata {
    let offset = match rng.u8(0..20) {
        0 => 0,
        1 => i64::MAX as u64 - 1,
        _ => rng.u64(0..1 << 40),
    };
    let position = OffsetAndMetadata::new(offset);
    let position = if rng.bool() { position.leader_epoch(rng.i32(0..100)) } else { position };
    let position = if rng.u8(0..40) == 0 { position.commit_timestamp_ms(now_ms() - LONG_AGO.as_millis() as i64) } else { position };
    match rng.u8(0..16) {
        0 => position.metadata(format!("checkpoint-{} ✓ 🚀", rng.u32(..))),
        1 => position.metadata("m".repeat(rng.usize(0..400))),
        _ => position,
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}
