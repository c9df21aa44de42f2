//! Loading the offset cache from logs of many shapes, beside the plain fold of the same log in the same run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keeplog_benches::{Figures, Run, T0, median};
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
        for &threads in &args.threads {
            let name = format!("{}, {threads} threads", shape.name);
            all.push(measure(&name, &logs, dir.path(), common.runs, |log, share| Ok(load::load(log, share)?.0), threads)?);
        }
        if !args.fast_only {
            let name = format!("{}, plain", shape.name);
            all.push(measure(&name, &logs, dir.path(), common.runs.min(2), |log, _| Ok(load::in_order(log)?.0), 1)?);
        }
        logs.iter().try_for_each(Log::close)?;
    }
    Ok(all)
}

type Loading = fn(&Log, usize) -> Outcome<Replay>;

fn measure(name: &str, logs: &[Log], dir: &Path, runs: u32, load: Loading, threads: usize) -> Outcome<Figures> {
    let clock = RealStorage::new();
    let mut figures = Vec::new();
    let (mut resident, mut held) = (0, 0);
    let bytes: u64 = logs.iter().map(load::size_bytes).sum();
    let (mut entries, mut cpu) = (0, Vec::new());
    for _ in 0..runs {
        Cache::Warm.prepare(dir)?;
        let before = usage::resident_bytes()?;
        let (began, cpu_began) = (clock.monotonic(), usage::processor_time()?);
        let loaded = if let [log] = logs {
            vec![load(log, threads)]
        } else {
            // So many at a time.
            let parts = logs.chunks(logs.len().div_ceil(threads)).collect();
            let load_all = |part: &[Log]| part.iter().map(|log| load(log, 1).map_err(|e| e.to_string())).collect::<Vec<_>>();
            map_each(parts, load_all).into_iter().flatten().map(|loaded| loaded.map_err(Into::into)).collect()
        };
        let time: Duration = clock.monotonic() - began;
        cpu.push((usage::processor_time()? - cpu_began).as_secs_f64());
        let loaded = loaded.into_iter().collect::<Outcome<Vec<_>>>()?;
        resident = usage::resident_bytes()?.saturating_sub(before);
        held = loaded.iter().map(|replay| replay.cache().memory_bytes() as u64).sum();
        entries = loaded.iter().map(|replay| replay.cache().len() as u64).sum();
        let records = loaded.iter().map(|replay| replay.counts().records).sum();
        figures.push(Run { time, bytes, records });
    }
    let each = |bytes: u64| (bytes as f64 / entries.max(1) as f64 * 10.0).round() / 10.0;
    let cpu_s = median(cpu.into_iter());
    let more = json!({"cpu_seconds": cpu_s, "entries": entries, "bytes_per_entry": each(held), "resident_per_entry": each(resident)});
    Ok(Figures::new(name, figures).with(more))
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
