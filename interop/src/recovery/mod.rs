//! Damaged directories: recovery must end as Kafka's does, except where Kafka loses or hides what can be kept.

mod damage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fastrand::Rng;
use keeplog::{Log, LogOptions, RecoveryMode};
use serde::Deserialize;

use crate::clean::dump_by_kafka;
use crate::directory::{self, PARTITION, base_offset, describe};
use crate::dump::{self, Exactness};
use crate::kafka::Kafka;
use crate::tally::{Row, Tally};
use crate::workers::{self, Case as Judged};
use crate::{Seeds, keeping};
use damage::{From, Victim};

/// The settings under which the logs are written and recovered.
const SEGMENT_BYTES: u32 = 8192;
const INDEX_INTERVAL_BYTES: u32 = 512;
const FAR_PAST_END: u64 = 10_000_000;

/// What Kafka answers to `recover`.
#[derive(Debug, Deserialize)]
struct Verdict {
    opened: bool,
    #[serde(default)]
    log_start_offset: u64,
    #[serde(default)]
    log_end_offset: u64,
    #[serde(default)]
    last_stable_offset: u64,
    #[serde(default)]
    segments: Vec<Segment>,
}

#[derive(Debug, Deserialize)]
struct Segment {
    base: u64,
    bytes: u64,
}

/// The log before any damage.
#[derive(Debug, Deserialize)]
struct Written {
    now_ms: i64,
    end_offset: u64,
}

/// Whose outcome is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Kafka's.
    AsKafka,
    /// Kafka's, and if sound batches go with the damaged one, that is reported.
    AsKafkaReported,
    /// The checksum does not cover the magic byte, and Kafka reads the batch as if nothing had happened. It is kept, reported, and nothing
    /// is appended behind it.
    UnknownFormat,
    /// Kafka takes back offsets that it had handed out. The batch that repeats them is a bad tail.
    TailCut,
    /// Kafka cuts at the damage and drops all later segments (above the recovery point), or does not see it (below).
    /// It is reported, and everything else stays; told to salvage, we cut where Kafka does.
    DamageKept {
        /// Whether salvaging must end as Kafka does.
        salvage_as_kafka: bool,
    },
    /// Kafka cuts at the torn end of a closed segment and drops all later segments. That end is cut, reported and kept aside, and the
    /// later segments stay; told to salvage, we cut where Kafka does.
    EndCut,
    /// Kafka does not miss the segment.
    SegmentMissed,
    /// Kafka does not open the log. The index is made anew.
    IndexRebuilt,
}

fn expected(case: &str) -> Expected {
    match case {
        "active-magic-9" => Expected::UnknownFormat,
        "active-batch-twice" | "active-older-batch-again" => Expected::TailCut,
        "active-middle-bit" => Expected::AsKafkaReported,
        "sealed-bit" => Expected::DamageKept { salvage_as_kafka: true },
        "sealed-cut" => Expected::EndCut,
        "sealed-bit-below-recovery-point" | "sealed-cut-below-recovery-point" => Expected::DamageKept { salvage_as_kafka: false },
        "sealed-missing" => Expected::SegmentMissed,
        "txnindex-newer-version" => Expected::IndexRebuilt,
        _ => Expected::AsKafka,
    }
}

/// One damaged directory.
struct Case<'a> {
    kafka: &'a Kafka,
    /// As the damage left it.
    before: PathBuf,
    /// As Kafka left it.
    after: PathBuf,
    recovery_point: u64,
    verdict: Verdict,
    written: &'a Written,
    /// The directory before the damage.
    untouched: &'a Path,
}

/// Every damage for each seed.
pub(crate) fn run(kafka: &Kafka, seeds: &Seeds) -> Row {
    let mut tally = Tally::new("recovery");
    workers::each(&seeds.range, seeds.jobs, &mut tally, |seed| keeping(seeds, "recovery", seed, |root| judge_all(kafka, seed, root)));
    tally.finish(&format!("damaged directories of logs {seeds}"))
}

fn judge_all(kafka: &Kafka, seed: u64, root: &Path) -> Result<Vec<Judged>> {
    let untouched = root.join("untouched").join(PARTITION);
    let arguments: [(&str, &dyn std::fmt::Display); 4] = [("dir", &untouched.display()), ("seed", &seed), ("round", &1), ("plain", &true)];
    let written: Written = kafka.ask("grow", &arguments)?;
    let mut judged = Vec::new();
    for (i, (name, from, damage)) in damage::ALL.iter().enumerate() {
        let root = root.join(name);
        let before = root.join("before");
        directory::copy(&untouched, &before)?;
        let victim = Victim::new(&before)?;
        damage(&victim, &mut Rng::with_seed(seed * 100 + i as u64))?;
        let recovery_point = match from {
            From::Zero => 0,
            From::Middle => base_offset(&dump::names(&untouched, &["log"])?[2])?,
            From::End => written.end_offset,
            From::PastEnd => FAR_PAST_END,
        };
        let after = root.join("kafka").join(PARTITION);
        directory::copy(&before, &after)?;
        let verdict = recover(kafka, &after, written.now_ms, recovery_point)?;
        let case = Case { kafka, before, after, recovery_point, verdict, written: &written, untouched: &untouched };
        let differences = case.judge(name).unwrap_or_else(|error| vec![format!("{error:#}")]);
        judged.push(Judged::new(*name, differences));
    }
    Ok(judged)
}

fn recover(kafka: &Kafka, dir: &Path, now_ms: i64, recovery_point: u64) -> Result<Verdict> {
    kafka.ask(
        "recover",
        &[
            ("dir", &dir.display()),
            ("now", &now_ms),
            ("recovery_point", &recovery_point),
            ("segment.bytes", &SEGMENT_BYTES),
            ("index.interval.bytes", &INDEX_INTERVAL_BYTES),
            ("segment.index.bytes", &(16 << 10)),
        ],
    )
}

impl Case<'_> {
    fn judge(&self, name: &str) -> Result<Vec<String>> {
        match expected(name) {
            Expected::AsKafka => self.open(RecoveryMode::TruncateTail, |opened| opened.as_kafka(0)),
            Expected::AsKafkaReported => {
                let lost = dump::directory(self.untouched)?.iter().filter(|batch| batch.base >= self.verdict.log_end_offset).count();
                self.open(RecoveryMode::TruncateTail, |opened| opened.as_kafka(usize::from(lost > 1)))
            }
            Expected::UnknownFormat => self.open(RecoveryMode::TruncateTail, Opened::unknown_format),
            Expected::TailCut => self.open(RecoveryMode::TruncateTail, Opened::tail_cut),
            Expected::SegmentMissed => self.open(RecoveryMode::TruncateTail, Opened::segment_missed),
            Expected::IndexRebuilt => self.open(RecoveryMode::TruncateTail, Opened::index_rebuilt),
            Expected::DamageKept { salvage_as_kafka } => {
                let mut found = self.open(RecoveryMode::TruncateTail, Opened::damage_kept)?;
                if salvage_as_kafka {
                    found.extend(self.salvage()?);
                }
                Ok(found)
            }
            Expected::EndCut => {
                let mut found = self.open(RecoveryMode::TruncateTail, Opened::end_cut)?;
                found.extend(self.salvage()?);
                Ok(found)
            }
        }
    }

    /// Opens a copy of the directory with the recovery point that Kafka was given.
    fn open<'a>(&'a self, mode: RecoveryMode, judge: impl FnOnce(&mut Opened<'a>) -> Result<()>) -> Result<Vec<String>> {
        let root = tempfile::tempdir()?;
        let dir = directory::data_dir(root.path(), &self.before, false, self.recovery_point)?;
        let settings = LogOptions::new()
            .segment_bytes(SEGMENT_BYTES)
            .index_interval_bytes(INDEX_INTERVAL_BYTES)
            .recovery_mode(mode)
            .recovery_full_scan(true);
        let log = directory::open(&dir, self.written.now_ms, settings)?;
        let mut opened = Opened { log, dir, case: self, found: Vec::new() };
        judge(&mut opened)?;
        let found = std::mem::take(&mut opened.found);
        Ok(found)
    }

    fn salvage(&self) -> Result<Vec<String>> {
        let found = self.open(RecoveryMode::Salvage, |opened| opened.as_kafka(1))?;
        Ok(found.into_iter().map(|difference| format!("salvaged: {difference}")).collect())
    }

    /// Base offset and bytes of the segments as they lay there.
    fn given(&self) -> Result<Vec<(u64, u64)>> {
        segments(&self.before)
    }
}

/// A log that recovery has opened, with what it should be.
struct Opened<'a> {
    log: Log,
    dir: PathBuf,
    case: &'a Case<'a>,
    found: Vec<String>,
}

impl Opened<'_> {
    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: &T, wanted: &T) {
        if ours != wanted {
            self.found.push(format!("{what} {ours:?}, should be {wanted:?}"));
        }
    }

    fn expect_damage(&mut self, count: usize) {
        let report = self.log.recovery_report().clone();
        if report.damage.len() != count {
            self.found.push(format!("{} kinds of damage reported, should be {count}: {report}", report.damage.len()));
        }
    }

    /// Offsets, segments and batches are those that Kafka ended with.
    fn as_kafka(&mut self, damage: usize) -> Result<()> {
        let verdict = &self.case.verdict;
        self.expect_damage(damage);
        let offsets = (self.log.start_offset(), self.log.end_offset(), self.log.last_stable_offset());
        self.expect(
            "start, end and last stable offset are",
            &offsets,
            &(verdict.log_start_offset, verdict.log_end_offset, verdict.last_stable_offset),
        );
        let wanted = verdict.segments.iter().map(|s| (s.base, s.bytes)).collect();
        self.expect("segments are", &self.log.recovery_report().segments.clone(), &wanted);
        self.can_be_read()?;
        self.log.close().map_err(describe)?;
        self.expect("opened by Kafka:", &true, &verdict.opened);
        let theirs = dump_by_kafka(self.case.kafka, &self.case.after, &self.case.after.with_extension("jsonl"))?;
        self.found.extend(dump::compare(&dump::directory(&self.dir)?, &theirs, |_| Exactness::Full));
        self.found.extend(self.other_files()?);
        Ok(())
    }

    fn unknown_format(&mut self) -> Result<()> {
        self.expect_damage(1);
        let given = self.case.given()?;
        let report = self.log.recovery_report().clone();
        self.expect("segments are", &report.segments, &given);
        self.expect("bytes cut:", &report.cut_bytes(), &0);
        self.expect("read only:", &report.read_only, &true);
        // The damaged batch is the last one.
        let last = dump::directory(self.case.untouched)?.pop().context("an empty log")?;
        self.expect("end offset is", &self.log.end_offset(), &last.base);
        Ok(())
    }

    fn tail_cut(&mut self) -> Result<()> {
        self.expect_damage(0);
        let given = self.case.given()?;
        let written = segments(self.case.untouched)?;
        let report = self.log.recovery_report().clone();
        let bytes = |segments: &[(u64, u64)]| segments.iter().map(|s| s.1).sum::<u64>();
        self.expect("segments are", &report.segments, &written);
        self.expect("bytes cut:", &report.cut_bytes(), &(bytes(&given) - bytes(&written)));
        self.expect("end offset is", &self.log.end_offset(), &self.case.written.end_offset);
        self.can_be_read()
    }

    fn damage_kept(&mut self) -> Result<()> {
        self.expect_damage(1);
        let given = self.case.given()?;
        let report = self.log.recovery_report().clone();
        self.expect("segments are", &report.segments, &given);
        self.expect("bytes cut:", &report.cut_bytes(), &0);
        self.expect("end offset is", &self.log.end_offset(), &self.case.written.end_offset);
        let Some(damage) = report.damage.first() else { return Ok(()) };
        let segment = base_offset(&damage.file)?;
        let silent = self.log.read_from(segment).map_err(describe)?.all(|record| record.is_ok());
        self.expect("damage passed over in silence:", &silent, &false);
        if let Some((next, _)) = given.iter().find(|(base, _)| *base > segment) {
            let later = self.log.read_from(*next).map_err(describe)?.filter(Result::is_ok).count();
            self.expect("records can be read from the later segments:", &(later > 0), &true);
        }
        Ok(())
    }

    fn end_cut(&mut self) -> Result<()> {
        self.expect_damage(1);
        self.can_be_read()?;
        self.expect("end offset is", &self.log.end_offset(), &self.case.written.end_offset);
        let report = self.log.recovery_report().clone();
        let [cut] = &report.cuts[..] else {
            self.found.push(format!("{} cuts, should be 1", report.cuts.len()));
            return Ok(());
        };
        let mut wanted = self.case.given()?;
        let base = base_offset(&cut.file)?;
        wanted.iter_mut().filter(|segment| segment.0 == base).for_each(|segment| segment.1 -= cut.bytes);
        self.expect("segments are", &report.segments, &wanted);
        let whole = fs::read(self.case.before.join(&cut.file))?;
        let kept = cut.kept_in.as_ref().map(|name| fs::read(self.dir.join(name))).transpose()?;
        self.expect("the cut bytes were kept:", &kept.as_deref(), &whole.get(cut.position as usize..));
        Ok(())
    }

    fn segment_missed(&mut self) -> Result<()> {
        self.expect_damage(1);
        let given = self.case.given()?;
        let report = self.log.recovery_report().clone();
        self.expect("segments are", &report.segments, &given);
        let written = segments(self.case.untouched)?;
        let missing = written.iter().find(|segment| !given.contains(segment)).map(|segment| segment.0);
        self.expect("the damage begins at", &report.damage.first().map(|d| d.offset), &missing);
        self.expect("end offset is", &self.log.end_offset(), &self.case.written.end_offset);
        Ok(())
    }

    /// The outcome is that of the directory without the damage, index for index.
    fn index_rebuilt(&mut self) -> Result<()> {
        self.expect_damage(0);
        self.expect("opened by Kafka:", &self.case.verdict.opened, &false);
        self.expect("end offset is", &self.log.end_offset(), &self.case.written.end_offset);
        self.can_be_read()?;
        self.log.close().map_err(describe)?;
        // An index without entries says as much as none.
        let names = dump::names(&self.dir, &["txnindex"])?.into_iter().chain(dump::names(self.case.untouched, &["txnindex"])?);
        for name in names.collect::<BTreeSet<_>>() {
            let read = |dir: &Path| fs::read(dir.join(&name)).unwrap_or_default();
            if read(&self.dir) != read(self.case.untouched) {
                self.found.push(format!("{name} was not made anew as it was"));
            }
        }
        Ok(())
    }

    /// How the names of the segments' files differ from those that Kafka left. Transaction indexes are left out: Kafka leaves empty ones
    /// behind where it cut, and makes none for a segment that lost its own in a swap.
    fn other_files(&self) -> Result<Vec<String>> {
        const KINDS: [&str; 3] = ["log", "index", "timeindex"];
        let theirs = BTreeSet::from_iter(dump::names(&self.case.after, &KINDS)?);
        let ours = BTreeSet::from_iter(dump::names(&self.dir, &KINDS)?);
        let extra = ours.difference(&theirs).map(|name| format!("{name} is there, Kafka has none"));
        Ok(extra.chain(theirs.difference(&ours).map(|name| format!("{name} is missing"))).collect())
    }

    fn can_be_read(&mut self) -> Result<()> {
        for record in self.log.read_from(self.log.start_offset()).map_err(describe)? {
            if let Err(error) = record {
                self.found.push(format!("it can't be read: {error:?}"));
            }
        }
        Ok(())
    }
}

/// Base offset and bytes of the segments in `dir`, ascending.
fn segments(dir: &Path) -> Result<Vec<(u64, u64)>> {
    let of = |name: &String| Ok((base_offset(name)?, fs::metadata(dir.join(name))?.len()));
    dump::names(dir, &["log"])?.iter().map(of).collect()
}
