//! Commits at full speed for a long time, with the background cleaner at work: whether disk, memory and latencies stay.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keeplog::{LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, RequiredAcks, StoreOptions};
use serde_json::{Value, json};

use crate::args::{Common, Soak};
use crate::latencies::{Latencies, Taken};
use crate::{Outcome, usage, work};

/// Partitions of one group that are committed together, in one batch.
const BATCH: u32 = 100;
/// How often the cleaner and the disk are looked at.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS_PER_DISK_LOOK: u32 = 40;

/// What writers and the observer share.
struct World {
    offsets: OffsetStore,
    groups: u32,
    stop: AtomicBool,
    /// A pass is under way.
    cleaning: AtomicBool,
    committed: AtomicU64,
    alone: Latencies,
    beside: Latencies,
}

impl World {
    /// Commits for its own groups, drawn evenly, each time with all partitions, until it is told to stop.
    fn commit(&self, writer: u32, writers: u32) -> keeplog::Result<()> {
        let names: Vec<String> = (0..self.groups).filter(|group| group % writers == writer).map(|group| format!("group-{group}")).collect();
        let mut dice = u64::from(writer);
        for number in 0_u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            // Each once, to begin with.
            let at = if number < names.len() as u64 { number } else { roll(&mut dice, names.len() as u64) };
            let all: Vec<_> = (0..BATCH.cast_signed()).map(|partition| ("topic", partition, OffsetAndMetadata::new(number))).collect();
            let is_beside = self.cleaning.load(Ordering::Relaxed);
            let began = Instant::now();
            self.offsets.commit(&names[at as usize], &all)?;
            if is_beside { &self.beside } else { &self.alone }.note(began.elapsed());
            self.committed.fetch_add(u64::from(BATCH), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The next of a row of numbers that is the same in every run.
fn roll(dice: &mut u64, below: u64) -> u64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*dice >> 33) % below
}

/// Runs for as long as asked, and prints a line for every minute.
pub(crate) fn run(args: &Soak, common: &Common) -> Outcome<()> {
    let dir = work::directory(common)?;
    let acks = if args.buffered { RequiredAcks::Written } else { RequiredAcks::Synced };
    let options = OffsetOptions::new()
        .offsets_commit_required_acks(acks)
        .offsets_topic_num_partitions(args.partitions)
        .log(LogOptions::new().segment_bytes(args.segment_mib << 20).min_cleanable_dirty_ratio(args.dirty_ratio))
        .store(StoreOptions::new().log_cleaner_threads(args.threads).yield_to_appends(args.yield_to_appends).log_cleaner_backoff_ms(1000));
    let offsets = OffsetStore::open(dir.path(), options)?;
    let groups = (args.keys / BATCH).max(args.writers);
    let world = World {
        offsets,
        groups,
        stop: AtomicBool::new(false),
        cleaning: AtomicBool::new(false),
        committed: AtomicU64::new(0),
        alone: Latencies::new(),
        beside: Latencies::new(),
    };
    let ended = thread::scope(|scope| {
        let world = &world;
        let writers: Vec<_> = (0..args.writers).map(|writer| scope.spawn(move || world.commit(writer, args.writers))).collect();
        let observed = observe(world, args, common, dir.path());
        world.stop.store(true, Ordering::Relaxed);
        let failed = writers.into_iter().find_map(|writer| match writer.join() {
            Ok(committed) => committed.err().map(|error| error.to_string()),
            Err(_) => Some("a writer panicked".to_owned()),
        });
        match failed {
            Some(error) => Err(error.into()),
            None => observed,
        }
    });
    world.offsets.close()?;
    ended
}

/// Looks at the cleaner, the disk and the memory until the time is over.
fn observe(world: &World, args: &Soak, common: &Common, dir: &std::path::Path) -> Outcome<()> {
    let began = Instant::now();
    let time = Duration::from_secs_f64(args.minutes * 60.0);
    let mut printed = began;
    let mut minute = Minute::default();
    let mut looks = 0;
    let mut bounds = Bounds::default();
    if !common.json {
        println!(
            "minute   commits/s live, MiB   x live  with pass   p50, us     beside   p99, us     beside      RSS, MiB  passes  rested, s"
        );
    }
    while began.elapsed() < time {
        thread::sleep(LOOK);
        let status = world.offsets.store().cleaner();
        world.cleaning.store(status.cleaning.is_some(), Ordering::Relaxed);
        if looks % LOOKS_PER_DISK_LOOK == 0 {
            let disk = usage::disk_bytes(dir);
            minute.used_bytes_max = minute.used_bytes_max.max(disk.used);
            minute.disk_bytes_max = minute.disk_bytes_max.max(disk.used + disk.passing);
        }
        looks += 1;
        if let Some(dead) = status.dead {
            return Err(format!("the cleaner died: {dead}").into());
        }
        let since = printed.elapsed();
        if since >= Duration::from_secs(60).min(time) || began.elapsed() >= time {
            printed = Instant::now();
            minute.end(world, since)?;
            println!("{}", if common.json { minute.json().to_string() } else { minute.line() });
            bounds.take_in(&minute);
            minute = Minute { number: minute.number, committed_before: minute.committed_before, ..Minute::default() };
        }
    }
    if args.check { bounds.check(u64::from(args.segment_mib) << 20) } else { Ok(()) }
}

/// What allocations come to that differ from one minute to the next.
const MEMORY_SLACK_BYTES: u64 = 16 << 20;

/// The most of all minutes. No time is among it.
#[derive(Default)]
struct Bounds {
    disk_bytes: u64,
    live_bytes: u64,
    first_resident_bytes: Option<u64>,
    resident_bytes: u64,
    passes: u64,
}

impl Bounds {
    fn take_in(&mut self, minute: &Minute) {
        self.disk_bytes = self.disk_bytes.max(minute.disk_bytes_max);
        self.live_bytes = minute.live_bytes;
        self.first_resident_bytes.get_or_insert(minute.resident_bytes);
        self.resident_bytes = self.resident_bytes.max(minute.resident_bytes);
        self.passes = minute.passes;
    }

    fn check(&self, segment_bytes: u64) -> Outcome<()> {
        let Self { disk_bytes, live_bytes, resident_bytes, passes, .. } = *self;
        let (disk_max, first) = (3 * live_bytes + 2 * segment_bytes, self.first_resident_bytes.unwrap_or(0));
        if disk_bytes > disk_max {
            return Err(format!("the disk held {disk_bytes} bytes where {live_bytes} are live, allowed are {disk_max}").into());
        }
        if resident_bytes > first + first / 4 + MEMORY_SLACK_BYTES {
            return Err(format!("memory grew from {first} to {resident_bytes} bytes").into());
        }
        if passes == 0 { Err("no pass came to its end".into()) } else { Ok(()) }
    }
}

/// What was seen in one minute.
#[derive(Default)]
struct Minute {
    number: u32,
    committed_before: u64,
    /// Without what a pass has not put in its place yet, and with it.
    used_bytes_max: u64,
    disk_bytes_max: u64,
    live_bytes: u64,
    commits_per_s: f64,
    latencies: [Option<[f64; 2]>; 2],
    resident_bytes: u64,
    passes: u64,
    rested_seconds: f64,
}

impl Minute {
    fn end(&mut self, world: &World, time: Duration) -> Outcome<()> {
        let committed = world.committed.load(Ordering::Relaxed);
        let status = world.offsets.store().cleaner();
        self.number += 1;
        self.commits_per_s = (committed - self.committed_before) as f64 / time.as_secs_f64();
        self.committed_before = committed;
        // The newest batch of each group; all batches are of the same size.
        self.live_bytes = u64::from(world.groups) * batch_bytes(world);
        let quantiles = |taken: &Taken| Some([taken.at_us(0.5)?, taken.at_us(0.99)?]);
        self.latencies = [quantiles(&world.alone.take()), quantiles(&world.beside.take())];
        self.resident_bytes = usage::resident_bytes()?;
        self.passes = status.passes;
        self.rested_seconds = status.rested_seconds;
        Ok(())
    }

    /// How many times the live bytes the disk holds at most, without a pass's own and with it.
    fn ratios(&self) -> [f64; 2] {
        [self.used_bytes_max, self.disk_bytes_max].map(|bytes| bytes as f64 / self.live_bytes as f64)
    }

    fn json(&self) -> Value {
        let [alone, beside] = self.latencies.map(|quantiles| quantiles.map(|[p50, p99]| json!({"p50_us": p50, "p99_us": p99})));
        json!({
            "minute": self.number,
            "commits_per_s": self.commits_per_s.round(),
            "used_bytes_max": self.used_bytes_max,
            "disk_bytes_max": self.disk_bytes_max,
            "live_bytes": self.live_bytes,
            "alone": alone,
            "beside": beside,
            "resident_bytes": self.resident_bytes,
            "passes": self.passes,
            "rested_seconds": self.rested_seconds,
        })
    }

    fn line(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let [used, disk] = self.ratios();
        let mut line = format!("{:>6} {:>11.0} {:>9.1} {used:>8.2} {disk:>10.2}", self.number, self.commits_per_s, mib(self.live_bytes));
        for which in [0, 1] {
            for quantiles in &self.latencies {
                let value = quantiles.map_or_else(|| "-".to_owned(), |quantiles| format!("{:.0}", quantiles[which]));
                let _ = write!(line, " {value:>10}");
            }
        }
        let _ = write!(line, " {:>13.1} {:>7} {:>10.1}", mib(self.resident_bytes), self.passes, self.rested_seconds);
        line
    }
}

/// Bytes of a batch on the disk: the last one of some partition, which is as large as any.
fn batch_bytes(world: &World) -> u64 {
    let logs = world.offsets.store().logs();
    let last = |log: &keeplog::Log| {
        let from = log.end_offset().checked_sub(1)?;
        let batch = log.batches_from(from).ok()?.next()?.ok()?;
        Some(u64::from(batch.header.size))
    };
    logs.iter().filter_map(last).max().unwrap_or(0)
}
