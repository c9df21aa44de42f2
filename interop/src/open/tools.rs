//! Kafka's own tool, `DumpLogSegments`, over indexes and producer snapshots that Keeplog wrote.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use keeplog::ActiveProducer;
use keeplog::inspect::snapshot;

use crate::dump;
use crate::kafka::Kafka;

/// What Kafka's tool has against the indexes and snapshots in `dirs`, by file. Works below `root`.
pub(super) fn check(kafka: &Kafka, dirs: &[&Path], root: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>> {
    let mut indexes = Vec::new();
    let mut snapshots = Vec::new();
    for dir in dirs {
        indexes.extend(dump::names(dir, &["index", "timeindex"])?.into_iter().map(|name| dir.join(name)));
        snapshots.extend(dump::names(dir, &["snapshot"])?.into_iter().map(|name| dir.join(name)));
    }
    let mut found: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    let mut note = |file: &Path, what: String| found.entry(file.to_owned()).or_default().push(what);

    let sane = said(&dump_log_segments(kafka, "--index-sanity-check", &indexes, root)?)?;
    let verified = said(&dump_log_segments(kafka, "--verify-index-only", &indexes, root)?)?;
    for file in &indexes {
        let path = file.display();
        // Of an empty index the tool says that, and nothing else.
        let empty = format!("{path} is empty.");
        let passed = [format!("{path} passed sanity check."), empty.clone()];
        let lines = sane.get(file).with_context(|| format!("the tool passed over {path}"))?;
        if lines.is_empty() || lines.iter().any(|line| !passed.contains(line)) {
            note(file, format!("the sanity check says {lines:?}"));
        }
        let lines = verified.get(file).with_context(|| format!("the tool passed over {path}"))?;
        if lines.iter().any(|line| *line != empty) {
            note(file, format!("the verification says {lines:?}"));
        }
    }

    let shown = said(&dump_log_segments(kafka, "", &snapshots, root)?)?;
    for file in &snapshots {
        let lines = shown.get(file).with_context(|| format!("the tool passed over {}", file.display()))?;
        let mut theirs: Vec<_> = lines.iter().map(|line| fields(line)).collect();
        let mut ours: Vec<_> = snapshot::parse(&fs::read(file)?)?.iter().map(expected_fields).collect();
        theirs.sort();
        ours.sort();
        if theirs != ours {
            note(file, format!("the tool reads {theirs:?}, we {ours:?}"));
        }
    }
    Ok(found)
}

/// What the tool prints with `flag` over `files`.
fn dump_log_segments(kafka: &Kafka, flag: &str, files: &[PathBuf], root: &Path) -> Result<String> {
    if files.is_empty() {
        return Ok(String::new());
    }
    let [list, out, complaints] = ["tool-files", "tool-output", "tool-complaints"].map(|name| root.join(name));
    fs::write(&list, files.iter().map(|file| format!("{}\n", file.display())).collect::<String>())?;
    let arguments: [(&str, &dyn Display); 4] =
        [("list", &list.display()), ("out", &out.display()), ("complaints", &complaints.display()), ("flag", &flag)];
    let _: serde_json::Value = kafka.ask("dump-log-segments", &arguments)?;
    let complaints = fs::read_to_string(complaints)?;
    ensure!(is_usual(&complaints), "the tool complains: {complaints}");
    Ok(fs::read_to_string(out)?)
}

/// The tool does not find the time of a batch that cleaning has emptied or taken from behind an entry, in Kafka's own logs either.
fn is_usual(complaints: &str) -> bool {
    let usual = |line: &str| line.starts_with("Found timestamp mismatch in :") || line.ends_with(", log timestamp: -1");
    complaints.lines().all(usual)
}

/// The lines behind each `Dumping FILE`.
fn said(printed: &str) -> Result<BTreeMap<PathBuf, Vec<String>>> {
    let mut files: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in printed.lines() {
        if let Some(file) = line.strip_prefix("Dumping ") {
            current = Some(files.entry(PathBuf::from(file)).or_default());
        } else {
            current.as_mut().with_context(|| format!("the tool begins with {line}"))?.push(line.trim_end().to_owned());
        }
    }
    Ok(files)
}

/// The fields of a producer that both sides know.
const FIELDS: [&str; 7] =
    ["producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset", "lastTimestamp", "lastSequence", "lastOffset"];

/// The values of [`FIELDS`] in a line of `name: value` pairs; a field that is missing is -1, as in the file.
fn fields(line: &str) -> [String; 7] {
    let words: Vec<&str> = line.split_whitespace().collect();
    FIELDS.map(|field| {
        let value = words.windows(2).find(|pair| pair[0].strip_suffix(':') == Some(field)).map_or("-1", |pair| pair[1]);
        value.trim_start_matches("OptionalLong[").trim_end_matches(']').replace("OptionalLong.empty", "-1")
    })
}

fn expected_fields(producer: &ActiveProducer) -> [String; 7] {
    let optional = |offset: Option<u64>| offset.map_or_else(|| "-1".to_owned(), |offset| offset.to_string());
    [
        producer.id.to_string(),
        producer.epoch.to_string(),
        producer.coordinator_epoch.to_string(),
        optional(producer.open_txn_first_offset),
        producer.last_timestamp.to_string(),
        producer.last_sequence.to_string(),
        optional(producer.last_data_offset),
    ]
}
