//! `keeplog inspect`: what a partition holds.

use std::fmt::Write as _;

use serde::Serialize;

use crate::args;
use crate::door::Storage;
use crate::door::check::{self, Checkpoints, Inventory, Marks};
use crate::failure::Failure;
use crate::output::{self, Canvas, Out};
use crate::picture::{self, Bar};
use crate::progress::Progress;
use crate::survey::{Producer, SegmentSurvey, Surveyor, Totals};
use crate::target::{Partition, Target};
use crate::{Status, complain};

/// Rows of a table for people; JSON has all.
const ROWS_MAX: usize = 60;
const EPOCHS_SHOWN: usize = 5;

/// All about one partition.
#[derive(Debug, Serialize)]
struct Report {
    partition: String,
    dir: String,
    start_offset: Option<u64>,
    end_offset: Option<u64>,
    bytes: u64,
    live_bytes: u64,
    batches: u64,
    records: u64,
    live_records: u64,
    topic_id: Option<String>,
    checkpoints: Marks,
    leader_epochs: Vec<Epoch>,
    #[serde(flatten)]
    totals: Totals,
    segments: Vec<Segment>,
    producers: Vec<Producer>,
}

#[derive(Debug, Serialize)]
struct Segment {
    #[serde(flatten)]
    survey: SegmentSurvey,
    active: bool,
    indexes: Vec<IndexFile>,
}

#[derive(Debug, Serialize)]
struct Epoch {
    epoch: u32,
    start_offset: u64,
}

#[derive(Debug, Serialize)]
struct IndexFile {
    file: String,
    bytes: u64,
}

pub(crate) fn run(args: &args::Inspect, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = Target::find(storage, &args.dir)?;
    let mut out = Out::new();
    let canvas = Canvas::of_stdout();
    let mut progress = Progress::new(storage, "reading", target.log_bytes(storage));
    let checkpoints = match &target.data_dir {
        Some(dir) => check::data_dir(storage, dir)?.0,
        None => Checkpoints::default(),
    };
    let mut first = true;
    target.each(|partition| {
        let report = inspect(storage, partition, checkpoints.of(&partition.name), &mut progress)?;
        progress.hide();
        if args.json {
            out.json(&report)?;
        } else {
            out.text(if first { "" } else { "\n" })?;
            out.text(&text(&report, canvas))?;
        }
        out.flush()?;
        first = false;
        let mut status = Status::Fine;
        for damage in report.segments.iter().filter_map(|segment| segment.survey.damage.as_deref()) {
            complain(&format!("{damage}\n  what to do: keeplog verify says more"));
            status = Status::Damage;
        }
        Ok(status)
    })
}

fn inspect(storage: &dyn Storage, partition: &Partition, marks: Marks, progress: &mut Progress<'_>) -> Result<Report, Failure> {
    let inventory = Inventory::list(storage, &partition.path)?;
    let mut surveyor = Surveyor::new(storage);
    let mut segments = Vec::new();
    for (i, files) in inventory.segments.iter().enumerate().rev() {
        let survey = surveyor.segment(&partition.path.join(&files.log), &files.log, files.base, progress)?;
        let size = |name: &str| storage.metadata(&partition.path.join(name)).map_or(0, |meta| meta.len);
        let indexes = files.index_names().map(|name| IndexFile { file: name.to_owned(), bytes: size(name) }).collect();
        segments.push(Segment { survey, active: i + 1 == inventory.segments.len(), indexes });
    }
    segments.reverse();
    let (epochs, topic_id) = check::side_files(storage, &partition.path, &inventory)?;
    let (producers, totals) = surveyor.finish();
    let sum = |field: fn(&SegmentSurvey) -> u64| segments.iter().map(|segment| field(&segment.survey)).sum();
    Ok(Report {
        partition: output::name(&partition.name),
        dir: output::name(&partition.path.display().to_string()),
        start_offset: segments.first().map(|segment| segment.survey.base).max(marks.log_start),
        end_offset: segments.last().map(|segment| segment.survey.last_offset.map_or(segment.survey.base, |last| last + 1)),
        bytes: sum(|s| s.bytes),
        live_bytes: sum(|s| s.live_bytes),
        batches: sum(|s| s.batches),
        records: sum(|s| s.records),
        live_records: sum(|s| s.live_records),
        topic_id,
        checkpoints: marks,
        leader_epochs: epochs.iter().map(|entry| Epoch { epoch: entry.epoch, start_offset: entry.start_offset }).collect(),
        totals,
        segments,
        producers,
    })
}

fn text(report: &Report, canvas: Canvas) -> String {
    let mut text = format!("{}\n", report.partition);
    let mut line = |label: &str, value: String| {
        text.push_str(&output::hanging(&format!("  {label:<13}"), &value, canvas.text_width));
    };
    let (start, end) = (report.start_offset.unwrap_or(0), report.end_offset.unwrap_or(0));
    line("offsets", format!("{start}..{end} (start and end of the log)"));
    line("times", times(report));
    line("size", format!("{} in {}", output::bytes(report.bytes), output::counted(report.segments.len() as u64, "segment", "segments")));
    line("batches", format!("{}: {}", output::count(report.batches), kinds(report)));
    line("records", format!("{}: {}", output::count(report.records), record_kinds(&report.totals)));
    line("live", live(report));
    line("checkpoints", checkpoints(&report.checkpoints));
    if !report.leader_epochs.is_empty() {
        line("epochs", epochs(&report.leader_epochs));
    }
    if let Some(id) = &report.topic_id {
        line("topic id", id.clone());
    }
    text.push('\n');
    text.push_str(&segment_table(&report.segments));
    if !report.producers.is_empty() {
        text.push('\n');
        text.push_str(&producer_table(&report.producers));
    }
    let bars: Vec<Bar> = report
        .segments
        .iter()
        .map(|s| Bar { label: s.survey.base.to_string(), bytes: s.survey.bytes, live_bytes: s.survey.live_bytes, active: s.active })
        .collect();
    text.push('\n');
    text.push_str(&picture::draw(&bars, canvas));
    text
}

fn times(report: &Report) -> String {
    let least = report.segments.iter().filter_map(|s| s.survey.min_timestamp).min();
    let most = report.segments.iter().filter_map(|s| s.survey.max_timestamp).max();
    match (least, most) {
        (Some(least), Some(most)) => format!("{} to {} UTC", output::time(least), output::time(most)),
        _ => "none".to_owned(),
    }
}

fn kinds(report: &Report) -> String {
    let totals = &report.totals;
    let mut parts: Vec<String> = totals.formats.iter().map(|(magic, n)| format!("v{magic} {}", output::count(*n))).collect();
    parts.extend(totals.codecs.iter().map(|(codec, n)| format!("{codec} {}", output::count(*n))));
    let some = [
        (totals.transactional_batches, "transactional"),
        (totals.control_batches, "control"),
        (totals.empty_batches, "emptied by compaction"),
    ];
    parts.extend(some.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what} {}", output::count(n))));
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn record_kinds(totals: &Totals) -> String {
    let at_least = if totals.keys_incomplete { "at least " } else { "" };
    let mut text = format!("{at_least}{}", output::counted(totals.keys, "distinct key", "distinct keys"));
    let some = [
        (totals.tombstones, "tombstones"),
        (totals.keyless, "without a key"),
        (totals.aborted_records, "aborted"),
        (totals.headers, "headers"),
    ];
    for (n, what) in some.into_iter().filter(|(n, _)| *n > 0) {
        let _ = write!(text, ", {} {what}", output::count(n));
    }
    text
}

fn live(report: &Report) -> String {
    let bound = if report.totals.keys_incomplete { "at most " } else { "" };
    format!(
        "{bound}{} of the bytes, {} of the records: compacting everything would leave about {}",
        output::percent(report.live_bytes, report.bytes),
        output::percent(report.live_records, report.records),
        output::bytes(report.live_bytes)
    )
}

fn checkpoints(marks: &Marks) -> String {
    let all = [
        ("recovery point", marks.recovery_point),
        ("log start", marks.log_start),
        ("first dirty offset", marks.first_dirty),
        ("high watermark", marks.high_watermark),
    ];
    let parts: Vec<String> = all.into_iter().filter_map(|(what, mark)| Some(format!("{what} {}", mark?))).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn epochs(epochs: &[Epoch]) -> String {
    let newest = epochs.iter().rev().take(EPOCHS_SHOWN).map(|e| format!("{} from {}", e.epoch, e.start_offset));
    let text = newest.collect::<Vec<_>>().join(", ");
    if epochs.len() > EPOCHS_SHOWN { format!("{text} and {} older", epochs.len() - EPOCHS_SHOWN) } else { text }
}

fn segment_table(segments: &[Segment]) -> String {
    let rows = segments.iter().take(ROWS_MAX).map(|segment| {
        let s = &segment.survey;
        let index_bytes = |ending: &str| {
            let file = segment.indexes.iter().find(|index| index.file.ends_with(ending));
            file.map_or_else(|| "-".to_owned(), |index| output::bytes(index.bytes))
        };
        vec![
            s.base.to_string(),
            s.last_offset.map_or_else(|| "-".to_owned(), |last| last.to_string()),
            output::bytes(s.bytes),
            s.max_timestamp.map_or_else(|| "-".to_owned(), output::time_to_seconds),
            output::count(s.batches),
            output::count(s.records),
            index_bytes(".index"),
            index_bytes(".timeindex"),
            index_bytes(".txnindex"),
        ]
    });
    let mut text =
        output::indent(&output::table(&[">base", ">last", ">size", "newest", ">batches", ">records", ">index", ">time", ">txn"], rows));
    note_more(&mut text, segments.len());
    text
}

fn producer_table(producers: &[Producer]) -> String {
    let or_dash = |offset: Option<u64>| offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
    let rows = producers.iter().take(ROWS_MAX).map(|p| {
        let sequence = if p.last_sequence < 0 { "-".to_owned() } else { p.last_sequence.to_string() };
        vec![
            p.id.to_string(),
            p.epoch.to_string(),
            sequence,
            or_dash(p.last_offset),
            output::time_to_seconds(p.last_timestamp),
            or_dash(p.open_txn_first_offset),
        ]
    });
    let headers = [">producer", ">epoch", ">sequence", ">offset", "last seen (UTC)", ">open since offset"];
    let mut text = output::indent(&output::table(&headers, rows));
    note_more(&mut text, producers.len());
    text
}

fn note_more(text: &mut String, all: usize) {
    if all > ROWS_MAX {
        let _ = writeln!(text, "  and {} more; --json lists them all", output::count((all - ROWS_MAX) as u64));
    }
}
