//! Checks a partition directory as it lies there, without opening the log: nothing is written, locked or mended.
#![forbid(unsafe_code)]

mod checkpoints;
mod codes;
mod files;
mod finding;
mod indexes;
mod segment;
mod snapshots;

use std::path::Path;

use keeplog_engine::checkpoint::EpochEntry;
use keeplog_engine::names::DirectoryName;
use keeplog_engine::storage::{Entry, EntryKind, Storage};
use keeplog_engine::{Error, TopicPartition};
use serde::Serialize;

pub use self::checkpoints::{Checkpoints, Marks};
pub use self::files::{Inventory, SegmentFiles};
pub use self::finding::{Finding, Severity};
use self::finding::{Findings, Place};
use self::indexes::Owner;
use self::segment::Walk;
use self::snapshots::LogFacts;

/// Decompressed size of one batch at most, bytes: a larger one counts as damage.
pub const DECODED_BYTES_MAX: usize = 1 << 30;

/// What a check of one partition came to.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name of the directory; `None` for a data directory as a whole.
    pub partition: Option<String>,
    /// Its path.
    pub dir: String,
    /// Its segments.
    pub segments: usize,
    /// Bytes of their logs.
    pub bytes: u64,
    /// Batches that could be read.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// First offset of the first segment.
    pub start_offset: Option<u64>,
    /// Offset after the last batch.
    pub end_offset: Option<u64>,
    /// What was found, in the order of the files.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Of a data directory, beside its partitions.
    #[must_use]
    pub fn of_data_dir(dir: &Path, findings: Vec<Finding>) -> Self {
        Self {
            partition: None,
            dir: dir.display().to_string(),
            segments: 0,
            bytes: 0,
            batches: 0,
            records: 0,
            start_offset: None,
            end_offset: None,
            findings,
        }
    }

    /// How many findings are of `severity`.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Checks the partition directory `dir`, with what the checkpoints around it say. `progress` is told of bytes that were read.
///
/// # Errors
/// Those of the storage: what is wrong with the data is a finding.
pub fn partition(storage: &dyn Storage, dir: &Path, marks: Marks, progress: &mut dyn FnMut(u64)) -> Result<Report, Error> {
    let mut findings = Findings::default();
    let inventory = Inventory::read(storage, dir, &mut findings)?;
    let mut walk = Walk::new(storage);
    let mut end_offset = None;
    let mut complete = true;
    for (i, files) in inventory.segments.iter().enumerate() {
        let active = i + 1 == inventory.segments.len();
        check_border(&inventory, files, end_offset.filter(|_| complete), walk.next_offset(), &mut findings);
        let owner = Owner { dir, log: &files.log, base: files.base, log_bytes: files.bytes, active };
        let extent = walk.segment(owner, &files.indexes, progress, &mut findings)?;
        end_offset = Some(extent.next_offset);
        complete = extent.complete;
    }
    report_orphans(&inventory, marks.log_start.unwrap_or(0), &mut findings);
    let facts = LogFacts { end_offset: end_offset.filter(|_| complete), has_producers: walk.has_producers };
    snapshots::check(storage, dir, &inventory, facts, &mut findings)?;
    let epochs = checkpoints::epochs(storage, dir, &mut findings)?;
    if inventory.has_metadata {
        checkpoints::topic_id(storage, dir, &mut findings)?;
    }
    if let Some(end_offset) = end_offset {
        checkpoints::check_marks(marks, end_offset, &mut findings);
        checkpoints::check_epochs(&epochs, end_offset, &mut findings);
    } else {
        findings.add(codes::NO_SEGMENT, Place::default(), "there is no .log file");
        checkpoints::check_marks(marks, 0, &mut findings);
    }
    Ok(Report {
        partition: dir.file_name().map(|name| name.to_string_lossy().into_owned()),
        dir: dir.display().to_string(),
        segments: inventory.segments.len(),
        bytes: walk.bytes,
        batches: walk.batches,
        records: walk.records,
        start_offset: inventory.segments.first().map(|segment| segment.base),
        end_offset,
        findings: findings.finish(),
    })
}

/// Leader epochs and topic id, for somebody who does not judge.
///
/// # Errors
/// Those of the storage.
pub fn side_files(storage: &dyn Storage, dir: &Path, inventory: &Inventory) -> Result<(Vec<EpochEntry>, Option<String>), Error> {
    let mut unheard = Findings::default();
    let epochs = checkpoints::epochs(storage, dir, &mut unheard)?;
    let id = if inventory.has_metadata { checkpoints::topic_id(storage, dir, &mut unheard)? } else { None };
    Ok((epochs, id))
}

/// Damage that no recovery mends: names that a broker refuses, and a topic id that can't be read.
///
/// # Errors
/// Those of the storage.
pub fn beyond_recovery(storage: &dyn Storage, dir: &Path) -> Result<Vec<Finding>, Error> {
    let mut findings = Findings::default();
    let inventory = Inventory::read(storage, dir, &mut findings)?;
    if inventory.has_metadata {
        checkpoints::topic_id(storage, dir, &mut findings)?;
    }
    let mut left = findings.finish();
    left.retain(|finding| finding.severity == Severity::Damage);
    Ok(left)
}

/// What a check of the data directory itself came to, beside its partitions.
///
/// # Errors
/// Those of the storage.
pub fn data_dir(storage: &dyn Storage, dir: &Path) -> Result<(Checkpoints, Vec<Finding>), Error> {
    let mut findings = Findings::default();
    let checkpoints = Checkpoints::read(storage, dir, &mut findings)?;
    let entries = storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let mut missing: Option<&TopicPartition> = None;
    for (file, partition) in checkpoints.partitions() {
        let is_there = entries.iter().any(|entry| entry.kind == EntryKind::Directory && entry.name == partition.directory_name());
        if !is_there && missing.replace(partition) != Some(partition) {
            findings.add(codes::PARTITION_MISSING, Place::file(file), format!("{partition} has an entry, but no directory"));
        }
    }
    for entry in &entries {
        report_in_data_dir(entry, &mut findings);
    }
    Ok((checkpoints, findings.finish()))
}

fn report_in_data_dir(entry: &Entry, findings: &mut Findings) {
    /// Directories that a broker's loader passes over.
    const NO_PARTITIONS: [&str; 2] = ["remote-log-index-cache", "__cluster_metadata-0"];
    let place = Place::file(&entry.name);
    match entry.kind {
        EntryKind::File if entry.name.ends_with(".tmp") => {
            findings.add(codes::LEFTOVER_TMP, place, "an unfinished write of a checkpoint file");
        }
        EntryKind::Directory if DirectoryName::parse(&entry.name).is_none() && !NO_PARTITIONS.contains(&entry.name.as_str()) => {
            findings.add(codes::FOREIGN_DIRECTORY, place, "not named like a partition");
        }
        EntryKind::Other if DirectoryName::parse(&entry.name).is_some() => {
            findings.add(codes::NOT_A_FILE, place, "it is a link or a device");
        }
        EntryKind::File | EntryKind::Directory | EntryKind::Other => {}
    }
}

/// What lies between a segment and the one before it, which ended at `previous_end` (if it could be read to its end).
fn check_border(inventory: &Inventory, next: &SegmentFiles, previous_end: Option<u64>, walked_to: Option<u64>, findings: &mut Findings) {
    let place = Place::file(&next.log).offset(next.base);
    if let Some(reached) = walked_to.filter(|reached| *reached > next.base) {
        findings.add(
            codes::SEGMENTS_OVERLAP,
            place,
            format!("the segment starts at offset {}, the one before it reaches {}", next.base, reached - 1),
        );
    }
    let Some(end) = previous_end.filter(|end| *end < next.base) else { return };
    if !inventory.orphans.iter().any(|(number, _)| (end..next.base).contains(number)) {
        findings.add(codes::GAP, place, format!("offsets {end}..={} are in no segment", next.base - 1));
    }
}

/// Index files without their log: of a segment that is missing, where others follow, or leftovers. What lies below the
/// start of the log, or was being removed, is not missed.
fn report_orphans(inventory: &Inventory, log_start: u64, findings: &mut Findings) {
    let last = inventory.segments.last().map(|segment| segment.base);
    let mut missing = None;
    for (number, name) in &inventory.orphans {
        let is_missed = last.is_some_and(|last| *number < last) && *number >= log_start && !inventory.retired.contains(number);
        if is_missed && missing.replace(number) != Some(number) {
            let message = format!("the segment that starts at offset {number} has an index, but no .log file");
            findings.add(codes::SEGMENT_MISSING, Place::file(name).offset(*number), message);
        } else if !is_missed {
            findings.add(codes::ORPHAN_INDEX, Place::file(name).offset(*number), "no .log file of this number is there");
        }
    }
}
