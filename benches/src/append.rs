//! Appends to one log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keeplog_benches::{Figures, Generator, Run, Shape, key, median};
use keeplog_engine::record::Record;
use keeplog_engine::{Durability, Log};
use serde_json::json;

use crate::args::{Append, Common};
use crate::{Outcome, work};

/// Different batches that each writer has ready.
const BATCHES: usize = 256;

/// Buffered and synced appends, for each number of writers.
pub(crate) fn run(args: &Append, common: &Common) -> Outcome<Vec<Figures>> {
    let mut all = Vec::new();
    for durability in [Durability::Buffered, Durability::Synced] {
        for &writers in &args.writers {
            let mut latencies = Vec::new();
            let mut runs = Vec::new();
            for _ in 0..common.runs {
                let (run, mut waits) = once(args, common, durability, writers)?;
                runs.push(run);
                latencies.append(&mut waits);
            }
            let name = format!("append {durability:?}, {writers} writer{}", if writers == 1 { "" } else { "s" }).to_lowercase();
            let appends = |run: &Run| run.records_per_s() / f64::from(args.shape.shape().records_per_batch);
            let appends_per_s = median(runs.iter().map(appends));
            latencies.sort_unstable();
            let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).map_or(0.0, |wait| wait.as_secs_f64() * 1e6);
            all.push(Figures::new(name, runs).with(json!({
                "appends_per_s": appends_per_s.round(),
                "p50_us": at(0.5).round(),
                "p99_us": at(0.99).round(),
            })));
        }
    }
    Ok(all)
}

fn once(args: &Append, common: &Common, durability: Durability, writers: usize) -> Outcome<(Run, Vec<Duration>)> {
    let dir = work::directory(common)?;
    let shape = args.shape.shape();
    let log = Log::open(dir.path().join("bench-0"), shape.log_options())?;
    let batches: Vec<Vec<Vec<Record>>> = (0..writers).map(|_| ready(shape)).collect();
    work::settle()?;

    let target = shape.mib << 20;
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let batch_bytes = u64::from(shape.records_per_batch) * (25 + shape.value_bytes as u64) + 61;
    let clock = log.storage();
    let began = clock.monotonic();
    let deadline = began + Duration::from_secs_f64(args.seconds);
    let write = |batches: &[Vec<Record>]| -> keeplog_engine::Result<Vec<Duration>> {
        let mut waits = Vec::new();
        for batch in batches.iter().cycle() {
            let before = clock.monotonic();
            if stop.load(Ordering::Relaxed) || before >= deadline || written.fetch_add(batch_bytes, Ordering::Relaxed) >= target {
                break;
            }
            log.append(batch, durability)?;
            waits.push(clock.monotonic() - before);
        }
        Ok(waits)
    };
    let waits = std::thread::scope(|scope| {
        let threads: Vec<_> = batches.iter().map(|batches| scope.spawn(|| write(batches))).collect();
        let mut all = Vec::new();
        let mut failed = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(mut waits)) => all.append(&mut waits),
                Ok(Err(error)) => failed = Some(error.to_string()),
                Err(_) => failed = Some("a writer panicked".to_owned()),
            }
            if failed.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        failed.map_or(Ok(all), Err)
    })?;
    let time = clock.monotonic() - began;
    let bytes = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
    let records = log.end_offset();
    log.close()?;
    Ok((Run { time, bytes, records }, waits))
}

/// Batches to append again and again.
pub(crate) fn ready(shape: Shape) -> Vec<Vec<Record>> {
    let mut generator = Generator::new(shape);
    let mut record = || {
        let key = key(generator.key_number());
        Record::new(key, generator.next_value().to_vec())
    };
    (0..BATCHES).map(|_| (0..shape.records_per_batch).map(|_| record()).collect()).collect()
}
