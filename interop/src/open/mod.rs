//! The other direction: what Keeplog wrote, rolled, cleaned, cut and recovered must be sound to Kafka.

mod history;
mod tools;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use keeplog::inspect::snapshot;
use keeplog::{Log, LogOptions};
use serde::Deserialize;

use crate::directory::{self, PARTITION, base_offset, describe};
use crate::dump::{self, Batch, Exactness};
use crate::many::{self, Task};
use crate::oracle::Oracle;
use crate::tally::Tally;
use history::{Ends, Left, T0};

/// Seeds for one process of Kafka's.
const BATCH_SEEDS: u64 = 100;
/// The oracle's clock when it opens a log, ms.
const NOW_MS: i64 = T0 + 1000;
/// What the oracle opens logs with: the broker's defaults.
const KAFKA_INDEX_INTERVAL_BYTES: u32 = 4096;

/// What an open came to. The names are those of the oracle's answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Opened {
    log_start_offset: u64,
    log_end_offset: u64,
    last_stable_offset: u64,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Segment {
    base: u64,
    bytes: u64,
}

impl Opened {
    /// With the last stable offset moved up to where the next batch begins: which of the offsets in a gap is named says nothing.
    fn at_batch(&self, batches: &[Batch]) -> Self {
        let next = batches.iter().find(|batch| batch.last >= self.last_stable_offset).map_or(0, |batch| batch.base);
        Self { last_stable_offset: self.last_stable_offset.max(next), ..self.clone() }
    }
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offsets {}..{}, stable below {}, segments", self.log_start_offset, self.log_end_offset, self.last_stable_offset)?;
        self.segments.iter().try_for_each(|segment| write!(f, " {}+{}", segment.base, segment.bytes))
    }
}

/// One way to open what a history has left, by Kafka and by Keeplog, each on a copy of its own.
struct Trial {
    what: &'static str,
    recovery_point: u64,
    clean: bool,
    kafka_dir: PathBuf,
    our_dir: PathBuf,
    ours: Opened,
}

/// A log of one seed with its trials.
struct Judged {
    seed: u64,
    left: Left,
    trials: Vec<Trial>,
    found: Vec<String>,
    /// What Kafka dumps: a directory that we left, and where its dump goes.
    dumped: PathBuf,
    dump: PathBuf,
}

impl Judged {
    /// The directories that Keeplog has closed.
    fn our_dirs(&self) -> impl Iterator<Item = &Path> {
        let left = Some(&*self.left.dir).filter(|_| self.left.clean);
        self.trials.iter().map(|trial| &*trial.our_dir).chain(left)
    }
}

/// The histories of `seeds`.
pub(crate) fn run(oracle: &Oracle, seeds: Range<u64>, keep: Option<&Path>) -> Result<()> {
    let mut tally = Tally::new("open");
    let mut from = seeds.start;
    while from < seeds.end {
        let to = seeds.end.min(from + BATCH_SEEDS);
        let root = tempfile::tempdir()?;
        let mut logs = Vec::new();
        for seed in from..to {
            let root = root.path().join(seed.to_string());
            match prepare(seed, &root) {
                Ok(judged) => logs.push(judged),
                Err(error) => _ = tally.judge(&format!("seed {seed}"), &[format!("{error:#}")]),
            }
        }
        ask_kafka(oracle, &mut logs)?;
        for log in logs {
            if !tally.judge(&format!("seed {}", log.seed), &log.found)
                && let Some(keep) = keep
            {
                directory::copy_tree(&root.path().join(log.seed.to_string()), &keep.join(log.seed.to_string()))?;
            }
        }
        from = to;
    }
    tally.finish(&format!("logs of seeds {}..{}", seeds.start, seeds.end))
}

/// Writes the log of a seed and opens copies of it.
fn prepare(seed: u64, root: &Path) -> Result<Judged> {
    let left = history::write(seed, root)?;
    let found = check_ends(&left, &root.join("again"))?;
    let mut trials = Vec::new();
    for (what, recovery_point, clean) in [("opened as it was left", left.recovery_point, left.clean), ("opened from 0", 0, false)] {
        let name = what.replace(' ', "-");
        let kafka_dir = root.join(format!("{name}-by-kafka")).join(PARTITION);
        directory::copy(&left.dir, &kafka_dir)?;
        let our_dir = directory::data_dir(&root.join(format!("{name}-by-us")), &left.dir, clean, recovery_point)?;
        if !clean {
            drop_snapshots(&kafka_dir, recovery_point)?;
            drop_snapshots(&our_dir, recovery_point)?;
        }
        let settings = left.options.clone().index_interval_bytes(KAFKA_INDEX_INTERVAL_BYTES).segment_index_bytes(10 << 20);
        let ours = open(&our_dir, settings).with_context(|| what.to_owned())?;
        trials.push(Trial { what, recovery_point, clean, kafka_dir, our_dir, ours });
    }
    // What lies behind a torn end is for recovery only.
    let dumped = if left.torn { trials[1].our_dir.clone() } else { left.dir.clone() };
    Ok(Judged { seed, left, trials, found, dumped, dump: root.join("kafka.jsonl") })
}

/// Opened again, the log ends and is stable where it did when it was left.
fn check_ends(left: &Left, root: &Path) -> Result<Vec<String>> {
    let dir = directory::data_dir(root, &left.dir, left.clean, left.recovery_point)?;
    let opened = open(&dir, left.options.clone())?;
    // The copy has no checkpoint of the start, so it starts at its first segment.
    let again = Ends::new(left.start_offset, opened.log_end_offset, opened.last_stable_offset);
    let differs = left.ends.is_some_and(|ends| !ends.allow(again));
    Ok(differs.then(|| format!("opened again, it has {again:?} after {:?}", left.ends)).into_iter().collect())
}

/// Removes the snapshots that Kafka removes before it rebuilds the state of producers after an unclean stop: those above the segment that it
/// scans first, and those not above the start of the log. With them it forgets producers that no batch is left of (retention took the
/// last); we keep what is known of them, so without this the outcomes would rightly differ.
fn drop_snapshots(dir: &Path, recovery_point: u64) -> Result<()> {
    let bases = dump::names(dir, &["log"])?.iter().map(|name| base_offset(name)).collect::<Result<Vec<_>>>()?;
    let first = bases.first().copied().unwrap_or(0);
    let scanned = bases.iter().rfind(|base| **base <= recovery_point).copied().unwrap_or(first);
    for name in dump::names(dir, &["snapshot"])? {
        let number = base_offset(&name)?;
        if number <= first || number > scanned {
            fs::remove_file(dir.join(name))?;
        }
    }
    Ok(())
}

/// Opens a log of ours, closes it, and says what it came to.
fn open(dir: &Path, options: LogOptions) -> Result<Opened> {
    let log = directory::open(dir, NOW_MS, options)?;
    let report = log.recovery_report();
    anyhow::ensure!(report.damage.is_empty(), "damage: {report}");
    let opened = opened(&log);
    log.close().map_err(describe)?;
    Ok(opened)
}

fn opened(log: &Log) -> Opened {
    let segments = log.segments();
    let segments = segments.all().iter().map(|s| Segment { base: s.base_offset(), bytes: s.size_bytes() }).collect();
    Opened {
        log_start_offset: log.start_offset(),
        log_end_offset: log.end_offset(),
        last_stable_offset: log.last_stable_offset(),
        segments,
    }
}

fn ask_kafka(oracle: &Oracle, logs: &mut [Judged]) -> Result<()> {
    let mut tasks = Vec::new();
    for log in &*logs {
        tasks.push(Task::Dump { dir: log.dumped.clone(), out: log.dump.clone() });
        for trial in &log.trials {
            tasks.push(Task::Open { dir: trial.kafka_dir.clone(), recovery_point: trial.recovery_point, clean: trial.clean });
        }
    }
    let mut answers = many::run(oracle, &tasks)?.into_iter();
    for log in &mut *logs {
        answers.next();
        let theirs = dump::read(&log.dump)?;
        log.found.extend(dump::compare(&dump::directory(&log.dumped)?, &theirs, |_| Exactness::Full));
        for trial in &log.trials {
            let answer = answers.next().context("an answer is missing")?;
            let found = compare_trial(trial, &answer)?;
            log.found.extend(found.into_iter().map(|difference| format!("{}: {difference}", trial.what)));
        }
    }
    check_files(oracle, logs)
}

/// The same offsets and segments, and the same state left behind.
fn compare_trial(trial: &Trial, answer: &str) -> Result<Vec<String>> {
    let Ok(theirs) = serde_json::from_str::<Opened>(answer) else { return Ok(vec![format!("Kafka says {answer}")]) };
    let mut found = Vec::new();
    let batches = dump::directory(&trial.our_dir)?;
    if trial.ours.at_batch(&batches) != theirs.at_batch(&batches) {
        found.push(format!("{}, in Kafka {theirs}", trial.ours));
    }
    let snapshot = format!("{:020}.snapshot", theirs.log_end_offset);
    let producers = |dir: &Path| producers(&dir.join(&snapshot));
    let (ours, theirs) = (producers(&trial.our_dir)?, producers(&trial.kafka_dir)?);
    found.extend(ours.difference(&theirs).map(|producer| format!("Kafka does not have {producer}")));
    found.extend(theirs.difference(&ours).map(|producer| format!("Kafka has {producer}")));
    let epochs = |dir: &Path| fs::read_to_string(dir.join("leader-epoch-checkpoint")).unwrap_or_default();
    let (ours, theirs) = (epochs(&trial.our_dir), epochs(&trial.kafka_dir));
    if ours != theirs {
        found.push(format!("leader epochs are {ours:?}, in Kafka {theirs:?}"));
    }
    found.extend(compare_indexes(trial)?);
    Ok(found)
}

/// After a full scan the indexes are those that Kafka's recovery makes.
fn compare_indexes(trial: &Trial) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if trial.recovery_point > 0 || trial.clean {
        return Ok(found);
    }
    for name in dump::names(&trial.kafka_dir, &["index", "timeindex", "txnindex"])? {
        let ours = fs::read(trial.our_dir.join(&name)).unwrap_or_default();
        let theirs = fs::read(trial.kafka_dir.join(&name))?;
        if ours != theirs {
            found.push(format!("{name} has {} bytes, Kafka's {}", ours.len(), theirs.len()));
        }
    }
    Ok(found)
}

/// The entries of a snapshot file, whose order says nothing.
fn producers(path: &Path) -> Result<BTreeSet<String>> {
    let bytes = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(snapshot::parse(&bytes)?.iter().map(|producer| format!("{producer:?}")).collect())
}

/// Kafka's own tool over the indexes and snapshots that we left.
fn check_files(oracle: &Oracle, logs: &mut [Judged]) -> Result<()> {
    let dirs: Vec<&Path> = logs.iter().flat_map(Judged::our_dirs).collect();
    let found = tools::check(oracle, &dirs)?;
    for log in logs {
        for dir in log.our_dirs().map(Path::to_owned).collect::<Vec<_>>() {
            let of_dir = found.iter().filter(|(file, _)| file.parent() == Some(&dir));
            log.found.extend(of_dir.flat_map(|(file, what)| what.iter().map(move |what| format!("{}: {what}", file.display()))));
        }
    }
    Ok(())
}
