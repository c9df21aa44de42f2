//! Damaged directories: recovery must end as Kafka's does, except where Kafka loses or hides what can be kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use keeplog::{Log, LogOptions, RecoveryMode};
use serde::Deserialize;

use crate::directory::{self, base_offset, describe};
use crate::dump::{self, Exactness};
use crate::oracle::Oracle;
use crate::tally::Tally;

/// The clock of the cases, ms: with it no producer has expired.
const NOW_MS: i64 = 1_760_000_001_000;
const UNTOUCHED: &str = "untouched";
/// Directories that the oracle makes for a seed.
const CASES: usize = 34;

/// `kafka.json`.
#[derive(Debug, Deserialize)]
struct Verdict {
    recovery_point: u64,
    #[serde(rename = "segment.bytes")]
    segment_bytes: u32,
    #[serde(rename = "index.interval.bytes")]
    index_interval_bytes: u32,
    written_end_offset: u64,
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

/// Whose outcome is the right one. The fixtures' README has the reasons.
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
        "txnindex-garbage" => Expected::IndexRebuilt,
        _ => Expected::AsKafka,
    }
}

/// One damaged directory.
struct Case<'a> {
    dir: &'a Path,
    verdict: Verdict,
    /// The directory before the damage.
    untouched: &'a Path,
}

/// 34 directories for each seed.
pub(crate) fn run(oracle: &Oracle, seeds: Range<u64>) -> Result<()> {
    let mut tally = Tally::new("recovery");
    let mut unmade = 0;
    for seed in seeds.clone() {
        let dir = tempfile::tempdir()?;
        let out = dir.path().to_str().context("a temporary directory whose name is no UTF-8")?;
        let made = oracle.run(&["recovery", out, &seed.to_string()]);
        let cases = cases(dir.path())?;
        if cases.len() < CASES {
            // The oracle can't dump a log whose damage lies inside compressed records: for such a seed it stops there.
            let error = made.err().context("the oracle ended early without an error")?;
            ensure!(cases.contains_key(UNTOUCHED), "{error:#}");
            println!("recovery seed {seed}: the oracle made {} of {CASES} directories", cases.len());
            unmade += CASES - cases.len();
        }
        let untouched = cases.get(UNTOUCHED).context("no untouched directory among the cases")?.join("before");
        for (name, dir) in &cases {
            let differences = judge(name, dir, &untouched).unwrap_or_else(|error| vec![format!("{error:#}")]);
            tally.judge(&format!("seed {seed} {name}"), &differences);
        }
    }
    tally.finish(&format!("damaged directories of seeds {}..{} ({unmade} not made)", seeds.start, seeds.end))
}

/// The finished directories by the name of the damage, which follows a number.
fn cases(root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut cases = BTreeMap::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('-'));
        if let Some((_, name)) = name.filter(|_| path.join("after.files").is_file()) {
            cases.insert(name.to_owned(), path.clone());
        }
    }
    Ok(cases)
}

fn judge(name: &str, dir: &Path, untouched: &Path) -> Result<Vec<String>> {
    let verdict: Verdict = serde_json::from_str(&fs::read_to_string(dir.join("kafka.json"))?)?;
    let case = Case { dir, verdict, untouched };
    match expected(name) {
        Expected::AsKafka => case.open(RecoveryMode::TruncateTail, |opened| opened.as_kafka(0)),
        Expected::AsKafkaReported => {
            let lost = dump::directory(untouched)?.iter().filter(|batch| batch.base >= case.verdict.log_end_offset).count();
            case.open(RecoveryMode::TruncateTail, |opened| opened.as_kafka(usize::from(lost > 1)))
        }
        Expected::UnknownFormat => case.open(RecoveryMode::TruncateTail, Opened::unknown_format),
        Expected::TailCut => case.open(RecoveryMode::TruncateTail, Opened::tail_cut),
        Expected::SegmentMissed => case.open(RecoveryMode::TruncateTail, Opened::segment_missed),
        Expected::IndexRebuilt => case.open(RecoveryMode::TruncateTail, Opened::index_rebuilt),
        Expected::DamageKept { salvage_as_kafka } => {
            let mut found = case.open(RecoveryMode::TruncateTail, Opened::damage_kept)?;
            if salvage_as_kafka {
                found.extend(case.salvage()?);
            }
            Ok(found)
        }
        Expected::EndCut => {
            let mut found = case.open(RecoveryMode::TruncateTail, Opened::end_cut)?;
            found.extend(case.salvage()?);
            Ok(found)
        }
    }
}

/// A log that recovery has opened, with what it should be.
struct Opened<'a> {
    log: Log,
    dir: PathBuf,
    case: &'a Case<'a>,
    found: Vec<String>,
}

impl Case<'_> {
    /// Opens a copy of the directory with the recovery point that Kafka was given.
    fn open<'a>(&'a self, mode: RecoveryMode, judge: impl FnOnce(&mut Opened<'a>) -> Result<()>) -> Result<Vec<String>> {
        let root = tempfile::tempdir()?;
        let dir = directory::data_dir(root.path(), &self.dir.join("before"), false, self.verdict.recovery_point)?;
        let settings = LogOptions::new()
            .segment_bytes(self.verdict.segment_bytes)
            .index_interval_bytes(self.verdict.index_interval_bytes)
            .recovery_mode(mode)
            .recovery_full_scan(true);
        let log = directory::open(&dir, NOW_MS, settings)?;
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
        segments(&self.dir.join("before"))
    }
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
        let theirs = dump::read(&self.case.dir.join("after.jsonl"))?;
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
        self.expect("end offset is", &self.log.end_offset(), &self.case.verdict.written_end_offset);
        self.can_be_read()
    }

    fn damage_kept(&mut self) -> Result<()> {
        self.expect_damage(1);
        let given = self.case.given()?;
        let report = self.log.recovery_report().clone();
        self.expect("segments are", &report.segments, &given);
        self.expect("bytes cut:", &report.cut_bytes(), &0);
        self.expect("end offset is", &self.log.end_offset(), &self.case.verdict.written_end_offset);
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
        self.expect("end offset is", &self.log.end_offset(), &self.case.verdict.written_end_offset);
        let report = self.log.recovery_report().clone();
        let [cut] = &report.cuts[..] else {
            self.found.push(format!("{} cuts, should be 1", report.cuts.len()));
            return Ok(());
        };
        let mut wanted = self.case.given()?;
        let base = base_offset(&cut.file)?;
        wanted.iter_mut().filter(|segment| segment.0 == base).for_each(|segment| segment.1 -= cut.bytes);
        self.expect("segments are", &report.segments, &wanted);
        let whole = fs::read(self.case.dir.join("before").join(&cut.file))?;
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
        self.expect("end offset is", &self.log.end_offset(), &self.case.verdict.written_end_offset);
        Ok(())
    }

    /// The outcome is that of the directory without the damage, index for index.
    fn index_rebuilt(&mut self) -> Result<()> {
        self.expect_damage(0);
        self.expect("opened by Kafka:", &self.case.verdict.opened, &false);
        self.expect("end offset is", &self.log.end_offset(), &self.case.verdict.written_end_offset);
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
        let listed = fs::read_to_string(self.case.dir.join("after.files"))?;
        let is_counted = |name: &&str| name.rsplit_once('.').is_some_and(|(_, kind)| KINDS.contains(&kind));
        let theirs: BTreeSet<String> = listed.lines().filter(is_counted).map(str::to_owned).collect();
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
