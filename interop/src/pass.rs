//! One cleaning pass over one directory, by Kafka and by Keeplog, and what they have in common.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use keeplog::inspect::index::{TimeIndex, TxnIndex};
use keeplog::inspect::schedule::{Dirtiness, LogFacts, Rules};
use keeplog::{CleanOptions, CleanReport, LogOptions, Merge, Overflow, clean};
use serde::Deserialize;

use crate::directory::{self, SEGMENT_FILES, describe};
use crate::dump::{self, Batch, Exactness, Record};
use crate::kafka::{Kafka, Refused};

/// Share of its slots that Kafka's map takes.
const LOAD_FACTOR: f64 = 0.9;

/// A log as Kafka wrote it, and under which settings it is to be cleaned: the answer to `grow`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Grown {
    #[serde(rename = "segment.bytes")]
    segment_bytes: u32,
    #[serde(rename = "index.interval.bytes")]
    index_interval_bytes: u32,
    #[serde(rename = "segment.index.bytes")]
    segment_index_bytes: u32,
    #[serde(rename = "delete.retention.ms")]
    delete_retention_ms: i64,
    #[serde(rename = "min.compaction.lag.ms")]
    min_compaction_lag_ms: i64,
    map_slots: u64,
    io_buffer_bytes: u32,
    pub(crate) now_ms: i64,
    pub(crate) log_start: u64,
    pub(crate) end_offset: u64,
}

/// What Kafka's cleaner answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Counts {
    /// Whether there was anything to clean; if not, the rest says nothing.
    pub(crate) due: bool,
    end_offset: u64,
    last_stable_offset: u64,
    first_dirty: u64,
    first_uncleanable: u64,
    clean_bytes: u64,
    cleanable_bytes: u64,
    new_dirty: u64,
    map_size: u64,
    bytes_read: u64,
    bytes_written: u64,
    records_read: u64,
    records_written: u64,
    records_keyless: u64,
}

impl Counts {
    /// Where the next pass begins.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.new_dirty.max(self.first_dirty)
    }

    /// These for logs whose batches may have been compressed to other sizes.
    pub(crate) fn without_sizes(&self) -> Self {
        Self { clean_bytes: 0, cleanable_bytes: 0, bytes_read: 0, bytes_written: 0, ..self.clone() }
    }

    /// The same for an older Kafka, which counts less: it drops some batches unread, as the last one of the range.
    pub(crate) fn of_pass_differ(&self, ours: &Self) -> Vec<String> {
        let numbers = |of: &Self| [of.checkpoint(), of.map_size, of.bytes_read, of.records_written, of.records_keyless];
        let (ours, theirs) = (numbers(ours), numbers(self));
        let found =
            format!("new dirty offset, map size, bytes read, records written and without keys: {ours:?}, the older Kafka's {theirs:?}");
        if ours == theirs { Vec::new() } else { vec![found] }
    }

    /// In which numbers Keeplog's differ. `sizes`: whether all that was written has the same size.
    pub(crate) fn differences(&self, ours: &Self, sizes: bool) -> Vec<String> {
        let numbers = [
            ("end offset", ours.end_offset, self.end_offset),
            ("last stable offset", ours.last_stable_offset, self.last_stable_offset),
            ("first dirty offset", ours.first_dirty, self.first_dirty),
            ("first uncleanable offset", ours.first_uncleanable, self.first_uncleanable),
            ("clean bytes", ours.clean_bytes, self.clean_bytes),
            ("cleanable bytes", ours.cleanable_bytes, self.cleanable_bytes),
            ("new dirty offset", ours.new_dirty, self.checkpoint()),
            ("map size", ours.map_size, self.map_size),
            ("bytes read", ours.bytes_read, self.bytes_read),
            ("records read", ours.records_read, self.records_read),
            ("records written", ours.records_written, self.records_written),
            ("records without keys", ours.records_keyless, self.records_keyless),
            ("bytes written", if sizes { ours.bytes_written } else { self.bytes_written }, self.bytes_written),
        ];
        let differing = numbers.iter().filter(|(_, ours, theirs)| self.due && ours != theirs);
        let mut found: Vec<String> = differing.map(|(name, ours, theirs)| format!("{name}: {ours}, Kafka's {theirs}")).collect();
        if ours.due != self.due {
            found.push(format!("there is something to clean: {}, says Kafka: {}", ours.due, self.due));
        }
        found
    }
}

/// A pass of Keeplog's.
pub(crate) struct Ours {
    pub(crate) dir: PathBuf,
    pub(crate) counts: Counts,
    /// Whether it left every segment as it was.
    pub(crate) untouched: bool,
    /// What was wrong with the log before the pass, or is after.
    pub(crate) found: Vec<String>,
}

impl Grown {
    fn log_options(&self) -> LogOptions {
        LogOptions::new()
            .segment_bytes(self.segment_bytes)
            .index_interval_bytes(self.index_interval_bytes)
            .segment_index_bytes(self.segment_index_bytes)
            .delete_retention_ms(self.delete_retention_ms)
            .min_compaction_lag_ms(self.min_compaction_lag_ms)
            .min_cleanable_dirty_ratio(0.0)
            .max_message_bytes(10 << 20)
    }

    /// Has Kafka clean the log in `dir`.
    pub(crate) fn clean_by_kafka(&self, kafka: &Kafka, dir: &Path, checkpoint: Option<u64>) -> Result<Counts> {
        kafka.ask(
            "clean",
            &[
                ("dir", &dir.display()),
                ("now", &self.now_ms),
                ("log_start", &self.log_start),
                ("checkpoint", &checkpoint.map_or(-1, u64::cast_signed)),
                ("map_slots", &self.map_slots),
                ("io_buffer_bytes", &self.io_buffer_bytes),
                ("segment.bytes", &self.segment_bytes),
                ("index.interval.bytes", &self.index_interval_bytes),
                ("segment.index.bytes", &self.segment_index_bytes),
                ("delete.retention.ms", &self.delete_retention_ms),
                ("min.compaction.lag.ms", &self.min_compaction_lag_ms),
            ],
        )
    }

    /// Cleans a copy of the log in `from`, made below `root`.
    pub(crate) fn clean_by_us(&self, from: &Path, root: &Path, checkpoint: Option<u64>) -> Result<Ours> {
        let dir = directory::data_dir(root, from, true, self.end_offset)?;
        directory::write_start(root, self.log_start)?;
        let log = directory::open(&dir, self.now_ms, self.log_options())?;
        let mut found = Vec::new();
        let report = log.recovery_report();
        if !(report.damage.is_empty() && report.cuts.is_empty() && report.rebuilt.is_empty()) {
            found.push(format!("what Kafka wrote does not look sound: {report}"));
        }
        let rules = Rules::from(&self.log_options());
        let dirtiness = Dirtiness::of(&LogFacts::read(&log, checkpoint, &rules).map_err(describe)?, &rules, self.now_ms);
        let mut counts = Counts {
            due: dirtiness.is_eligible(&rules),
            end_offset: log.end_offset(),
            last_stable_offset: log.last_stable_offset(),
            first_dirty: dirtiness.first_dirty,
            first_uncleanable: dirtiness.first_uncleanable,
            clean_bytes: dirtiness.clean_bytes,
            cleanable_bytes: dirtiness.cleanable_bytes,
            ..Counts::default()
        };
        let mut untouched = true;
        if counts.due {
            let report = clean(&log, &self.clean_options(&dirtiness), &()).map_err(describe)?;
            untouched =
                report.bytes_written == 0 && report.segments_before == report.segments_after && report.bytes_kept == report.bytes_read;
            counts.take(&report);
        }
        let end_offset = log.end_offset();
        log.close().map_err(describe)?;
        drop(log);
        // Looking at every byte mends what could be mended: on a copy.
        let copy = root.join("checked");
        let checked = directory::data_dir(&copy, &dir, true, end_offset)?;
        directory::write_start(&copy, self.log_start)?;
        found.extend(directory::check_sound(&checked, self.now_ms, self.log_options(), end_offset)?);
        Ok(Ours { dir, counts, untouched, found })
    }

    fn clean_options(&self, dirtiness: &Dirtiness) -> CleanOptions {
        let mut options = CleanOptions::for_log(&self.log_options(), self.now_ms);
        // As Kafka does, so that files can be compared.
        options.merge = Merge::Sources;
        options.first_dirty = dirtiness.first_dirty;
        options.first_uncleanable = Some(dirtiness.first_uncleanable);
        options.overflow = Overflow::EndPass;
        options.dedupe_keys_max = Some((self.map_slots as f64 * LOAD_FACTOR) as u64);
        options
    }
}

impl Counts {
    fn take(&mut self, report: &CleanReport) {
        self.new_dirty = report.new_dirty;
        self.map_size = report.map_size;
        self.bytes_read = report.bytes_read;
        self.bytes_written = report.bytes_kept;
        self.records_read = report.records_read;
        self.records_written = report.records_kept;
        self.records_keyless = report.records_keyless;
    }
}

/// How two cleaned directories differ.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) found: Vec<String>,
    /// Nothing in it was compressed anew: all bytes are to be the same.
    pub(crate) exact: bool,
}

/// The same names, transaction indexes, file times and batches; the same bytes in files in which nothing was compressed anew, as `is_old`
/// tells of a compressed batch. `theirs` is what Kafka dumped of its directory.
pub(crate) fn compare(ours: &Path, kafka: &Path, theirs: &[Batch], is_old: impl Fn(&Batch) -> bool) -> Result<Compared> {
    let mut found = compare_files(ours, kafka)?;
    let mut moved: HashSet<String> = HashSet::new();
    found.extend(dump::compare(&dump::directory(ours)?, theirs, |batch| {
        let was_moved = moved.contains(&batch.file);
        if batch.codec != "none" && !is_old(batch) {
            moved.insert(batch.file.clone());
            return Exactness::Reencoded;
        }
        if was_moved { Exactness::Moved } else { Exactness::Full }
    }));
    for name in dump::names(ours, &["log"])?.iter().filter(|name| !moved.contains(*name)) {
        if fs::read(ours.join(name))? != fs::read(kafka.join(name)).unwrap_or_default() {
            found.push(format!("{name} has other bytes than Kafka's"));
        }
    }
    Ok(Compared { found, exact: moved.is_empty() })
}

/// Whether this is one of two passes that Kafka cannot finish: an old batch has to stay though all its records go, or what is written takes
/// more index than `segment.index.bytes`.
pub(crate) fn kafka_cannot(error: &anyhow::Error) -> bool {
    let said = error.downcast_ref().map_or("", |Refused(said)| said.as_str());
    ["Empty batches are only supported for magic v2", "Attempt to append to a full "].iter().any(|known| said.contains(known))
}

/// Whether Kafka begins to fill its map behind the marker of an aborted transaction that its index still names. It takes what the producer
/// sent since for aborted, too, and its keys for not there: see the README.
pub(crate) fn begins_behind_abort(before: &Path, checkpoint: Option<u64>) -> Result<bool> {
    let first_dirty = checkpoint.unwrap_or(0);
    let bases = dump::names(before, &["log"])?.iter().map(|name| directory::base_offset(name)).collect::<Result<Vec<_>>>()?;
    let Some(base) = bases.into_iter().rfind(|base| *base <= first_dirty) else { return Ok(false) };
    let stored = fs::read(before.join(format!("{base:020}.txnindex"))).unwrap_or_default();
    let aborted = TxnIndex::new(stored).iter().collect::<Result<Vec<_>, _>>()?;
    Ok(aborted.iter().any(|txn| txn.last_offset < first_dirty))
}

/// Whether the same records are left: offset, time, key, value and headers of each.
pub(crate) fn survivors_differ(ours: &[Batch], theirs: &[Batch]) -> Vec<String> {
    let records = |batches: &[Batch]| batches.iter().flat_map(|batch| batch.records.clone()).collect::<Vec<Record>>();
    let (ours, theirs) = (records(ours), records(theirs));
    if ours == theirs {
        return Vec::new();
    }
    let only = |these: &[Record], those: &[Record], who: &str| {
        let extra: Vec<_> = these.iter().filter(|record| !those.contains(record)).map(|record| format!("{record:?}")).collect();
        format!("only {who} keeps {}", extra.join(", "))
    };
    vec![only(&ours, &theirs, "Keeplog"), only(&theirs, &ours, "Kafka")]
}

/// Which of the batches in `dir` were there before: whether a batch is one of them.
pub(crate) fn old_batches(dir: &Path) -> Result<impl Fn(&Batch) -> bool + use<>> {
    let identity = |batch: &Batch| (batch.base, batch.last, batch.bytes, batch.crc);
    let old: HashSet<_> = dump::directory(dir)?.iter().map(identity).collect();
    Ok(move |batch: &Batch| old.contains(&identity(batch)))
}

fn compare_files(ours: &Path, theirs: &Path) -> Result<Vec<String>> {
    let set = |dir| dump::names(dir, &SEGMENT_FILES).map(BTreeSet::from_iter);
    let (our_names, their_names) = (set(ours)?, set(theirs)?);
    let mut found = Vec::new();
    found.extend(our_names.difference(&their_names).map(|name| format!("{name} is there, Kafka has none")));
    found.extend(their_names.difference(&our_names).map(|name| format!("{name} is missing")));
    for name in our_names.intersection(&their_names) {
        if name.ends_with(".txnindex") && fs::read(ours.join(name))? != fs::read(theirs.join(name))? {
            found.push(format!("{name} is not Kafka's"));
        }
        // By their largest times segments are kept and compacted.
        let largest_time =
            |dir: &Path| Ok::<_, anyhow::Error>(TimeIndex::new(0, fs::read(dir.join(name))?)?.last().map(|entry| entry.timestamp));
        if name.ends_with(".timeindex") && largest_time(ours)? != largest_time(theirs)? {
            found.push(format!("{name} ends with {:?}, Kafka's with {:?}", largest_time(ours)?, largest_time(theirs)?));
        }
        // By the times of the files old tombstones expire.
        let modified = |dir: &Path| fs::metadata(dir.join(name)).and_then(|file| file.modified());
        if name.ends_with(".log") && modified(ours)? != modified(theirs)? {
            found.push(format!("{name} was modified at {:?}, Kafka's at {:?}", modified(ours)?, modified(theirs)?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_that_differs_goes_unnoticed() {
        let number = |i: u64| 100 + i;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = std::array::from_fn(|i| number(i as u64));
        let theirs = Counts {
            due: true,
            end_offset: a,
            last_stable_offset: b,
            first_dirty: c,
            first_uncleanable: d,
            clean_bytes: e,
            cleanable_bytes: f,
            new_dirty: g,
            map_size: h,
            bytes_read: i,
            bytes_written: j,
            records_read: k,
            records_written: l,
            records_keyless: 0,
        };
        assert_eq!(theirs.differences(&theirs, true), Vec::<String>::new());
        assert_eq!(theirs.differences(&Counts { due: true, records_keyless: 1, ..Counts::default() }, true).len(), 13);
        assert_eq!(theirs.differences(&Counts { bytes_written: 0, ..theirs.clone() }, false), Vec::<String>::new());
        assert_eq!(theirs.differences(&Counts { due: false, ..theirs.clone() }, true).len(), 1);
    }

    #[test]
    fn a_pass_begins_behind_an_abort_only_inside_its_segment() {
        let dir = tempfile::tempdir().unwrap();
        let aborted =
            |last: u64| [&[0, 0][..], &7u64.to_be_bytes(), &10u64.to_be_bytes(), &last.to_be_bytes(), &last.to_be_bytes()].concat();
        for (base, last) in [(0, 20), (100, 120)] {
            fs::write(dir.path().join(format!("{base:020}.log")), "").unwrap();
            fs::write(dir.path().join(format!("{base:020}.txnindex")), aborted(last)).unwrap();
        }
        let begins = |checkpoint| begins_behind_abort(dir.path(), checkpoint).unwrap();
        assert_eq!([None, Some(20), Some(21), Some(100), Some(121)].map(begins), [false, false, true, false, true]);
    }
}
