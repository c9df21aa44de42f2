//! `keeplog compact`: one pass of the cleaner over a log, in place.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::args;
use crate::door::cleaner::{self, CleanOptions, CleanOutcome, CleanReport, Merge, Overflow, Watch};
use crate::door::storage::FixedClock;
use crate::door::{Log, LogOptions, RecoveryMode, Storage, is_known_compacted};
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::owned::{OwnedPartition, OwnedTarget};
use crate::progress::Progress;
use crate::shadow::Shadow;
use crate::{Status, complain};

/// Small segments are merged up to the size of the largest there is, but at least to this.
const SEGMENT_BYTES_DEFAULT: u64 = 10 << 20;
/// Memory for the keys of a pass, unless its size is given.
const DEDUPE_BUFFER_BYTES: u64 = 1 << 30;
/// What a key takes of that memory, rounded up.
const KEY_BYTES: u64 = 12;

/// The arguments, resolved.
struct Plan {
    dir: PathBuf,
    storage: Arc<dyn Storage>,
    now_ms: i64,
    from: Option<u64>,
    to: Option<u64>,
    /// Keys that fit into one pass.
    keys_max: Option<u64>,
    segment_bytes: Option<u32>,
    merge: Merge,
    delete_retention_ms: Option<i64>,
    log_options: LogOptions,
    threads: usize,
    dry_run: bool,
}

/// What a pass over one partition came to. `bytes_*` and `records_*` are counted as Kafka does: of all segments in the
/// range, before and after.
#[derive(Debug, Serialize)]
struct Compacted {
    partition: String,
    dry_run: bool,
    first_dirty: u64,
    first_uncleanable: u64,
    new_dirty: u64,
    bytes_read: u64,
    bytes_written: u64,
    records_read: u64,
    records_written: u64,
    map_size: u64,
    seconds: f64,
    segments_before: usize,
    segments_after: usize,
    tombstones: u64,
    keyless_dropped: u64,
    /// Why it ends at the first uncleanable offset.
    #[serde(skip)]
    bound: String,
}

pub(crate) fn run(args: &args::Compact, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let plan = Plan::resolve(args, storage)?;
    let owned = OwnedTarget::open(Arc::clone(&plan.storage), &plan.dir)?;
    let mut out = Out::of_work();
    let result = owned.each(|partition| {
        if owned.is_whole_dir() && !args.all && !is_known_compacted(&owned.data_dir, &partition.topic_partition) {
            let why = "nothing says that it is compacted by policy, and compacting another log would lose data; --all compacts it, as does naming it";
            complain(&format!("left out {}: {why}", partition.name));
            return Ok(Status::Fine);
        }
        let compacted = compact(&plan, &owned, partition)?;
        if args.json {
            out.json(&compacted)?;
        } else {
            out.text(&text(&compacted))?;
        }
        out.flush()?;
        Ok(Status::Fine)
    });
    // Also after a failure: what was cleaned keeps its checkpoints.
    let closed = owned.close();
    let status = result?;
    closed?;
    Ok(status)
}

impl Plan {
    fn resolve(args: &args::Compact, storage: &Arc<dyn Storage>) -> Result<Self, Failure> {
        let mut below = Arc::clone(storage);
        if args.dry_run {
            below = Arc::new(Shadow::new(below));
        }
        if let Some(now_ms) = args.now {
            below = Arc::new(FixedClock::new(below, now_ms));
        }
        let mut log_options = LogOptions::new();
        if let Some(bytes) = args.index_interval_bytes {
            log_options = log_options.index_interval_bytes(bytes);
        }
        if let Some(bytes) = args.index_bytes {
            log_options = log_options.segment_index_bytes(bytes);
        }
        log_options.check()?;
        Ok(Self {
            dir: args.dir.clone(),
            now_ms: below.now_ms(),
            storage: below,
            from: args.from,
            to: args.to,
            // As Kafka rounds it.
            keys_max: args.map_slots.map(|slots| (slots as f64 * args.load_factor) as u64),
            segment_bytes: args.segment_bytes,
            merge: match args.merge {
                args::Merge::Kept => Merge::Kept,
                args::Merge::Sources => Merge::Sources,
            },
            delete_retention_ms: args.delete_retention_ms,
            log_options,
            threads: args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), usize::from),
            dry_run: args.dry_run,
        })
    }

    fn clean_options(&self, log: &Log, first_dirty: u64) -> CleanOptions {
        let largest = log.segments().all().iter().map(|segment| segment.size_bytes()).max().unwrap_or(0).max(SEGMENT_BYTES_DEFAULT);
        let mut options = CleanOptions::new(self.now_ms);
        options.first_dirty = first_dirty;
        options.first_uncleanable = self.to;
        options.dedupe_keys_max = self.keys_max;
        if self.keys_max.is_some() {
            // Whoever gives a number of slots wants the pass that Kafka's map of so many makes.
            options.overflow = Overflow::EndPass;
        }
        options.dedupe_buffer_bytes =
            self.keys_max.map_or(DEDUPE_BUFFER_BYTES, |keys| keys.saturating_mul(KEY_BYTES).max(options.dedupe_buffer_bytes));
        options.segment_bytes = self.segment_bytes.unwrap_or_else(|| u32::try_from(largest).unwrap_or(i32::MAX as u32));
        options.merge = self.merge;
        options.segment_index_bytes = self.log_options.segment_index_bytes;
        options.delete_retention_ms = self.delete_retention_ms.unwrap_or(self.log_options.delete_retention_ms);
        options.threads = self.threads;
        options.dry_run = self.dry_run;
        options
    }
}

fn compact(plan: &Plan, owned: &OwnedTarget, partition: &OwnedPartition) -> Result<Compacted, Failure> {
    let name = &partition.topic_partition;
    let log = open_sound(plan, owned, partition)?;
    let known = owned.data_dir.cleaner_offset(name);
    let first_dirty = plan.from.unwrap_or_else(|| known.unwrap_or(0).clamp(log.start_offset(), log.end_offset()));
    let watch = Bar { progress: Mutex::new(Progress::new(&*plan.storage, "compacting", 0)) };
    let report = cleaner::clean(&log, &plan.clean_options(&log, first_dirty), &watch);
    drop(watch);
    let bound = bound(&log, plan.to);
    let closed = log.close();
    let report = report?;
    closed?;
    // A pass that began above the dirty section says nothing about what lies between.
    let joins = first_dirty <= known.unwrap_or(0).max(log.start_offset());
    if report.outcome == CleanOutcome::Cleaned && joins {
        owned.data_dir.set_cleaner_offset(name, Some(report.new_dirty));
    }
    Ok(Compacted::new(&partition.name, &report, bound))
}

/// Opens the log if it is sound, or but for a torn tail. Of another one the records are left as they are: what a pass took
/// away could not be looked for any more, and what recovery cuts off is for somebody to decide.
fn open_sound(plan: &Plan, owned: &OwnedTarget, partition: &OwnedPartition) -> Result<Log, Failure> {
    let name = &partition.topic_partition;
    let strict = plan.log_options.clone().recovery_mode(RecoveryMode::Strict);
    match Log::open_in(&owned.data_dir, name, strict) {
        Ok(log) if log.recovery_report().is_sound() => return Ok(log),
        Ok(log) => {
            report_recovery(&log, partition);
            let _ = log.close();
            return Err(refused(partition));
        }
        Err(error) if error.is_corruption() => {}
        Err(error) => return Err(error.into()),
    }
    let shadow = OwnedTarget::open(Arc::new(Shadow::new(Arc::clone(&plan.storage))), &plan.dir)?;
    let tried = Log::open_in(&shadow.data_dir, name, plan.log_options.clone())?;
    report_recovery(&tried, partition);
    if !tried.recovery_report().is_sound() {
        return Err(refused(partition));
    }
    drop(tried);
    Ok(Log::open_in(&owned.data_dir, name, plan.log_options.clone())?)
}

fn refused(partition: &OwnedPartition) -> Failure {
    let what = format!("could not compact {}: it is damaged, or something is missing; its records were left as they are", partition.name);
    Failure::damaged(what)
        .advise("keeplog recover mends what can be mended, and says what is left (first with --dry-run); then compact again")
}

/// What a pass stays below, and why.
fn bound(log: &Log, to: Option<u64>) -> String {
    let (active, stable) = (log.segments().active().base_offset(), log.last_stable_offset());
    if to.is_some_and(|to| to < active.min(stable)) {
        "the rest is left out by --to".to_owned()
    } else if stable < active {
        format!("a transaction is open since offset {stable}")
    } else {
        format!("the active segment, from {active} on, is never cleaned")
    }
}

/// A log that was not closed in order is recovered first; what that costs, or would cost, is worth a word.
fn report_recovery(log: &Log, partition: &OwnedPartition) {
    let report = log.recovery_report();
    if report.cut_bytes() > 0 {
        let bytes = output::counted(report.cut_bytes(), "byte", "bytes");
        let what =
            if report.is_sound() { format!("a torn tail of {bytes} is cut off first") } else { format!("recovery would cut off {bytes}") };
        complain(&format!("{}: {what}", partition.name));
    }
    if let Some(lost) = &report.lost {
        complain(&format!("{}: offsets {}..{} are gone, and were safe once", partition.name, lost.start, lost.end));
    }
    if let Some(end) = report.ended_below_start {
        complain(&format!("{}: the log ends at {end}, below its start offset {}", partition.name, report.log_start_offset));
    }
    for damage in &report.damage {
        let place = format!("{} at byte {} (offset {})", damage.file, damage.position, damage.offset);
        complain(&format!("{}: recovery would find damage in {place}: {}", partition.name, damage.what));
    }
}

/// Shows the progress of a pass.
struct Bar<'s> {
    progress: Mutex<Progress<'s>>,
}

impl Watch for Bar<'_> {
    fn progress(&self, progress: cleaner::Progress) {
        let mut bar = self.progress.lock().unwrap_or_else(PoisonError::into_inner); // a bar is no state worth losing
        bar.set(progress.bytes_done, progress.bytes_total);
    }
}

impl Compacted {
    fn new(partition: &str, report: &CleanReport, bound: String) -> Self {
        Self {
            partition: partition.to_owned(),
            dry_run: report.dry_run,
            first_dirty: report.first_dirty,
            first_uncleanable: report.first_uncleanable,
            new_dirty: report.new_dirty,
            bytes_read: report.bytes_read,
            bytes_written: report.bytes_kept,
            records_read: report.records_read,
            records_written: report.records_kept,
            map_size: report.map_size,
            seconds: report.seconds,
            segments_before: report.segments_before,
            segments_after: report.segments_after,
            tombstones: report.tombstones_kept,
            keyless_dropped: report.records_keyless,
            bound,
        }
    }
}

fn text(compacted: &Compacted) -> String {
    let c = compacted;
    if c.segments_before == 0 {
        return format!("{}: nothing to clean from offset {} to {} ({})\n", c.partition, c.first_dirty, c.first_uncleanable, c.bound);
    }
    let verb = if c.dry_run { "would clean" } else { "cleaned" };
    let mut lines = vec![
        format!("{}: {verb} offsets {}..{} in {}", c.partition, c.first_dirty, c.new_dirty, output::seconds(c.seconds)),
        format!(
            "  bytes     {} to {}, {} of it",
            output::bytes(c.bytes_read),
            output::bytes(c.bytes_written),
            output::percent(c.bytes_written, c.bytes_read)
        ),
        format!("  segments  {} to {}", output::count(c.segments_before as u64), output::count(c.segments_after as u64)),
        format!(
            "  records   {} to {}, {} among them",
            output::count(c.records_read),
            output::count(c.records_written),
            output::counted(c.tombstones, "tombstone", "tombstones")
        ),
        format!("  keys      {} in the dirty section", output::count(c.map_size)),
    ];
    if c.keyless_dropped > 0 {
        lines.push(format!("  dropped   {} without a key", output::counted(c.keyless_dropped, "record", "records")));
    }
    if c.new_dirty < c.first_uncleanable {
        lines.push(format!("  the keys did not all fit: run it again, and it goes on at offset {}", c.new_dirty));
    }
    lines.join("\n") + "\n"
}
