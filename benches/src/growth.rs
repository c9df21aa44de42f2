//! How time and memory grow: with the size of a log, with the number of its keys, and with the number of logs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use keeplog_benches::report::{Cell, Chart, Column, Places, Report, Series, Table, Taken};
use keeplog_benches::{Generator, Shape, median};
use keeplog_engine::record::Codec;
use keeplog_engine::storage::RealStorage;
use keeplog_engine::{DataDir, Durability, Log, LogOptions, TopicPartition};
use nix::sys::statvfs::statvfs;
use serde_json::json;

use crate::args::{Axis, Common, Growth};
use crate::cache::{self, Cache};
use crate::process::{self, Ran};
use crate::survivors::Survivors;
use crate::table::{compact, threads_of};
use crate::{Outcome, work};

const ABOUT: &str = "`keeplog compact` as a whole process over logs that grow: in bytes, in keys, in number. Each log is made, cleaned \
once with a warm page cache, checked, and removed. Time is linear where what it takes a unit stays as it is.";

const COMMITS: Shape =
    Shape { mib: 256, keys: 800_000, records_per_batch: 1, value_bytes: 24, codec: Codec::None, segment_mib: 10, transactions: false };
/// Of a record of the logs that grow in keys, in a large batch.
const RECORD_BYTES: u64 = 57;
/// How often a key occurs in them, on average.
const RECORDS_PER_KEY: u64 = 2;
/// Segments, and the whole, of each of many logs.
const SMALL_SEGMENT_BYTES: u32 = 64 << 10;
const SMALL_LOG_BYTES: u64 = 192 << 10;

/// A place on an axis.
struct Place {
    /// How many of what the axis counts: MiB, keys or logs.
    count: u64,
    /// Bytes of all logs.
    bytes: u64,
    /// By number of threads.
    runs: Vec<(u16, Vec<Ran>)>,
}

/// Measures all axes that are asked for.
pub(crate) fn run(args: &Growth, common: &Common) -> Outcome<Report> {
    let keeplog = process::keeplog(args.keeplog.as_deref())?;
    let mut report = Report::new("growth", "Growth of time and memory", ABOUT, Taken::now());
    let wants = |axis: Axis| args.only.is_empty() || args.only.contains(&axis);
    if wants(Axis::Size) {
        let most = match args.max_mib {
            Some(mib) => mib,
            None => comfortable_mib(common)?,
        };
        let places = places(halvings(most, 256), args, |mib, threads| {
            let shape = Shape { mib, keys: COMMITS.keys.min(u32::try_from(mib * 800)?), ..COMMITS };
            one_log(shape, threads, &keeplog, args, common)
        })?;
        let unit = Unit { axis: "MiB", one: "MB", count: |place| place.bytes as f64 / 1e6, takes_memory: false };
        add(&mut report, "With the size of a log, 1 record a batch, 24 B values, 800,000 keys at most", &unit, &places);
    }
    if wants(Axis::Keys) {
        let places = places(steps(100_000, args.max_keys.into()), args, |keys, threads| {
            let mib = ((keys * RECORDS_PER_KEY * RECORD_BYTES) >> 20).max(1);
            let shape = Shape { mib, keys: u32::try_from(keys)?, records_per_batch: 100, ..COMMITS };
            one_log(shape, threads, &keeplog, args, common)
        })?;
        let unit = Unit { axis: "keys", one: "key", count: |place| place.count as f64, takes_memory: true };
        add(&mut report, "With the number of keys, each twice on average, 100 records a batch, 24 B values", &unit, &places);
    }
    if wants(Axis::Logs) {
        let places = places(steps(10, args.max_logs), args, |logs, threads| many_logs(logs, threads, &keeplog, common))?;
        let unit = Unit { axis: "logs", one: "log", count: |place| place.count as f64, takes_memory: false };
        add(&mut report, "With the number of logs, of 192 KiB each", &unit, &places);
    }
    Ok(report)
}

/// A run for each place and number of threads, as often as asked for.
fn places(counts: Vec<u64>, args: &Growth, run: impl Fn(u64, u16) -> Outcome<(u64, Vec<Ran>)>) -> Outcome<Vec<Place>> {
    let mut all = Vec::new();
    for count in counts {
        let mut place = Place { count, bytes: 0, runs: Vec::new() };
        for &threads in &args.threads {
            let (bytes, runs) = run(count, threads)?;
            place.bytes = bytes;
            place.runs.push((threads, runs));
        }
        all.push(place);
    }
    Ok(all)
}

/// The largest log that leaves two thirds of the free disk alone, but at most 16 GiB.
fn comfortable_mib(common: &Common) -> Outcome<u64> {
    let dir = common.dir.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&dir)?;
    let disk = statvfs(&dir)?;
    let free_mib = (disk.blocks_available() * disk.fragment_size()) >> 20;
    Ok([16, 8, 4, 2, 1].into_iter().map(|gib| gib << 10).find(|mib| *mib <= free_mib / 3).unwrap_or(256))
}

/// `most` and its halves, down to `least`, rising; at least two, so that there is something to compare.
fn halvings(most: u64, least: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..).map(|shift| most >> shift).take_while(|count| *count >= least.max(1)).collect();
    while all.len() < 2 && most >> all.len() > 0 {
        all.push(most >> all.len());
    }
    all.reverse();
    all
}

/// 1, 2 and 5 times the powers of ten from `first` on, up to `most`; or, if that is less, halves of it.
fn steps(first: u64, most: u64) -> Vec<u64> {
    let all: Vec<u64> =
        (0..12).flat_map(|power| [1, 2, 5].map(|step| step * first * 10_u64.pow(power))).take_while(|n| *n <= most).collect();
    if all.len() < 2 { halvings(most, most) } else { all }
}

fn one_log(shape: Shape, threads: u16, keeplog: &Path, args: &Growth, common: &Common) -> Outcome<(u64, Vec<Ran>)> {
    let (mut bytes, mut runs) = (0, Vec::new());
    for _ in 0..common.runs {
        let dir = work::directory(common)?;
        let path = dir.path().join("bench-0");
        let log = Log::open(&path, shape.log_options())?;
        shape.write(&log)?;
        let survivors = args.check.then(|| Survivors::of(&log, shape)).transpose()?;
        bytes = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
        log.close()?;
        eprintln!("{} MiB, {} keys, {}", shape.mib, shape.keys, threads_of(threads));
        Cache::Warm.prepare(dir.path())?;
        runs.push(compact(keeplog, &path, threads, shape.segment_mib)?);
        if let Some(survivors) = survivors {
            let log = Log::open(&path, shape.log_options())?;
            survivors.check(&log)?;
            log.close()?;
        }
    }
    Ok((bytes, runs))
}

/// Many small logs under one directory, cleaned by one process.
fn many_logs(logs: u64, threads: u16, keeplog: &Path, common: &Common) -> Outcome<(u64, Vec<Ran>)> {
    let (mut bytes, mut runs) = (0, Vec::new());
    for _ in 0..common.runs {
        let dir = work::directory(common)?;
        let data_dir = Arc::new(DataDir::open_or_create(Arc::new(RealStorage::new()), dir.path())?);
        for number in 0..logs {
            write_small(&data_dir, u32::try_from(number)?)?;
        }
        data_dir.close()?;
        drop(data_dir);
        bytes = cache::bytes(&cache::files(dir.path())?)?;
        eprintln!("{logs} logs, {}", threads_of(threads));
        Cache::Warm.prepare(dir.path())?;
        let ran = compact(keeplog, dir.path(), threads, 1)?;
        let cleaned = ran.json()?.len() as u64;
        if cleaned != logs {
            return Err(format!("{cleaned} of {logs} logs were cleaned").into());
        }
        runs.push(ran);
    }
    Ok((bytes, runs))
}

fn write_small(data_dir: &Arc<DataDir>, number: u32) -> Outcome<()> {
    let options = LogOptions::new().segment_bytes(SMALL_SEGMENT_BYTES);
    let log = Log::open_in(data_dir, &TopicPartition::new("bench", number)?, options)?;
    let mut generator = Generator::new(Shape { keys: 500, records_per_batch: 10, ..COMMITS });
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < SMALL_LOG_BYTES {
        batch.clear();
        // invariant: ten small records fit into a batch
        generator.batch(&mut batch).expect("a batch of ten small records can't be written");
        bytes += batch.len() as u64;
        log.append_as_follower(&batch, Durability::Buffered)?;
    }
    log.roll()?;
    Ok(log.close()?)
}

/// What an axis counts.
struct Unit {
    /// Many of them, as the axis is called.
    axis: &'static str,
    /// One of them, in columns of what it costs.
    one: &'static str,
    /// How many there are at a place.
    count: fn(&Place) -> f64,
    /// Whether memory may grow with them; it must not with others.
    takes_memory: bool,
}

/// Adds a table and two charts: time and memory, along an axis.
fn add(report: &mut Report, title: &str, unit: &Unit, places: &[Place]) {
    let mut columns = vec![Column::number(unit.axis, 0), Column::number("MB", 0)];
    let kinds: Vec<u16> = places.first().map(|place| place.runs.iter().map(|(threads, _)| *threads).collect()).unwrap_or_default();
    for &threads in &kinds {
        let mut number = |what: &str, digits| columns.push(Column::number(format!("{}: {what}", threads_of(threads)), digits));
        number("s", 3);
        number(&format!("us a {}", unit.one), 2);
        number("peak, MiB", 1);
        if unit.takes_memory {
            number(&format!("peak bytes a {}", unit.one), 1);
        }
    }
    let seconds = |runs: &[Ran]| median(runs.iter().map(|ran| ran.seconds));
    let peak = |runs: &[Ran]| median(runs.iter().map(|ran| ran.peak_bytes as f64));
    let row = |place: &Place| {
        let mut row = vec![Cell::Number(place.count as f64), Cell::Number(place.bytes as f64 / 1e6)];
        for (_, runs) in &place.runs {
            row.push(Some(seconds(runs)).into());
            row.push(Some(seconds(runs) * 1e6 / (unit.count)(place)).into());
            row.push(Some(peak(runs) / f64::from(1 << 20)).into());
            if unit.takes_memory {
                row.push(Some(peak(runs) / (unit.count)(place)).into());
            }
        }
        row
    };
    report.tables.push(Table { title: title.to_owned(), columns, rows: places.iter().map(row).collect() });
    let at: Vec<f64> = places.iter().map(|place| place.count as f64).collect();
    let mut chart = |what: &str, value: &dyn Fn(&[Ran]) -> f64| {
        let series = kinds.iter().enumerate().map(|(kind, &threads)| Series {
            name: threads_of(threads),
            values: places.iter().map(|place| Some(value(&place.runs[kind].1))).collect(),
        });
        let along = Places::Along { axis: unit.axis.to_owned(), at: at.clone() };
        report.charts.push(Chart { title: format!("{what} by {}", unit.axis), places: along, series: series.collect() });
    };
    chart("Seconds", &seconds);
    chart("Peak memory, MiB,", &|runs| peak(runs) / f64::from(1 << 20));
    for place in places {
        for (threads, runs) in &place.runs {
            let runs: Vec<_> = runs.iter().map(Ran::figures).collect();
            report.runs.push(json!({"axis": unit.axis, "count": place.count, "bytes": place.bytes, "threads": threads, "runs": runs}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_halves_of_the_largest() {
        assert_eq!(halvings(2048, 256), [256, 512, 1024, 2048]);
        assert_eq!(halvings(4, 256), [2, 4]);
        assert_eq!(halvings(1, 256), [1]);
    }

    #[test]
    fn counts_rise_to_the_most() {
        assert_eq!(steps(100_000, 1_000_000), [100_000, 200_000, 500_000, 1_000_000]);
        assert_eq!(steps(10, 10_000).len(), 10);
        assert_eq!(steps(100_000, 2000), [1000, 2000]);
    }
}
