//! Passes of the cleaner over copies of one log.

use std::fs;
use std::path::{Path, PathBuf};

use keeplog_benches::{Figures, Run, Shape, T0};
use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::Log;
use serde_json::json;

use crate::args::{Clean, Common};
use crate::survivors::Survivors;
use crate::{Outcome, beside, work};

/// Our cleaner, and Kafka's beside it if asked for.
pub(crate) fn run(args: &Clean, common: &Common) -> Outcome<Vec<Figures>> {
    let dir = work::directory(common)?;
    let shape = args.shape.shape();
    let source = dir.path().join("source").join("bench-0");
    match &args.beside {
        Some(script) => beside::make(script, &source, shape)?,
        None => {
            let log = Log::open(&source, shape.log_options())?;
            shape.write(&log)?;
            log.close()?;
        }
    }
    let copy = dir.path().join("copy").join("bench-0");
    let mut ours =
        Ours { source, copy, shape, check: args.check, newest: None, runs: args.threads.iter().map(|&n| (n, Vec::new())).collect() };
    ours.passes(common.runs)?;
    let Some(script) = &args.beside else { return Ok(ours.figures()) };
    // Ours before and after: what the machine does meanwhile shows in the difference.
    let kafka = beside::clean(script, &ours.source, shape.segment_mib, common.runs)?;
    ours.passes(common.runs)?;
    let kafkas_best = kafka.runs.iter().map(Run::mb_per_s).fold(0.0, f64::max);
    let mut all: Vec<Figures> = ours.figures().into_iter().map(|figures| beside_kafka(figures, kafka.mb_per_s(), kafkas_best)).collect();
    all.push(kafka);
    Ok(all)
}

fn beside_kafka(ours: Figures, kafkas_median: f64, kafkas_best: f64) -> Figures {
    let (median, best) = (ours.mb_per_s() / kafkas_median, ours.mb_per_s() / kafkas_best);
    let mut more = ours.more.clone();
    more["ratio_to_kafkas_median"] = json!((median * 10.0).round() / 10.0);
    more["ratio_to_kafkas_best"] = json!((best * 10.0).round() / 10.0);
    ours.with(more)
}

struct Ours {
    source: PathBuf,
    copy: PathBuf,
    shape: Shape,
    check: bool,
    /// What must survive, found once by a slow reading of the source.
    newest: Option<Survivors>,
    /// The runs so far, by number of threads.
    runs: Vec<(usize, Vec<Run>)>,
}

impl Ours {
    /// So many runs with each number of threads, in turn.
    fn passes(&mut self, runs: u32) -> Outcome<()> {
        for _ in 0..runs {
            for i in 0..self.runs.len() {
                let run = self.pass(self.runs[i].0)?;
                self.runs[i].1.push(run);
            }
        }
        Ok(())
    }

    /// One run over a fresh copy: from the closed log to the log with every output on stable storage and in its place.
    fn pass(&mut self, threads: usize) -> Outcome<Run> {
        let data_dir = self.copy.parent().unwrap_or(&self.copy).to_path_buf();
        work::copy(&self.source, &self.copy)?;
        let log = Log::open(&self.copy, self.shape.log_options())?;
        if self.newest.is_none() {
            self.newest = Some(Survivors::of(&log, self.shape)?);
        }
        work::settle()?;
        let bytes = size(&log);
        let end = log.segments().active().base_offset();
        let options = CleanOptions::for_log(log.options(), T0).threads(threads);

        let began = log.storage().monotonic();
        let mut dirty = 0;
        while dirty < end {
            dirty = clean(&log, &options.clone().first_dirty(dirty), &())?.new_dirty;
        }
        let time = log.storage().monotonic() - began;

        // invariant: it was made above
        let newest = self.newest.as_ref().ok_or("nothing to check against")?;
        if self.check {
            newest.check(&log)?;
        }
        let records = newest.records;
        log.close()?;
        drop(log);
        fs::remove_dir_all(data_dir)?;
        Ok(Run { time, bytes, records })
    }

    fn figures(&self) -> Vec<Figures> {
        let keys = self.newest.as_ref().map_or(0, |newest| newest.keys);
        let more = json!({"keys": keys, "checked": self.check});
        let name = |threads| format!("clean, {threads} thread{}", if threads == 1 { "" } else { "s" });
        self.runs.iter().map(|(threads, runs)| Figures::new(name(*threads), runs.clone()).with(more.clone())).collect()
    }
}

fn size(log: &Log) -> u64 {
    log.segments().all().iter().map(|segment| segment.size_bytes()).sum()
}

/// Whether there is a log in `dir`.
pub(crate) fn has_log(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut all| all.any(|entry| entry.is_ok_and(|e| e.path().extension().is_some_and(|x| x == "log"))))
}
