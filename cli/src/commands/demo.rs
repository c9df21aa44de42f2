//! `keeplog demo`: the main job on one screen.
//!
//! A second process of this same binary commits offsets and is killed. So the crash is a real one: no destructor runs,
//! no file is closed in order, and what the cleaner was doing stays half done.

mod workload;
mod writer;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use serde::Serialize;

use self::workload::{PARTITIONS, TOPIC, Workload};
use crate::Status;
use crate::args;
use crate::door::{Log, OffsetStore, Storage, Store};
use crate::failure::Failure;
use crate::output::{self, Canvas, Out};
use crate::picture::{self, Bar};
use crate::progress::Progress;
use crate::signals::Temporary;
use crate::survey::Surveyor;

/// What the demo came to.
#[derive(Debug, Serialize)]
struct Shown {
    dir: String,
    /// Offsets that were acknowledged as synced.
    committed: u64,
    /// Batches that they came in: one group, all its partitions.
    commits: u64,
    keys: u64,
    commit_seconds: f64,
    /// Bytes appended to the logs, all in all.
    bytes_appended: u64,
    at_crash: Sizes,
    /// What the cleaner did before the crash.
    background_passes: u64,
    background_bytes_read: u64,
    background_seconds: f64,
    recovery_seconds: f64,
    recovery_cut_bytes: u64,
    reload_seconds: f64,
    /// Answers that differ from what was acknowledged, after the crash and after the last pass.
    wrong_answers: u64,
    clean_seconds: f64,
    clean_bytes_read: u64,
    after_clean: Sizes,
    kept: bool,
}

/// The logs as they lie there.
#[derive(Debug, Default, Serialize)]
struct Sizes {
    segments: usize,
    bytes: u64,
    live_bytes: u64,
    records: u64,
    #[serde(skip)]
    bars: Vec<Bar>,
}

pub(crate) fn run(args: &args::Demo, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let workload = Workload::new(args.records);
    if args.writer {
        let dir = args.dir.as_deref().ok_or_else(|| Failure::new("could not write: no directory was given"))?;
        return writer::run(storage, dir, workload);
    }
    let place = Place::prepare(&**storage, args.dir.as_deref())?;
    let mut out = Out::of_work();
    let demo = Demo { storage, workload, dir: place.path() };
    let shown = demo.run(place.is_kept())?;
    if args.json {
        out.json(&shown)?;
    } else {
        out.text(&text(&shown, Canvas::of_stdout()))?;
    }
    out.flush()?;
    Ok(if shown.wrong_answers == 0 { Status::Fine } else { Status::Damage })
}

/// Where the demo works.
enum Place {
    /// Removed at the end.
    Temporary(Temporary),
    Given(PathBuf),
}

impl Place {
    fn prepare(storage: &dyn Storage, given: Option<&Path>) -> Result<Self, Failure> {
        let Some(dir) = given else {
            let made = Temporary::new("keeplog-demo-");
            return made.map(Self::Temporary).map_err(|e| {
                Failure::new("could not create a temporary directory").caused_by(&e).advise("give one with --dir, or set TMPDIR")
            });
        };
        if storage.list(given.unwrap_or(dir)).is_ok_and(|entries| !entries.is_empty()) {
            return Err(Failure::new(format!("could not use {}: it is not empty", dir.display()))
                .advise("give a directory that does not exist yet"));
        }
        Ok(Self::Given(dir.to_path_buf()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Given(dir) => dir,
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self, Self::Given(_))
    }
}

struct Demo<'a> {
    storage: &'a Arc<dyn Storage>,
    workload: Workload,
    dir: &'a Path,
}

impl Demo<'_> {
    fn run(&self, kept: bool) -> Result<Shown, Failure> {
        let written = self.commit_and_crash()?;
        let at_crash = self.survey()?;

        let started = self.storage.monotonic();
        let store = Store::open_with(Arc::clone(self.storage), self.dir, workload::store_options(false))?;
        let logs = workload::logs(&store)?;
        let recovery_seconds = self.since(started);
        let recovery_cut_bytes = logs.iter().map(|log| log.recovery_report().cut_bytes()).sum();
        let started = self.storage.monotonic();
        let offsets = OffsetStore::open(logs.clone(), workload::commit_options())?;
        let reload_seconds = self.since(started);
        let mut wrong_answers = self.workload.wrong_answers(&offsets)?;

        let (clean_seconds, clean_bytes_read) = self.clean(&store, &logs)?;
        offsets.reload()?;
        wrong_answers += self.workload.wrong_answers(&offsets)?;
        drop(offsets);
        store.close()?;
        Ok(Shown {
            dir: output::name(&self.dir.display().to_string()),
            committed: self.workload.records(),
            commits: self.workload.commits(),
            keys: self.workload.keys(),
            commit_seconds: written.seconds,
            bytes_appended: written.bytes,
            at_crash,
            background_passes: written.passes,
            background_bytes_read: written.cleaner_bytes_read,
            background_seconds: written.cleaner_seconds,
            recovery_seconds,
            recovery_cut_bytes,
            reload_seconds,
            wrong_answers,
            clean_seconds,
            clean_bytes_read,
            after_clean: self.survey()?,
            kept,
        })
    }

    fn since(&self, started: std::time::Duration) -> f64 {
        self.storage.monotonic().saturating_sub(started).as_secs_f64()
    }

    /// Lets the writer commit everything, and kills it as soon as the last commit is acknowledged.
    fn commit_and_crash(&self) -> Result<writer::Written, Failure> {
        let program = std::env::current_exe().map_err(|e| Failure::new("could not find this program's own file").caused_by(&e))?;
        let mut writer = Command::new(program);
        writer.args(["demo", "--writer", "--records", &self.workload.records().to_string(), "--dir"]).arg(self.dir);
        let mut child = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Killed).map_err(|e| failed_to_start(&e))?;
        let Some(stdout) = child.0.stdout.take() else { return Err(Failure::new("could not read what the writing process says")) };
        let written = self.follow(stdout);
        let killed = child.crash();
        let written = written?;
        killed.map_err(|e| Failure::new("could not stop the writing process").caused_by(&e))?;
        written.ok_or_else(|| Failure::new("could not go on: the writing process has ended early").advise("see its message above"))
    }

    /// Reads the writer's lines: offsets committed so far, and in the end what it came to.
    fn follow(&self, stdout: ChildStdout) -> Result<Option<writer::Written>, Failure> {
        let mut progress = Progress::counting(&**self.storage, "committing", self.workload.records());
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|e| Failure::new("could not read what the writing process says").caused_by(&e))?;
            match serde_json::from_str(&line) {
                Ok(writer::Message::Committed(count)) => progress.set(count, self.workload.records()),
                Ok(writer::Message::Done(written)) => return Ok(Some(written)),
                Err(e) => return Err(Failure::new("could not read what the writing process says").caused_by(&e)),
            }
        }
        Ok(None)
    }

    /// What the logs hold, by reading them as `keeplog inspect` does.
    fn survey(&self) -> Result<Sizes, Failure> {
        let mut sizes = Sizes::default();
        for partition in 0..PARTITIONS {
            let dir = self.dir.join(format!("{TOPIC}-{partition}"));
            let segments = crate::door::check::Inventory::list(&**self.storage, &dir)?.segments;
            let mut surveyor = Surveyor::new(&**self.storage);
            let mut bars = Vec::new();
            let mut quiet = Progress::new(&**self.storage, "looking", 0);
            for (i, files) in segments.iter().enumerate().rev() {
                let survey = surveyor.segment(&dir.join(&files.log), &files.log, files.base, &mut quiet)?;
                sizes.bytes += survey.bytes;
                sizes.live_bytes += survey.live_bytes;
                sizes.records += survey.records;
                let active = i + 1 == segments.len();
                bars.push(Bar { label: format!("{partition}/{}", files.base), bytes: survey.bytes, live_bytes: survey.live_bytes, active });
            }
            sizes.segments += bars.len();
            sizes.bars.extend(bars.into_iter().rev());
        }
        Ok(sizes)
    }

    /// Cleans what the crash left to clean: seconds, and bytes read.
    fn clean(&self, store: &Store, logs: &[Log]) -> Result<(f64, u64), Failure> {
        let (mut seconds, mut bytes) = (0.0, 0);
        for log in logs {
            // Only closed segments are cleaned. A log that goes on would close this one by itself, by size or by age.
            log.roll()?;
            let report = store.clean(log)?;
            seconds += report.seconds;
            bytes += report.bytes_read;
        }
        Ok((seconds, bytes))
    }
}

fn failed_to_start(cause: &std::io::Error) -> Failure {
    Failure::new("could not start the writing process").caused_by(cause)
}

/// The writing process; never left behind.
struct Killed(Child);

impl Killed {
    fn crash(&mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.crash();
    }
}

fn text(shown: &Shown, canvas: Canvas) -> String {
    let s = shown;
    let per_second = |count: u64, seconds: f64| output::count((count as f64 / seconds.max(1e-9)) as u64);
    let speed = |bytes: u64, seconds: f64| format!("{}/s", output::bytes((bytes as f64 / seconds.max(1e-9)) as u64));
    let mut text = String::new();
    let mut say = |label: &str, what: String| {
        let _ = writeln!(text, "{label:<11}{what}");
    };
    let (committed, keys) = (output::count(s.committed), output::count(s.keys));
    say(
        "committed",
        format!(
            "{committed} offsets over {keys} keys in {}: {} a second,",
            output::seconds(s.commit_seconds),
            per_second(s.committed, s.commit_seconds)
        ),
    );
    say("", format!("in {}, each acknowledged once it was on the device", output::counted(s.commits, "batch", "batches")));
    let passes = output::counted(s.background_passes, "pass", "passes");
    let cleaned = format!("{} at {}", output::bytes(s.background_bytes_read), speed(s.background_bytes_read, s.background_seconds));
    say(
        "cleaned",
        if s.background_passes == 0 {
            "nothing yet: no segment was full".to_owned()
        } else {
            format!("meanwhile, in {passes} over closed segments: {cleaned}")
        },
    );
    say(
        "killed",
        format!(
            "{} were appended, {} are there, in {} segments:",
            output::bytes(s.bytes_appended),
            output::bytes(s.at_crash.bytes),
            s.at_crash.segments
        ),
    );
    text.push_str(&picture::draw(&s.at_crash.bars, canvas));

    let mut say = |label: &str, what: String| {
        let _ = writeln!(text, "{label:<11}{what}");
    };
    let torn = output::counted(s.recovery_cut_bytes, "byte", "bytes");
    say("recovered", format!("{PARTITIONS} partitions in {}; {torn} of torn tails cut", output::seconds(s.recovery_seconds)));
    let records = output::count(s.at_crash.records);
    say(
        "reloaded",
        format!(
            "the cache from {records} records in {}: {} a second",
            output::seconds(s.reload_seconds),
            per_second(s.at_crash.records, s.reload_seconds)
        ),
    );
    let verdict = if s.wrong_answers == 0 { "none differs".to_owned() } else { format!("{} DIFFER", output::count(s.wrong_answers)) };
    say("compared", format!("{keys} answers with what was acknowledged, here and again at the end: {verdict}"));
    say("cleaned", format!("the rest: {} at {}", output::bytes(s.clean_bytes_read), speed(s.clean_bytes_read, s.clean_seconds)));
    let removed = output::count(s.committed.saturating_sub(s.after_clean.records));
    let left = format!("{} of {}", output::bytes(s.after_clean.bytes), output::bytes(s.bytes_appended));
    say("left", format!("{left}; {removed} dead records are gone, all in all:"));
    text.push_str(&picture::draw(&s.after_clean.bars, canvas));
    text.push_str(&if s.kept {
        format!("The directory stays: try keeplog inspect {0}, or keeplog offsets get {0} group-7\n", s.dir)
    } else {
        "The directory is removed again; --dir keeps one, to look into with the other commands.\n".to_owned()
    });
    text
}
