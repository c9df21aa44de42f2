//! `keeplog verify`: everything that can be checked.

use std::collections::HashSet;

use crate::Status;
use crate::args;
use crate::door::Storage;
use crate::door::check::{self, Checkpoints, Finding, Report, Severity};
use crate::failure::Failure;
use crate::output::{self, Canvas, Out};
use crate::progress::Progress;
use crate::target::Target;

pub(crate) fn run(args: &args::Verify, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = Target::find(storage, &args.dir)?;
    let mut out = Out::of_work();
    let canvas = Canvas::of_stdout();
    let mut progress = Progress::new(storage, "verifying", target.log_bytes(storage));
    let mut print = |report: Report| {
        let report = &escaped(report);
        if args.json {
            out.json(report)?;
        } else {
            out.text(&text(report, canvas))?;
        }
        out.flush()?;
        Ok::<_, Failure>(if report.count(Severity::Damage) > 0 { Status::Damage } else { Status::Fine })
    };
    let mut status = Status::Fine;
    let mut checkpoints = Checkpoints::default();
    if let Some(dir) = &target.data_dir {
        let (found, findings) = check::data_dir(storage, dir)?;
        checkpoints = found;
        if target.whole_dir && !findings.is_empty() {
            status = print(Report::of_data_dir(dir, findings))?;
        }
    }
    let of_partitions = target.each(|partition| {
        let report = check::partition(storage, &partition.path, checkpoints.of(&partition.name), &mut |bytes| progress.add(bytes))?;
        progress.hide();
        print(report)
    })?;
    Ok(status.max(of_partitions))
}

/// With names that can't drive a terminal.
fn escaped(mut report: Report) -> Report {
    report.partition = report.partition.as_deref().map(output::name);
    report.dir = output::name(&report.dir);
    report
}

fn text(report: &Report, canvas: Canvas) -> String {
    let verdict = match (report.count(Severity::Damage), report.count(Severity::Warning)) {
        (0, 0) => "sound".to_owned(),
        (0, warnings) => format!("sound, {}", output::counted(warnings as u64, "warning", "warnings")),
        (damages, 0) => format!("DAMAGED, {}", output::counted(damages as u64, "finding", "findings")),
        (damages, warnings) => {
            format!(
                "DAMAGED, {}, {}",
                output::counted(damages as u64, "finding", "findings"),
                output::counted(warnings as u64, "warning", "warnings")
            )
        }
    };
    let offsets = match (report.start_offset, report.end_offset) {
        (Some(start), Some(end)) => format!(", offsets {start}..{end}"),
        _ => String::new(),
    };
    let mut text = match &report.partition {
        Some(name) => format!(
            "{name}: {verdict} ({}, {}, {}, {}{offsets})\n",
            output::counted(report.segments as u64, "segment", "segments"),
            output::bytes(report.bytes),
            output::counted(report.batches, "batch", "batches"),
            output::counted(report.records, "record", "records"),
        ),
        None => format!("{}: {verdict} (the data directory itself)\n", report.dir),
    };
    let mut explained = HashSet::new();
    for finding in &report.findings {
        text.push_str(&finding_text(finding, canvas));
        if explained.insert(finding.code) {
            text.push_str(&output::wrap(finding.advice, 11, canvas.text_width));
        }
    }
    text
}

/// `  DAMAGE   checksum: 00..0.log at byte 91 (offset 2): ...`.
fn finding_text(finding: &Finding, canvas: Canvas) -> String {
    let severity = match finding.severity {
        Severity::Damage => "DAMAGE ",
        Severity::Warning => "warning",
        Severity::Note => "note   ",
    };
    let file = finding.file.as_deref().map_or_else(|| "the directory".to_owned(), output::name);
    let position = finding.position.map_or_else(String::new, |position| format!(" at byte {position}"));
    let offset = finding.offset.map_or_else(String::new, |offset| format!(" (offset {offset})"));
    let what = format!("{}: {file}{position}{offset}: {}", finding.code, finding.message);
    output::hanging(&format!("  {severity}  "), &what, canvas.text_width)
}
