//! The other direction: what Keeplog wrote, rolled, cleaned, cut and recovered must be sound to Kafka.

mod history;
mod tools;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use keeplog::inspect::snapshot;
use keeplog::{Log, LogOptions};
use serde::Deserialize;

use crate::clean::dump_by_kafka;
use crate::directory::{self, PARTITION, base_offset, describe};
use crate::dump::{self, Batch, Exactness};
use crate::kafka::Kafka;
use crate::tally::{Row, Tally};
use crate::workers::{self, Case};
use crate::{Seeds, keeping};
use history::{Ends, Left, T0};

/// The clock when a log is opened, ms.
const NOW_MS: i64 = T0 + 1000;
/// What Kafka opens logs with: the broker's defaults.
const KAFKA_INDEX_INTERVAL_BYTES: u32 = 4096;

/// What an open came to. The names are those of Kafka's answer.
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
    left: Left,
    trials: Vec<Trial>,
    /// What Kafka dumps: a directory that we left.
    dumped: PathBuf,
}

impl Judged {
    /// The directories that Keeplog has closed.
    fn our_dirs(&self) -> Vec<&Path> {
        let left = Some(&*self.left.dir).filter(|_| self.left.clean);
        self.trials.iter().map(|trial| &*trial.our_dir).chain(left).collect()
    }
}

/// The histories of the seeds.
pub(crate) fn run(kafka: &Kafka, seeds: &Seeds) -> Row {
    let mut tally = Tally::new("open");
    workers::each(&seeds.range, seeds.jobs, &mut tally, |seed| {
        keeping(seeds, "open", seed, |root| Ok(vec![Case::new("", judge(kafka, seed, root)?)]))
    });
    tally.finish(&format!("histories {seeds} that Keeplog wrote"))
}

fn judge(kafka: &Kafka, seed: u64, root: &Path) -> Result<Vec<String>> {
    let judged = prepare(seed, root)?;
    let mut found = check_ends(&judged.left, &root.join("again"))?;
    let theirs = dump_by_kafka(kafka, &judged.dumped, &root.join("kafka.jsonl"))?;
    found.extend(dump::compare(&dump::directory(&judged.dumped)?, &theirs, |_| Exactness::Full));
    for trial in &judged.trials {
        let answer: serde_json::Value = kafka.ask(
            "recover",
            &[
                ("dir", &trial.kafka_dir.display()),
                ("now", &NOW_MS),
                ("recovery_point", &trial.recovery_point),
                ("clean", &trial.clean),
                ("segment.bytes", &(100 << 20)),
                ("segment.index.bytes", &(10 << 20)),
            ],
        )?;
        let differences = compare_trial(trial, &answer)?;
        found.extend(differences.into_iter().map(|difference| format!("{}: {difference}", trial.what)));
    }
    for (file, what) in tools::check(kafka, &judged.our_dirs(), root)? {
        found.extend(what.iter().map(|what| format!("{}: {what}", file.display())));
    }
    Ok(found)
}

/// Writes the log of a seed and opens copies of it.
fn prepare(seed: u64, root: &Path) -> Result<Judged> {
    let left = history::write(seed, root)?;
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
    Ok(Judged { left, trials, dumped })
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

/// The same offsets and segments, and the same state left behind.
fn compare_trial(trial: &Trial, answer: &serde_json::Value) -> Result<Vec<String>> {
    let Ok(theirs) = Opened::deserialize(answer) else { return Ok(vec![format!("Kafka says {answer}")]) };
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
