//! One pass over what Kafka had before a pass: Keeplog must leave what Kafka left.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use keeplog::{CleanOptions, LogOptions, clean};
use serde::Deserialize;
use tempfile::TempDir;

use crate::directory::{self, SEGMENT_FILES, describe};
use crate::dump::{self, Batch, Exactness};
use crate::oracle::{Oracle, Running};
use crate::tally::Tally;

/// Seeds made by one process: enough to make its start cheap, few enough to keep the directories small (some 150 MB).
const BATCH_SEEDS: u64 = 100;

/// `case.json`.
#[derive(Debug, Deserialize)]
struct Case {
    #[serde(rename = "segment.bytes")]
    segment_bytes: u32,
    #[serde(rename = "index.interval.bytes")]
    index_interval_bytes: u32,
    #[serde(rename = "segment.index.bytes")]
    segment_index_bytes: u32,
    #[serde(rename = "delete.retention.ms")]
    delete_retention_ms: i64,
    #[serde(rename = "max.message.bytes")]
    max_message_bytes: u32,
    map_slots: u64,
    load_factor: f64,
    rounds: Vec<Round>,
}

/// One pass of Kafka's: what it was given, and what it counted.
#[derive(Debug, Deserialize)]
struct Round {
    now_ms: i64,
    first_dirty: u64,
    first_uncleanable: u64,
    new_dirty: u64,
    bytes_read: u64,
    records_read: u64,
    records_written: u64,
    map_size: u64,
}

/// The random logs of `seeds`; while one batch of them is judged, Kafka makes the next.
pub(crate) fn random(oracle: &Oracle, seeds: Range<u64>, keep: Option<&Path>) -> Result<()> {
    let mut tally = Tally::new("clean");
    let mut next = start(oracle, &seeds, seeds.start)?;
    while let Some((range, dir, running)) = next {
        running.finish()?;
        next = start(oracle, &seeds, range.end)?;
        for seed in range {
            judge(&dir.path().join(format!("{seed:03}")), &format!("seed {seed}"), keep, &mut tally)?;
        }
    }
    tally.finish(&format!("rounds of seeds {}..{}", seeds.start, seeds.end))
}

/// Three logs for each seed.
pub(crate) fn legacy(oracle: &Oracle, seeds: u64, keep: Option<&Path>) -> Result<()> {
    let mut tally = Tally::new("legacy");
    for seed in 0..seeds {
        let dir = tempfile::tempdir()?;
        let out = dir.path().to_str().context("a temporary directory whose name is no UTF-8")?;
        // The three logs of a call take three seeds.
        oracle.run(&["legacy", out, &(3 * seed).to_string()])?;
        for name in ["magic0", "magic1", "mixed"] {
            judge(&dir.path().join(name), &format!("seed {} {name}", 3 * seed), keep, &mut tally)?;
        }
    }
    tally.finish(&format!("logs of {seeds} seeds"))
}

fn start(oracle: &Oracle, seeds: &Range<u64>, from: u64) -> Result<Option<(Range<u64>, TempDir, Running)>> {
    let range = from..seeds.end.min(from + BATCH_SEEDS);
    if range.is_empty() {
        return Ok(None);
    }
    let dir = tempfile::tempdir()?;
    let out = dir.path().to_str().context("a temporary directory whose name is no UTF-8")?;
    let running = oracle.start(&["clean-pairs", out, &range.start.to_string(), &range.end.to_string()])?;
    Ok(Some((range, dir, running)))
}

/// Judges every round of the case in `dir`.
fn judge(dir: &Path, name: &str, keep: Option<&Path>, tally: &mut Tally) -> Result<()> {
    let text = fs::read_to_string(dir.join("case.json")).with_context(|| format!("no case in {}", dir.display()))?;
    let case: Case = serde_json::from_str(&text)?;
    let mut is_kept = keep.is_none();
    for (i, round) in case.rounds.iter().enumerate() {
        let number = i + 1;
        // What stops the judging of one round is a difference, too.
        let differences = judge_round(dir, number, &case, round).unwrap_or_else(|error| vec![format!("{error:#}")]);
        if !tally.judge(&format!("{name} round {number}"), &differences) && !is_kept {
            is_kept = true;
            keep_case(dir, keep)?;
        }
    }
    Ok(())
}

fn judge_round(dir: &Path, number: usize, case: &Case, round: &Round) -> Result<Vec<String>> {
    let before = dir.join(format!("before{number}"));
    let after = dir.join(format!("after{number}"));
    let root = tempfile::tempdir()?;
    // The log of a running Kafka, which had synced all of it and whose indexes are to be taken as they are.
    let copy = directory::data_dir(root.path(), &before, true, 0)?;
    directory::drop_preallocated(&copy)?;
    let settings = LogOptions::new()
        .segment_bytes(case.segment_bytes)
        .index_interval_bytes(case.index_interval_bytes)
        .segment_index_bytes(case.segment_index_bytes)
        .delete_retention_ms(case.delete_retention_ms)
        .max_message_bytes(case.max_message_bytes);
    let log = directory::open(&copy, round.now_ms, settings.clone())?;
    let mut found = Vec::new();
    if log.recovery_report().damage.is_empty() && log.recovery_report().cuts.is_empty() {
        let report = clean(&log, &options(case, round), &()).map_err(describe)?;
        let numbers = [
            ("new_dirty", report.new_dirty, round.new_dirty),
            ("map_size", report.map_size, round.map_size),
            ("bytes_read", report.bytes_read, round.bytes_read),
            ("records_read", report.records_read, round.records_read),
            ("records_written", report.records_kept, round.records_written),
        ];
        found.extend(
            numbers
                .iter()
                .filter(|(_, ours, theirs)| ours != theirs)
                .map(|(name, ours, theirs)| format!("{name} is {ours}, Kafka's is {theirs}")),
        );
    } else {
        found.push(format!("what Kafka wrote does not look sound: {}", log.recovery_report()));
    }
    let end_offset = log.end_offset();
    log.close().map_err(describe)?;
    drop(log);
    found.extend(same_files(&copy, &after)?);
    found.extend(same_batches(&copy, &after, &dump::read(&before.with_extension("jsonl"))?)?);
    found.extend(directory::check_sound(&copy, round.now_ms, settings, end_offset)?);
    Ok(found)
}

fn options(case: &Case, round: &Round) -> CleanOptions {
    let mut options = CleanOptions::new(round.now_ms);
    options.first_dirty = round.first_dirty;
    options.first_uncleanable = Some(round.first_uncleanable);
    options.dedupe_keys_max = Some((case.map_slots as f64 * case.load_factor) as u64);
    options.segment_bytes = case.segment_bytes;
    options.segment_index_bytes = case.segment_index_bytes;
    options.delete_retention_ms = case.delete_retention_ms;
    options
}

/// The same names, and the same transaction indexes.
fn same_files(ours: &Path, theirs: &Path) -> Result<Vec<String>> {
    let set = |dir| dump::names(dir, &SEGMENT_FILES).map(BTreeSet::from_iter);
    let (our_names, their_names) = (set(ours)?, set(theirs)?);
    let mut found = Vec::new();
    found.extend(our_names.difference(&their_names).map(|name| format!("{name} is there, Kafka has none")));
    found.extend(their_names.difference(&our_names).map(|name| format!("{name} is missing")));
    for name in our_names.intersection(&their_names).filter(|name| name.ends_with(".txnindex")) {
        if fs::read(ours.join(name))? != fs::read(theirs.join(name))? {
            found.push(format!("{name} is not Kafka's"));
        }
    }
    Ok(found)
}

/// The same batches: to the byte, but for batches whose records were compressed anew.
fn same_batches(ours: &Path, theirs: &Path, before: &[Batch]) -> Result<Vec<String>> {
    let identity = |batch: &Batch| (batch.base, batch.last, batch.bytes, batch.crc);
    let originals: HashSet<_> = before.iter().map(identity).collect();
    let batches = dump::directory(ours)?;
    let mut moved: HashSet<String> = HashSet::new();
    let mut found = dump::compare(&batches, &dump::read(&theirs.with_extension("jsonl"))?, |batch| {
        let was_moved = moved.contains(&batch.file);
        if batch.codec != "none" && !originals.contains(&identity(batch)) {
            moved.insert(batch.file.clone());
            return Exactness::Reencoded;
        }
        if was_moved { Exactness::Moved } else { Exactness::Full }
    });
    for name in dump::names(ours, &["log"])?.iter().filter(|name| !moved.contains(*name)) {
        if fs::read(ours.join(name))? != fs::read(theirs.join(name)).unwrap_or_default() {
            found.push(format!("{name} has other bytes than Kafka's"));
        }
    }
    Ok(found)
}

fn keep_case(dir: &Path, keep: Option<&Path>) -> Result<()> {
    let (Some(keep), Some(name)) = (keep, dir.file_name()) else { return Ok(()) };
    let target = keep.join(name);
    directory::copy_tree(dir, &target)?;
    println!("kept {}", target.display());
    Ok(())
}
