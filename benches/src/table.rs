//! The large table: `keeplog compact` as a whole process over logs of many shapes, and other cleaners beside it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use keeplog_benches::report::{Cell, Chart, Column, Places, Report, Series, Table, Taken};
use keeplog_benches::suite::{Entry, SUITE};
use keeplog_benches::{Figures, Run, Shape, median};
use keeplog_engine::Log;
use serde_json::{Value, json};

use crate::args::{Common, ReportClean};
use crate::process::{self, Ran};
use crate::survivors::Survivors;
use crate::{Outcome, beside, cache, work};

const ABOUT: &str = "One pass of the cleaner over logs of many shapes, by `keeplog compact`. Its process counts from its start to its \
end, when the old segments are removed; its pass until the new ones are in their places, on stable storage. What survives is checked \
against a slow reading of the log after each run. Other cleaners are measured between two halves of Keeplog's runs, on fresh copies of \
the same log, by their own clock, which stops at the same point (Kafka removes old segments a minute later): rates and ratios are of \
passes. MB are 10^6 bytes of the log as it was; memory is resident memory at its peak, the program's own among it.";

/// One log of the table, measured.
struct Measured {
    name: &'static str,
    label: String,
    bytes: u64,
    /// Keeplog's runs, by number of threads.
    ours: Vec<(u16, Vec<Ran>)>,
    /// The other cleaners' runs, in the order in which they were asked for.
    others: Vec<Figures>,
    resident: Vec<Option<f64>>,
}

/// Measures what is asked for.
pub(crate) fn run(args: &ReportClean, common: &Common) -> Outcome<Report> {
    let keeplog = process::keeplog(args.keeplog.as_deref())?;
    let taken = Taken::now();
    let mut all = Vec::new();
    for entry in SUITE.iter().filter(|entry| args.only.is_empty() || args.only.iter().any(|name| name == entry.name)) {
        eprintln!("{}", Entry::label(entry.shape.scaled(args.scale)));
        all.push(measure(entry, &keeplog, args, common)?);
    }
    Ok(report(&all, args, taken))
}

fn measure(entry: &Entry, keeplog: &Path, args: &ReportClean, common: &Common) -> Outcome<Measured> {
    let dir = work::directory(common)?;
    let shape = entry.shape.scaled(args.scale);
    let source = Source::make(&dir.path().join("source"), shape, args)?;
    let mut measured = Measured {
        name: entry.name,
        label: Entry::label(shape),
        bytes: source.bytes,
        ours: args.threads.iter().map(|&threads| (threads, Vec::new())).collect(),
        others: Vec::new(),
        resident: Vec::new(),
    };
    let others: Vec<(&str, &Path)> = args
        .beside
        .iter()
        .map(|script| ("Kafka", script.as_path()))
        .chain(args.peer.iter().map(|peer| (peer.name.as_str(), peer.script.as_path())))
        .collect();
    let copy = dir.path().join("copy");
    // Half of the runs before the others and half behind them: what the machine does meanwhile tells in both.
    let before = if others.is_empty() { common.runs } else { common.runs.div_ceil(2) };
    source.passes(before, keeplog, &copy, args, &mut measured)?;
    for (name, script) in others {
        let mut figures = beside::clean(script, &source.log, shape.segment_mib, common.runs)?;
        name.clone_into(&mut figures.name);
        measured.others.push(figures);
    }
    source.passes(common.runs - before, keeplog, &copy, args, &mut measured)?;
    Ok(measured)
}

/// The log that copies are made of, in a data directory that was closed cleanly.
struct Source {
    dir: PathBuf,
    log: PathBuf,
    shape: Shape,
    bytes: u64,
    survivors: Option<Survivors>,
}

impl Source {
    fn make(dir: &Path, shape: Shape, args: &ReportClean) -> Outcome<Self> {
        let path = dir.join("bench-0");
        match &args.beside {
            // The yardstick writes no transactions.
            Some(script) if !shape.transactions => beside::make(script, &path, shape)?,
            _ => {
                let log = Log::open(&path, shape.log_options())?;
                shape.write(&log)?;
                log.close()?;
            }
        }
        let log = Log::open(&path, shape.log_options())?;
        let bytes = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
        let survivors = args.check.then(|| Survivors::of(&log, shape)).transpose()?;
        log.close()?;
        Ok(Self { dir: dir.to_path_buf(), log: path, shape, bytes, survivors })
    }

    fn passes(&self, runs: u32, keeplog: &Path, copy: &Path, args: &ReportClean, measured: &mut Measured) -> Outcome<()> {
        for _ in 0..runs {
            for (threads, ours) in &mut measured.ours {
                work::copy(&self.dir, copy)?;
                measured.resident.push(args.cache.prepare(copy)?);
                ours.push(compact(keeplog, &copy.join("bench-0"), *threads, self.shape.segment_mib)?);
                if let Some(survivors) = &self.survivors {
                    let log = Log::open(copy.join("bench-0"), self.shape.log_options())?;
                    survivors.check(&log)?;
                    log.close()?;
                }
                fs::remove_dir_all(copy)?;
            }
        }
        Ok(())
    }
}

/// `keeplog compact` over the log or the data directory at `path`, to its end.
pub(crate) fn compact(keeplog: &Path, path: &Path, threads: u16, segment_mib: u32) -> Outcome<Ran> {
    let (threads, segment_bytes) = (threads.to_string(), (segment_mib << 20).to_string());
    let words = ["compact", "--json", "--all", "--threads", &threads, "--segment-bytes", &segment_bytes].map(OsStr::new);
    let args: Vec<&OsStr> = words.into_iter().chain([path.as_os_str()]).collect();
    let ran = process::run(keeplog, &args)?;
    for pass in ran.json()? {
        if pass["new_dirty"] != pass["first_uncleanable"] {
            return Err(format!("the keys of {} did not fit into one pass: {pass}", path.display()).into());
        }
    }
    Ok(ran)
}

impl Measured {
    fn mb_per_s(&self, ours: &[Ran]) -> f64 {
        median(ours.iter().map(|ran| self.bytes as f64 / 1e6 / ran.pass_seconds))
    }

    fn row(&self) -> Vec<Cell> {
        let mut row = vec![Cell::Text(self.label.clone()), Cell::Text(self.name.to_owned()), Cell::Number(self.bytes as f64 / 1e6)];
        for (_, ours) in &self.ours {
            row.push(Some(median(ours.iter().map(|ran| ran.seconds))).into());
            row.push(Some(median(ours.iter().map(|ran| ran.pass_seconds))).into());
            row.push(Some(self.mb_per_s(ours)).into());
            row.push(Some(median(ours.iter().map(|ran| ran.peak_bytes as f64)) / f64::from(1 << 20)).into());
        }
        for other in &self.others {
            row.push(Some(other.mb_per_s()).into());
            for (_, ours) in &self.ours {
                row.push(Some(self.mb_per_s(ours) / other.mb_per_s()).into());
                row.push(Some(self.mb_per_s(ours) / best(other)).into());
            }
        }
        row
    }

    fn json(&self, args: &ReportClean) -> Value {
        let others: Vec<Value> = self.others.iter().map(Figures::json).collect();
        let ours: Vec<Value> = self
            .ours
            .iter()
            .map(|(threads, runs)| json!({"threads": threads, "runs": runs.iter().map(Ran::figures).collect::<Vec<_>>()}))
            .collect();
        json!({
            "name": self.name,
            "log": self.label,
            "bytes": self.bytes,
            "cache": args.cache,
            "resident": self.resident,
            "checked": args.check,
            "keeplog": ours,
            "others": others,
        })
    }
}

fn best(figures: &Figures) -> f64 {
    figures.runs.iter().map(Run::mb_per_s).fold(0.0, f64::max)
}

fn report(all: &[Measured], args: &ReportClean, taken: Taken) -> Report {
    let mut report = Report::new("clean", "Cleaning whole logs", ABOUT, taken);
    report.notes = notes(all, args);
    let Some(first) = all.first() else { return report };
    let mut columns = vec![Column::text("Log"), Column::text("--only"), Column::number("MB", 0)];
    for (threads, _) in &first.ours {
        let named = |what: &str| format!("{}: {what}", threads_of(*threads));
        columns.extend([Column::number(named("process, s"), 3), Column::number(named("pass, s"), 3)]);
        columns.extend([Column::number(named("MB/s"), 0), Column::number(named("peak, MiB"), 0)]);
    }
    for other in &first.others {
        columns.push(Column::number(format!("{}: MB/s", other.name), 0));
        for (threads, _) in &first.ours {
            columns.push(Column::number(format!("{} : {}, medians", threads_of(*threads), other.name), 1));
            columns.push(Column::number(format!("{} : {}'s best", threads_of(*threads), other.name), 1));
        }
    }
    report.tables.push(Table { title: String::new(), columns, rows: all.iter().map(Measured::row).collect() });

    let ours = first.ours.iter().enumerate().map(|(at, (threads, _))| Series {
        name: format!("Keeplog, {}", threads_of(*threads)),
        values: all.iter().map(|measured| Some(measured.mb_per_s(&measured.ours[at].1))).collect(),
    });
    let others = first.others.iter().enumerate().map(|(at, other)| Series {
        name: other.name.clone(),
        values: all.iter().map(|measured| Some(measured.others[at].mb_per_s())).collect(),
    });
    let labels = all.iter().map(|measured| measured.label.clone()).collect();
    report.charts.push(Chart { title: "MB/s, medians".into(), places: Places::Groups(labels), series: ours.chain(others).collect() });
    report.runs = all.iter().map(|measured| measured.json(args)).collect();
    report
}

fn notes(all: &[Measured], args: &ReportClean) -> Vec<String> {
    let mut notes = Vec::new();
    let resident = all.iter().flat_map(|measured| &measured.resident).flatten().copied();
    let cache = match args.cache {
        cache::Cache::Warm => resident.reduce(f64::min).map(|least| format!("at least {:.1} % of it", least * 100.0)),
        cache::Cache::Cold => resident.reduce(f64::max).map(|most| format!("at most {:.1} % of it", most * 100.0)),
    };
    let state = if args.cache == cache::Cache::Warm { "warm" } else { "cold" };
    notes.push(format!(
        "Keeplog's runs began with a {state} page cache: {} resident.",
        cache.as_deref().unwrap_or("it could not be told how much of the log was")
    ));
    if args.scale < 1.0 {
        notes.push(format!("Logs are {} times the size of those of the full table: a try, no figures to quote.", args.scale));
    }
    if !args.check {
        notes.push("What survived was not checked.".into());
    }
    notes
}

/// `1 thread`, `2 threads`.
pub(crate) fn threads_of(threads: u16) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
