//! A broker's load of its offsets partitions beside ours, from the same files in the same minutes: time and memory of both.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use keeplog::inspect::offsets::load::load;
use keeplog::{OffsetOptions, OffsetStore, StoreOptions};
use serde::{Deserialize, Serialize};

use super::live::{Broker, TransactionVersion};
use super::{PARTITIONS, groups::DAY_MS, ours::Ours};
use crate::kafka::Kafka;

/// As `kafka-server-start.sh` runs a broker, with some more room.
const JAVA_OPTIONS: [&str; 4] = ["-Xms1g", "-Xmx4g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"];
/// Kafka's own default; and nothing is cleaned away.
const SETTINGS: [&str; 2] = ["offsets.topic.segment.bytes=104857600", "log.cleaner.enable=false"];
/// What a broker says when it has loaded a partition.
const LOADED: &str = "Finished loading of metadata from __consumer_offsets-";
const WAITS: u32 = 1200;
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct Arguments {
    /// Groups that commit.
    #[arg(long, default_value_t = 2000)]
    groups: u64,
    /// Partitions that each of them commits for.
    #[arg(long, default_value_t = 50)]
    partitions: u64,
    /// Times that they do.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Loads of each side, in turns.
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// One load.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Load {
    records: u64,
    seconds: f64,
    /// What the process has more than before: of a broker what its heap holds after a collection, of Keeplog all anonymous memory.
    held_bytes: u64,
    /// Its resident set, all of it.
    resident_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    groups: u64,
    keys: u64,
    log_bytes: u64,
    cores: usize,
    kafka: Load,
    keeplog: Load,
    keeplog_one_thread: Load,
    times_as_fast: f64,
    times_as_fast_one_thread: f64,
    share_of_memory: f64,
}

/// Prints a table and a line of JSON.
pub(crate) fn run(kafka: &Kafka, arguments: &Arguments) -> Result<()> {
    let work = tempfile::tempdir()?;
    let mut broker = Broker::new(kafka, work.path().join("broker"), TransactionVersion(2))?.run_by(&JAVA_OPTIONS);
    broker.set(&SETTINGS)?;
    broker.start()?;
    broker.bulk(1, arguments.partitions, 1)?;
    broker.stop()?;
    let idle = broker_load(&mut broker)?;
    let began = Instant::now();
    broker.bulk(arguments.groups, arguments.partitions, arguments.rounds)?;
    broker.stop()?;
    eprintln!("load: filled in {:.0} s", began.elapsed().as_secs_f64());

    let copy = work.path().join("copy");
    Ours::over_copy(&broker.dir, &copy, DAY_MS)?.close()?;
    let (mut kafkas, mut ours, mut ours_alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.runs.max(1) {
        ours.push(in_a_process(&copy, 0)?);
        let mut loaded = broker_load(&mut broker)?;
        broker.stop()?;
        loaded.held_bytes = loaded.held_bytes.saturating_sub(idle.held_bytes).max(1);
        kafkas.push(loaded);
        ours_alone.push(in_a_process(&copy, 1)?);
        eprintln!("load: {:?}, {:?}, {:?}", kafkas.last(), ours.last(), ours_alone.last());
    }
    let (kafka, keeplog, keeplog_one_thread) = (median(kafkas), median(ours), median(ours_alone));
    ensure!(kafka.records == keeplog.records, "a broker loads {} records, Keeplog {}", kafka.records, keeplog.records);
    let report = Report {
        groups: arguments.groups,
        keys: arguments.groups * arguments.partitions,
        log_bytes: log_bytes(&copy)?,
        cores: thread::available_parallelism()?.get(),
        kafka,
        keeplog,
        keeplog_one_thread,
        times_as_fast: kafka.seconds / keeplog.seconds,
        times_as_fast_one_thread: kafka.seconds / keeplog_one_thread.seconds,
        share_of_memory: keeplog.held_bytes as f64 / kafka.held_bytes as f64,
    };
    print!("{}", table(&report));
    println!("\n{}", serde_json::to_string(&report)?);
    Ok(())
}

fn table(report: &Report) -> String {
    let Report { keys, log_bytes, cores, kafka, .. } = report;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut text = format!(
        "{} records of {keys} keys, {:.0} MiB in {PARTITIONS} partitions, {cores} cores; medians, of memory the least:\n\n\
         | | Time | Records/s | Holds | Resident set |\n|---|---|---|---|---|\n",
        kafka.records,
        mib(*log_bytes)
    );
    let rows = [("Kafka's broker", kafka), ("Keeplog", &report.keeplog), ("Keeplog, one thread", &report.keeplog_one_thread)];
    for (name, load) in rows {
        let (rate, held, resident) = (load.records as f64 / load.seconds, mib(load.held_bytes), mib(load.resident_bytes));
        text.push_str(&format!("| {name} | {:.3} s | {rate:.0} | {held:.1} MiB | {resident:.1} MiB |\n", load.seconds));
    }
    text.push_str(&format!(
        "\n{:.1} times as fast ({:.1} on one thread), in 1/{:.1} of the memory\n",
        report.times_as_fast,
        report.times_as_fast_one_thread,
        1.0 / report.share_of_memory
    ));
    text
}

/// Starts the broker and waits until it has loaded all partitions. A load's time has its wait for the others in it: the longest is that
/// of all.
fn broker_load(broker: &mut Broker<'_>) -> Result<Load> {
    broker.start()?;
    for _ in 0..WAITS {
        let log = broker.log()?;
        let loads = log.lines().filter_map(loaded).collect::<Result<Vec<_>>>()?;
        if loads.len() == PARTITIONS as usize {
            let pid = broker.pid()?;
            let millis = loads.iter().map(|(millis, _)| *millis).max().unwrap_or(0);
            let records = loads.iter().map(|(_, records)| records).sum();
            let held_bytes = heap_bytes(pid)?;
            let resident_bytes = status_bytes(&format!("/proc/{pid}/status"), "VmRSS:")?;
            return Ok(Load { records, seconds: millis as f64 / 1000.0, held_bytes, resident_bytes });
        }
        thread::sleep(PAUSE);
    }
    bail!("the broker does not load its offsets partitions")
}

/// Time in ms, and number of records.
fn loaded(line: &str) -> Option<Result<(u64, u64)>> {
    let said = line.split_once(LOADED)?.1;
    let number = |before: &str, after: &str| -> Result<u64> {
        let number = said.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        number.and_then(|(number, _)| number.parse().ok()).with_context(|| format!("the broker says {line}"))
    };
    Some(number(" in ", "ms").and_then(|millis| Ok((millis, number("Loaded ", " records")?))))
}

/// What a Java process holds: its heap after a collection.
fn heap_bytes(pid: u32) -> Result<u64> {
    let jcmd = |what: &str| -> Result<String> {
        let output = Command::new("jcmd").args([&pid.to_string(), what]).output().context("could not run jcmd")?;
        ensure!(output.status.success(), "jcmd {what} ended with {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // What the first has finalized goes with the second.
    jcmd("GC.run")?;
    jcmd("GC.run")?;
    let info = jcmd("GC.heap_info")?;
    let used = info.split_once("used ").and_then(|(_, rest)| rest.split_once('K')).and_then(|(kib, _)| kib.parse::<u64>().ok());
    Ok(used.with_context(|| format!("jcmd says {info}"))? << 10)
}

fn status_bytes(path: &str, field: &str) -> Result<u64> {
    let status = fs::read_to_string(path).with_context(|| format!("could not read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field} in {path}"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{field}{line} in {path}"))?;
    Ok(kib << 10)
}

/// Loads the store in `dir` in a process of its own, so that its memory is nobody else's.
fn in_a_process(dir: &Path, threads: usize) -> Result<Load> {
    let output = Command::new(std::env::current_exe()?).arg("load-once").arg(dir).arg(threads.to_string()).output()?;
    ensure!(output.status.success(), "a load ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Loads the store in `dir` and prints what it took. With 0 threads as an offset store does, else partition after partition by so many.
pub(crate) fn once(dir: &Path, threads: usize) -> Result<()> {
    const SELF: &str = "/proc/self/status";
    let options = OffsetOptions::new().snapshots(false).lead_all(threads == 0).store(StoreOptions::new().log_cleaner_enable(false));
    let before = status_bytes(SELF, "RssAnon:")?;
    let store = OffsetStore::open(dir, options)?;
    let (mut records, mut seconds, mut kept) = (0, 0.0, Vec::new());
    if threads == 0 {
        let report = store.load_report();
        (records, seconds) = (report.records, report.seconds);
    } else {
        for log in store.store().logs() {
            let began = Instant::now();
            let (replay, report) = load(&log, threads)?;
            seconds += began.elapsed().as_secs_f64();
            records += report.records;
            kept.push(replay);
        }
    }
    let held_bytes = status_bytes(SELF, "RssAnon:")?.saturating_sub(before);
    let resident_bytes = status_bytes(SELF, "VmRSS:")?;
    println!("{}", serde_json::to_string(&Load { records, seconds, held_bytes, resident_bytes })?);
    drop(kept);
    Ok(store.close()?)
}

/// Of time; of memory the least, as more than what is needed may be there at any time.
fn median(mut loads: Vec<Load>) -> Load {
    loads.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let least = |bytes: fn(&Load) -> u64| loads.iter().map(bytes).min().unwrap_or(0);
    Load { held_bytes: least(|load| load.held_bytes), resident_bytes: least(|load| load.resident_bytes), ..loads[loads.len() / 2] }
}

fn log_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for partition in 0..PARTITIONS {
        for entry in fs::read_dir(dir.join(format!("{}-{partition}", keeplog::CONSUMER_OFFSETS)))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                bytes += fs::metadata(path)?.len();
            }
        }
    }
    Ok(bytes)
}
