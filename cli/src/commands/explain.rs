//! `keeplog explain`: what a pass of the cleaner would do, why, and which keys take the space.

mod keys;
mod text;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use self::keys::Keys;
use self::walk::Walk;
use crate::args;
use crate::door::check::Inventory;
use crate::door::cleaner::{self, CleanOptions, CleanReport};
use crate::door::explain::{CheckpointFault, Due, Explanation, Obstacle, Rules};
use crate::door::storage::FixedClock;
use crate::door::{Log, LogOptions, Storage, is_known_compacted};
use crate::failure::Failure;
use crate::opened::open_sound;
use crate::output::Out;
use crate::owned::{OwnedPartition, OwnedTarget};
use crate::pass::{self, PassBar};
use crate::progress::Progress;
use crate::shadow::Shadow;
use crate::{Status, complain};

/// How often a log is read anew that changes beneath the reading.
const TRIES: usize = 50;

/// All about the next pass over one partition. Sections that a damaged log has no answer for are null.
#[derive(Debug, Serialize)]
struct Explained {
    partition: String,
    bytes: u64,
    /// Whether it is known to be compacted by policy.
    known_compacted: bool,
    now_ms: i64,
    min_cleanable_dirty_ratio: f64,
    dirt: Option<Dirt>,
    /// What no pass goes beyond, ascending by offset. The first is the one that counts now.
    blocked_by: Vec<Blocker>,
    pass: Option<Pass>,
    keys: Keys,
}

impl Explained {
    fn is_damaged(&self) -> bool {
        self.blocked_by.iter().any(|blocker| matches!(blocker, Blocker::Damage { .. }))
    }
}

/// How much of a log is dirty.
#[derive(Debug, Serialize)]
struct Dirt {
    start_offset: u64,
    end_offset: u64,
    /// The cleaner's checkpoint, and why it can't be used as it is.
    checkpoint: Option<u64>,
    checkpoint_fault: Option<&'static str>,
    first_dirty: u64,
    first_uncleanable: u64,
    clean_bytes: u64,
    cleanable_bytes: u64,
    uncleanable_bytes: u64,
    dirty_ratio: f64,
    /// Whether a background cleaner would take it: `dirty`, `overdue`, `not-yet`, `nothing-cleanable` or `clean`.
    due: &'static str,
    /// Since when it is overdue, ms; 0 if it is not.
    overdue_ms: i64,
}

/// Something that keeps a pass from records.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Blocker {
    /// The log is damaged: no pass touches it.
    Damage {
        what: String,
    },
    /// Nothing says that the log is compacted.
    Policy,
    OpenTransaction {
        offset: u64,
        producer_id: i64,
        producer_epoch: i16,
        since_ms: Option<i64>,
    },
    CompactionLag {
        offset: u64,
        until_ms: i64,
    },
    ActiveSegment {
        offset: u64,
    },
}

/// What a pass would do, counted by a dry run.
#[derive(Debug, Serialize)]
struct Pass {
    /// First dirty offset after it.
    new_dirty: u64,
    segments_before: usize,
    segments_after: usize,
    bytes_read: u64,
    bytes_kept: u64,
    bytes_dropped: u64,
    /// Bytes of new segments.
    bytes_written: u64,
    records_read: u64,
    records_kept: u64,
    records_dropped: u64,
    keyless_dropped: u64,
    tombstones_kept: u64,
    /// Distinct keys in the dirty section.
    map_size: u64,
}

/// The arguments, resolved.
struct Plan {
    dir: PathBuf,
    storage: Arc<dyn Storage>,
    now_ms: i64,
    /// The time that was asked for.
    fixed_now_ms: Option<i64>,
    log_options: LogOptions,
}

pub(crate) fn run(args: &args::Explain, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let plan = Plan::resolve(args, storage)?;
    let owned = OwnedTarget::open(Arc::clone(&plan.storage), &plan.dir)?;
    let mut out = Out::new();
    let mut first = true;
    owned.each(|partition| {
        let explained = explain_at_rest(&plan, storage, partition)?;
        if args.json {
            out.json(&explained)?;
        } else {
            out.text(if first { "" } else { "\n" })?;
            out.text(&text::of(&explained))?;
        }
        first = false;
        out.flush()?;
        Ok(if explained.is_damaged() { Status::Damage } else { Status::Fine })
    })
}

impl Plan {
    fn resolve(args: &args::Explain, storage: &Arc<dyn Storage>) -> Result<Self, Failure> {
        let log_options = log_options(args)?;
        let mut plan = Self { dir: args.dir.clone(), now_ms: 0, fixed_now_ms: args.now, storage: Arc::clone(storage), log_options };
        plan = plan.anew(storage);
        plan.now_ms = plan.storage.now_ms();
        Ok(plan)
    }

    /// The same over what lies there now, with nothing changed in its stead yet.
    fn anew(&self, storage: &Arc<dyn Storage>) -> Self {
        let mut below: Arc<dyn Storage> = Arc::new(Shadow::new(Arc::clone(storage)));
        if let Some(now_ms) = self.fixed_now_ms {
            below = Arc::new(FixedClock::new(below, now_ms));
        }
        Self { dir: self.dir.clone(), storage: below, log_options: self.log_options.clone(), ..*self }
    }
}

fn log_options(args: &args::Explain) -> Result<LogOptions, Failure> {
    let mut log_options = LogOptions::new()
        .min_cleanable_dirty_ratio(args.min_cleanable_dirty_ratio)
        .min_compaction_lag_ms(args.min_compaction_lag_ms)
        .max_compaction_lag_ms(args.max_compaction_lag_ms.unwrap_or(i64::MAX));
    if let Some(ms) = args.delete_retention_ms {
        log_options = log_options.delete_retention_ms(ms);
    }
    log_options.check()?;
    Ok(log_options)
}

/// Nobody is kept from working on the log meanwhile: what was replaced while it was read is read anew.
fn explain_at_rest(plan: &Plan, storage: &Arc<dyn Storage>, partition: &OwnedPartition) -> Result<Explained, Failure> {
    for _ in 0..TRIES {
        let plan = plan.anew(storage);
        let owned = OwnedTarget::open(Arc::clone(&plan.storage), &plan.dir)?;
        let dir = owned.data_dir.partition_path(&partition.topic_partition);
        let names = || storage.list(&dir).map(|entries| entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()).ok();
        let before = names();
        let explained = explain(&plan, &owned, partition);
        let is_in_doubt = match &explained {
            Ok(explained) => explained.is_damaged(),
            Err(failure) => failure.is_missing() || failure.is_corruption(),
        };
        if !is_in_doubt || names() == before {
            return explained;
        }
    }
    let what = format!("could not explain {}: its segments are being replaced while it is read", partition.name);
    Err(Failure::new(what).advise("try again when the process that works on it is done"))
}

fn explain(plan: &Plan, owned: &OwnedTarget, partition: &OwnedPartition) -> Result<Explained, Failure> {
    let mut explained = Explained {
        partition: partition.name.clone(),
        bytes: partition.log_bytes,
        known_compacted: is_known_compacted(&owned.data_dir, &partition.topic_partition),
        now_ms: plan.now_ms,
        min_cleanable_dirty_ratio: plan.log_options.min_cleanable_dirty_ratio,
        dirt: None,
        blocked_by: Vec::new(),
        pass: None,
        keys: Keys::default(),
    };
    if !explained.known_compacted {
        explained.blocked_by.push(Blocker::Policy);
    }
    let topic = partition.topic_partition.topic();
    let looked = open_sound(&plan.storage, &plan.dir, owned, partition, &plan.log_options)
        .and_then(|log| look(plan, owned, partition, &log, &mut explained).map(|walk| explained.keys = Keys::new(&walk, topic)));
    match looked {
        Err(failure) if failure.is_corruption() => {
            explained.blocked_by.insert(0, Blocker::Damage { what: failure.to_string() });
            explained.keys = Keys::new(&walk_files(plan, owned, partition)?, topic);
        }
        other => other?,
    }
    Ok(explained)
}

/// Fills in what the log itself tells, and reads its keys.
fn look<'p>(
    plan: &'p Plan,
    owned: &OwnedTarget,
    partition: &OwnedPartition,
    log: &Log,
    explained: &mut Explained,
) -> Result<Walk<'p>, Failure> {
    let checkpoint = owned.data_dir.cleaner_offset(&partition.topic_partition);
    let found = Explanation::of(log, checkpoint, &Rules::from(&plan.log_options), plan.now_ms)?;
    explained.blocked_by.extend(found.obstacles.iter().map(Blocker::from));
    explained.dirt = Some(Dirt::new(log, checkpoint, &found));

    let mut options = CleanOptions::for_log(&plan.log_options, plan.now_ms);
    options.first_dirty = found.dirtiness.first_dirty;
    options.first_uncleanable = Some(found.dirtiness.first_uncleanable);
    options.dedupe_buffer_bytes = pass::DEDUPE_BUFFER_BYTES;
    options.segment_bytes = pass::segment_bytes(log);
    options.threads = pass::threads();
    options.dry_run = true;
    let bar = PassBar::new(&*plan.storage, "trying a pass");
    let report = cleaner::clean(log, &options, &bar)?;
    drop(bar);

    let mut walk = Walk::new(&*plan.storage);
    let set = log.segments();
    let segments = &set.all()[set.position_of(log.start_offset())..];
    let mut progress = Progress::new(&*plan.storage, "counting keys", segments.iter().map(|segment| segment.size_bytes()).sum());
    let mut records = 0;
    for segment in segments {
        walk.segment(&segment.path(), &mut progress)?;
        if segment.base_offset() < report.new_dirty {
            records = walk.records();
        }
    }
    explained.pass = (report.segments_before > 0).then(|| Pass::new(&report, records));
    Ok(walk)
}

/// The keys of a log that does not open.
fn walk_files<'p>(plan: &'p Plan, owned: &OwnedTarget, partition: &OwnedPartition) -> Result<Walk<'p>, Failure> {
    let dir = owned.data_dir.partition_path(&partition.topic_partition);
    let mut walk = Walk::new(&*plan.storage);
    let mut progress = Progress::new(&*plan.storage, "counting keys", partition.log_bytes);
    for segment in Inventory::list(&*plan.storage, &dir)?.segments {
        walk.segment(&dir.join(&segment.log), &mut progress)?;
    }
    if walk.unread_bytes > 0 {
        complain(&format!("{}: {} bytes could not be read; the keys in them are not counted", partition.name, walk.unread_bytes));
    }
    Ok(walk)
}

impl Dirt {
    fn new(log: &Log, checkpoint: Option<u64>, found: &Explanation) -> Self {
        let dirtiness = &found.dirtiness;
        Self {
            start_offset: log.start_offset(),
            end_offset: log.end_offset(),
            checkpoint,
            checkpoint_fault: dirtiness.checkpoint_fault.map(|fault| match fault {
                CheckpointFault::BelowStart => "below-start",
                CheckpointFault::AboveEnd => "above-end",
            }),
            first_dirty: dirtiness.first_dirty,
            first_uncleanable: dirtiness.first_uncleanable,
            clean_bytes: dirtiness.clean_bytes,
            cleanable_bytes: dirtiness.cleanable_bytes,
            uncleanable_bytes: found.uncleanable_bytes,
            dirty_ratio: dirtiness.ratio(),
            due: match found.due {
                Due::Dirty => "dirty",
                Due::Overdue => "overdue",
                Due::NotYet => "not-yet",
                Due::NothingCleanable => "nothing-cleanable",
                Due::Clean => "clean",
            },
            overdue_ms: dirtiness.overdue_ms,
        }
    }
}

impl From<&Obstacle> for Blocker {
    fn from(obstacle: &Obstacle) -> Self {
        match *obstacle {
            Obstacle::OpenTransaction { producer_id, producer_epoch, first_offset, since_ms } => {
                Self::OpenTransaction { offset: first_offset, producer_id, producer_epoch, since_ms }
            }
            Obstacle::CompactionLag { base_offset, until_ms } => Self::CompactionLag { offset: base_offset, until_ms },
            Obstacle::ActiveSegment { base_offset } => Self::ActiveSegment { offset: base_offset },
        }
    }
}

impl Pass {
    /// `records` are in the segments of the pass before it.
    fn new(report: &CleanReport, records: u64) -> Self {
        Self {
            new_dirty: report.new_dirty,
            segments_before: report.segments_before,
            segments_after: report.segments_after,
            bytes_read: report.bytes_read,
            bytes_kept: report.bytes_kept,
            bytes_dropped: report.bytes_read.saturating_sub(report.bytes_kept),
            bytes_written: report.bytes_written,
            records_read: records,
            records_kept: report.records_kept,
            records_dropped: records.saturating_sub(report.records_kept),
            keyless_dropped: report.records_keyless,
            tombstones_kept: report.tombstones_kept,
            map_size: report.map_size,
        }
    }
}

#[cfg(test)]
mod tests;
