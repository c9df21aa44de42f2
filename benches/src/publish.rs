//! Where a report goes: to the terminal, and into files.

use std::fs;
use std::path::{Path, PathBuf};

use keeplog_benches::report::Report;

use crate::Outcome;
use crate::args::Publish;

/// Prints a report as the page that it is, or as JSON, and writes its files if it is told where.
pub(crate) fn publish(report: &Report, publish: &Publish, json: bool) -> Outcome<()> {
    if json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        print!("{}", report.text());
    }
    match &publish.out {
        Some(dir) => write(report, dir),
        None => Ok(()),
    }
}

fn write(report: &Report, dir: &Path) -> Outcome<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join(format!("{}.json", report.name)), serde_json::to_string_pretty(report)? + "\n")?;
    render_into(report, dir)
}

/// Makes page and picture of reports anew, beside each.
pub(crate) fn render(files: &[PathBuf]) -> Outcome<()> {
    for file in files {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let bytes = fs::read(file).map_err(|e| named(&e))?;
        let report: Report = serde_json::from_slice(&bytes).map_err(|e| named(&e))?;
        render_into(&report, file.parent().unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn render_into(report: &Report, dir: &Path) -> Outcome<()> {
    fs::write(dir.join(format!("{}.md", report.name)), report.page())?;
    if let Some(picture) = report.svg() {
        fs::write(dir.join(format!("{}.svg", report.name)), picture)?;
    }
    Ok(())
}
