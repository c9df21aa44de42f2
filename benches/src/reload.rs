//! Loading the offset cache.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keeplog_benches::{Figures, Run};
use keeplog_engine::storage::RealStorage;
use keeplog_engine::{DataDir, Log, LogOptions, TopicPartition};
use keeplog_offsets::{CommitOptions, OffsetAndMetadata, OffsetStore, RequiredAcks};
use serde_json::json;

use crate::args::{Common, Reload};
use crate::{Outcome, work};

const TOPICS_PER_GROUP: u32 = 20;
const PARTITIONS_PER_TOPIC: u32 = 50;
const KEYS_PER_GROUP: u32 = TOPICS_PER_GROUP * PARTITIONS_PER_TOPIC;

/// Makes a store, and loads it again and again.
pub(crate) fn run(args: &Reload, common: &Common) -> Outcome<Vec<Figures>> {
    let dir = work::directory(common)?;
    let logs = open(dir.path(), args)?;
    let store = OffsetStore::open(logs.clone(), CommitOptions::new().offsets_commit_required_acks(RequiredAcks::Written))?;
    fill(&store, args)?;
    logs.iter().try_for_each(Log::sync)?;
    work::settle()?;

    let clock = Arc::clone(logs[0].storage());
    let mut runs = Vec::new();
    for _ in 0..common.runs {
        let began = clock.monotonic();
        let report = store.reload()?;
        let time: Duration = clock.monotonic() - began;
        if report.entries != u64::from(args.keys) {
            return Err(format!("{} offsets were loaded, {} were committed", report.entries, args.keys).into());
        }
        check(&store, args)?;
        runs.push(Run { time, bytes: report.bytes, records: report.records });
    }
    drop(store);
    let (saves, starts) = snapshots(&logs, args, common)?;
    logs.iter().try_for_each(Log::close)?;
    let figures = [("reload", runs), ("snapshot save", saves), ("snapshot load", starts)].map(|(name, runs)| Figures::new(name, runs));
    let entries_per_s = |figures: &Figures| (f64::from(args.keys) / figures.seconds()).round();
    let facts = |figures: &Figures| json!({"entries": args.keys, "entries_per_s": entries_per_s(figures), "partitions": args.partitions});
    Ok(figures.into_iter().map(|figures| (facts(&figures), figures)).map(|(facts, figures)| figures.with(facts)).collect())
}

/// Snapshots of all partitions are saved, and a store is opened with them, again and again.
fn snapshots(logs: &[Log], args: &Reload, common: &Common) -> Outcome<(Vec<Run>, Vec<Run>)> {
    let clock = Arc::clone(logs[0].storage());
    let options = CommitOptions::new().snapshot_interval_bytes(0);
    let (mut saves, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..common.runs {
        // It knows of none, so all are due.
        let store = OffsetStore::open(logs.to_vec(), options.clone().snapshots(false))?;
        store.set_options(options.clone())?;
        let began = clock.monotonic();
        let saved = store.save_snapshots_at_close()?;
        saves.push(Run { time: clock.monotonic() - began, bytes: saved.bytes, records: u64::from(args.keys) });
        drop(store);
        let began = clock.monotonic();
        let store = OffsetStore::open(logs.to_vec(), options.clone())?;
        let time = clock.monotonic() - began;
        let report = store.load_report();
        if report.from_snapshot != u64::from(args.keys) {
            return Err(format!("{} of {} offsets came from snapshots", report.from_snapshot, args.keys).into());
        }
        check(&store, args)?;
        starts.push(Run { time, bytes: report.snapshot_bytes, records: report.from_snapshot });
    }
    Ok((saves, starts))
}

fn open(dir: &Path, args: &Reload) -> Outcome<Vec<Log>> {
    let data_dir = Arc::new(DataDir::open_or_create(Arc::new(RealStorage::new()), dir)?);
    let options = LogOptions::new().segment_bytes(args.segment_mib << 20);
    let log = |partition| Log::open_in(&data_dir, &TopicPartition::new("__consumer_offsets", partition)?, options.clone());
    Ok((0..args.partitions).map(log).collect::<keeplog_engine::Result<_>>()?)
}

/// Commits every key in each round, one batch of each group after the other, so that groups are mixed as they are in a
/// real log.
fn fill(store: &OffsetStore, args: &Reload) -> Outcome<()> {
    let per_batch = args.records_per_batch.clamp(1, KEYS_PER_GROUP);
    let batches_per_group = KEYS_PER_GROUP.div_ceil(per_batch);
    let groups = args.keys.div_ceil(KEYS_PER_GROUP);
    let mut offsets = Vec::new();
    for round in 0..args.rounds.max(1) {
        for batch in 0..batches_per_group {
            for group in 0..groups {
                let first = group * KEYS_PER_GROUP + batch * per_batch;
                let last = (first + per_batch).min((group + 1) * KEYS_PER_GROUP).min(args.keys);
                offsets.clear();
                offsets.extend((first..last).map(|key| {
                    let (topic, partition) = place(key);
                    (topic, partition, OffsetAndMetadata::new(committed(key, round)))
                }));
                if !offsets.is_empty() {
                    store.commit(&name(group), &offsets)?;
                }
            }
        }
    }
    Ok(())
}

/// Some of the answers, spread over all keys.
fn check(store: &OffsetStore, args: &Reload) -> Outcome<()> {
    for key in (0..args.keys).step_by(1 + args.keys as usize / 1000) {
        let (topic, partition) = place(key);
        let answer = store.fetch(&name(key / KEYS_PER_GROUP), &[(topic, partition)])?;
        let expected = committed(key, args.rounds.max(1) - 1);
        if answer[0].as_ref().map(|found| found.offset) != Some(expected) {
            return Err(format!("key {key}: {answer:?} where {expected} was committed").into());
        }
    }
    Ok(())
}

fn name(group: u32) -> String {
    format!("group-{group:05}")
}

fn place(key: u32) -> (String, i32) {
    let within = key % KEYS_PER_GROUP;
    (format!("topic-{:03}", within / PARTITIONS_PER_TOPIC), (within % PARTITIONS_PER_TOPIC) as i32)
}

fn committed(key: u32, round: u32) -> u64 {
    u64::from(key) * 1000 + u64::from(round)
}
