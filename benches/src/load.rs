//! Loading the offset cache from logs of many shapes, beside a plain replay of the same log into a map in the same run.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keeplog_benches::{Figures, Run, T0};
use keeplog_engine::record::{BatchSpec, BatchWriter, Codec};
use keeplog_engine::storage::{RealStorage, Storage};
use keeplog_engine::sync::map_each;
use keeplog_engine::{DataDir, Durability, Log, LogOptions, TopicPartition};
use keeplog_fixtures::Dice;
use keeplog_offsets::record::{OffsetKey, OffsetValue};
use keeplog_offsets::{Replay, load, partition_for};
use serde_json::json;

use crate::args::{Common, Load};
use crate::cache::Cache;
use crate::reference::{Reference, sum_with};
use crate::{Outcome, usage, work};

/// What the commits in a log are for.
struct Shape {
    name: &'static str,
    groups: u32,
    topics: u32,
    partitions: u32,
    per_batch: u32,
    /// Records for each place; of several, in no order.
    rounds: u32,
    codec: Codec,
    logs: u32,
}

const A: Shape = Shape { name: "A", groups: 10_000, topics: 20, partitions: 50, per_batch: 1, rounds: 1, codec: Codec::None, logs: 1 };
const C: Shape = Shape { name: "C", groups: 2_000, per_batch: 20, rounds: 5, ..A };

/// Ten million records each, at a scale of 1.
const SHAPES: [Shape; 7] = [
    A,
    Shape { name: "B", per_batch: 20, ..A },
    C,
    Shape { name: "D", per_batch: 100, codec: Codec::Zstd, ..C },
    Shape { name: "A50", logs: 50, ..A },
    Shape { name: "E", groups: 200_000, topics: 1, ..A },
    Shape { name: "F", groups: 1_000_000, topics: 10, partitions: 1, ..A },
];

/// Makes a log of each shape, and loads it again and again.
pub(crate) fn run(args: &Load, common: &Common) -> Outcome<Vec<Figures>> {
    let mut all = Vec::new();
    for shape in SHAPES.iter().filter(|shape| args.shapes.is_empty() || args.shapes.iter().any(|name| name == shape.name)) {
        let dir = work::directory(common)?;
        let logs = open(dir.path(), shape.logs)?;
        shape.write(&logs, args.scale)?;
        logs.iter().try_for_each(Log::sync)?;
        let mut measure = |name: String, runs, load: &dyn Fn() -> Outcome<Loaded>| -> Outcome<u64> {
            let (figures, sum) = measure(&name, &logs, dir.path(), runs, load)?;
            all.push(figures);
            Ok(sum)
        };
        let mut sums = Vec::new();
        for &threads in &args.threads {
            sums.push(measure(format!("{}, {threads} thread{}", shape.name, if threads == 1 { "" } else { "s" }), common.runs, &|| {
                cached(&logs, threads)
            })?);
        }
        if !args.fast_only {
            sums.push(measure(format!("{}, {MAP}", shape.name), common.runs.min(2), &|| mapped(&logs))?);
        }
        if sums.iter().any(|sum| *sum != sums[0]) {
            return Err(format!("{}: the loads came to different offsets", shape.name).into());
        }
        logs.iter().try_for_each(Log::close)?;
    }
    Ok(all)
}

/// The plain replay, in the names of figures.
pub(crate) const MAP: &str = "into a map";

/// What was loaded.
struct Loaded {
    records: u64,
    entries: u64,
    /// By its own account.
    held_bytes: Option<u64>,
    sum: u64,
    time: Duration,
    /// Still there when memory is looked at.
    _kept: Box<dyn Any>,
}

/// Into the cache.
fn cached(logs: &[Log], threads: usize) -> Outcome<Loaded> {
    let clock = RealStorage::new();
    let began = clock.monotonic();
    let loaded = if let [log] = logs {
        vec![load::load(log, threads).map_err(|e| e.to_string())]
    } else {
        // So many at a time.
        let parts = logs.chunks(logs.len().div_ceil(threads)).collect();
        let load_all = |part: &[Log]| part.iter().map(|log| load::load(log, 1).map_err(|e| e.to_string())).collect::<Vec<_>>();
        map_each(parts, load_all).into_iter().flatten().collect()
    };
    let time = clock.monotonic() - began;
    let loaded = loaded.into_iter().map(|loaded| Ok(loaded?.0)).collect::<Outcome<Vec<Replay>>>()?;
    let total = |of: fn(&Replay) -> u64| loaded.iter().map(of).sum();
    let commits = loaded.iter().flat_map(|replay| replay.cache().iter());
    let sum = commits.fold(0, |sum, (_, c)| sum_with(sum, c.offset, c.leader_epoch, c.metadata, c.commit_timestamp_ms));
    Ok(Loaded {
        records: total(|replay| replay.counts().records),
        entries: total(|replay| replay.cache().len() as u64),
        held_bytes: Some(total(|replay| replay.cache().memory_bytes() as u64)),
        sum,
        time,
        _kept: Box::new(loaded),
    })
}

/// Into a plain map.
fn mapped(logs: &[Log]) -> Outcome<Loaded> {
    let clock = RealStorage::new();
    let began = clock.monotonic();
    let mut reference = Reference::default();
    logs.iter().try_for_each(|log| reference.load(log))?;
    let time = clock.monotonic() - began;
    let (records, entries, sum) = (reference.records, reference.offsets.len() as u64, reference.sum());
    Ok(Loaded { records, entries, held_bytes: None, sum, time, _kept: Box::new(reference) })
}

/// The figures of so many loads, and the sum over what was loaded.
fn measure(name: &str, logs: &[Log], dir: &Path, runs: u32, load: &dyn Fn() -> Outcome<Loaded>) -> Outcome<(Figures, u64)> {
    let mut figures = Vec::new();
    let (mut resident, mut held, mut entries, mut sum) = (0, None, 0, 0);
    let bytes: u64 = logs.iter().map(load::size_bytes).sum();
    for _ in 0..runs {
        Cache::Warm.prepare(dir)?;
        let before = usage::resident_bytes()?;
        let loaded = load()?;
        resident = usage::resident_bytes()?.saturating_sub(before);
        (held, entries, sum) = (loaded.held_bytes, loaded.entries, loaded.sum);
        figures.push(Run { time: loaded.time, bytes, records: loaded.records });
    }
    let each = |bytes: u64| (bytes as f64 / entries.max(1) as f64 * 10.0).round() / 10.0;
    let more = json!({"entries": entries, "bytes_per_entry": held.map(each), "resident_per_entry": each(resident)});
    Ok((Figures::new(name, figures).with(more), sum))
}

fn open(dir: &Path, logs: u32) -> Outcome<Vec<Log>> {
    let data_dir = Arc::new(DataDir::open_or_create(Arc::new(RealStorage::new()), dir)?);
    let options = LogOptions::new().segment_bytes(100 << 20);
    let log = |partition| Log::open_in(&data_dir, &TopicPartition::new("__consumer_offsets", partition)?, options.clone());
    Ok((0..logs).map(log).collect::<keeplog_engine::Result<_>>()?)
}

impl Shape {
    /// Writes the commits of `scale` times as many groups, in no order but for those of a batch, which are of one group.
    fn write(&self, logs: &[Log], scale: f64) -> Outcome<()> {
        let groups = ((f64::from(self.groups) * scale).round() as u32).max(1);
        let per_group = self.topics * self.partitions;
        let batches_per_group = per_group.div_ceil(self.per_batch);
        let mut order: Vec<u32> = (0..groups * batches_per_group).flat_map(|batch| (0..self.rounds).map(move |_| batch)).collect();
        let mut dice = Dice::new(7);
        for i in (1..order.len()).rev() {
            order.swap(i, dice.roll(i as u64 + 1) as usize);
        }
        let mut outputs: Vec<_> = logs.iter().map(|log| Output { log, writer: BatchWriter::new(), entries: Vec::new(), next: 0 }).collect();
        let count = u32::try_from(outputs.len())?.try_into()?;
        for batch in order {
            let group = format!("group-{:06}", batch / batches_per_group);
            let first = batch % batches_per_group * self.per_batch;
            let output = &mut outputs[partition_for(&group, count) as usize];
            output.batch(self, &group, first..(first + self.per_batch).min(per_group))?;
        }
        outputs.into_iter().try_for_each(|mut output| output.flush())
    }
}

/// Where the batches of a log go.
struct Output<'a> {
    log: &'a Log,
    writer: BatchWriter,
    entries: Vec<u8>,
    next: u64,
}

impl Output<'_> {
    fn batch(&mut self, shape: &Shape, group: &str, places: std::ops::Range<u32>) -> Outcome<()> {
        self.writer.begin(BatchSpec { base_offset: self.next, leader_epoch: 0, codec: shape.codec, ..BatchSpec::default() });
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for place in places {
            key.clear();
            value.clear();
            let topic = format!("topic-{:03}", place / shape.partitions);
            let time = T0 + self.next.cast_signed() / 100;
            let offset = OffsetValue {
                offset: self.next.cast_signed() * 3,
                leader_epoch: Some(4),
                metadata: "",
                commit_timestamp_ms: time,
                expire_timestamp_ms: None,
                topic_id: None,
            };
            let is_written = OffsetKey { group, topic: &topic, partition: (place % shape.partitions).cast_signed() }.encode(&mut key)
                && offset.encode(&mut value);
            assert!(is_written, "names are short");
            self.writer.push(self.next, time, Some(&key), Some(&value), &[])?;
            self.next += 1;
        }
        self.writer.finish(&mut self.entries)?;
        if self.entries.len() > 1 << 20 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Outcome<()> {
        if !self.entries.is_empty() {
            self.log.append_as_follower(&self.entries, Durability::Buffered)?;
            self.entries.clear();
        }
        Ok(())
    }
}
