//! `keeplog compact`: one pass of the cleaner over a log, in place.

use std::path::PathBuf;
use std::sync::Arc;

use crate::args;
use crate::door::cleaner::{self, CleanOptions, CleanOutcome, Merge, Overflow};
use crate::door::storage::FixedClock;
use crate::door::{Log, LogOptions, Storage, is_known_compacted};
use crate::failure::Failure;
use crate::opened::open_sound;
use crate::output::Out;
use crate::owned::{OwnedPartition, OwnedTarget};
use crate::pass::{self, Bound, PassBar, Passed};
use crate::shadow::Shadow;
use crate::{Status, complain};

/// What a key takes of that memory, rounded up.
const KEY_BYTES: u64 = 12;
/// What is taken without `--map-slots`.
const DEFAULT_MAP: &str = "as many keys as fit into 1 GiB are taken";

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
            out.text(&compacted.text())?;
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
        // As Kafka rounds it.
        let keys_max = args.map_slots.map(|slots| (slots as f64 * args.load_factor) as u64);
        if let (Some(0), Some(slots)) = (keys_max, args.map_slots) {
            let what = format!("could not compact: --map-slots {slots} with --load-factor {} leaves no room for a key", args.load_factor);
            let least = (1.0 / args.load_factor).ceil();
            return Err(Failure::new(what).advise(format!("give at least --map-slots {least}, or leave it out: then {DEFAULT_MAP}")));
        }
        Ok(Self {
            dir: args.dir.clone(),
            now_ms: below.now_ms(),
            storage: below,
            from: args.from,
            to: args.to,
            keys_max,
            segment_bytes: args.segment_bytes,
            merge: match args.merge {
                args::Merge::Kept => Merge::Kept,
                args::Merge::Sources => Merge::Sources,
            },
            delete_retention_ms: args.delete_retention_ms,
            log_options,
            threads: args.threads.map_or_else(pass::threads, usize::from),
            dry_run: args.dry_run,
        })
    }

    fn clean_options(&self, log: &Log, first_dirty: u64) -> CleanOptions {
        let mut options = CleanOptions::new(self.now_ms);
        options.first_dirty = first_dirty;
        options.first_uncleanable = self.to;
        options.dedupe_keys_max = self.keys_max;
        if self.keys_max.is_some() {
            // Whoever gives a number of slots wants the pass that Kafka's map of so many makes.
            options.overflow = Overflow::EndPass;
        }
        options.dedupe_buffer_bytes =
            self.keys_max.map_or(pass::DEDUPE_BUFFER_BYTES, |keys| keys.saturating_mul(KEY_BYTES).max(options.dedupe_buffer_bytes));
        options.segment_bytes = self.segment_bytes.unwrap_or_else(|| pass::segment_bytes(log));
        options.merge = self.merge;
        options.segment_index_bytes = self.log_options.segment_index_bytes;
        options.delete_retention_ms = self.delete_retention_ms.unwrap_or(self.log_options.delete_retention_ms);
        options.threads = self.threads;
        options.dry_run = self.dry_run;
        options
    }
}

fn compact(plan: &Plan, owned: &OwnedTarget, partition: &OwnedPartition) -> Result<Passed, Failure> {
    let name = &partition.topic_partition;
    let log = open_sound(&plan.storage, &plan.dir, owned, partition, &plan.log_options)?;
    let known = owned.data_dir.cleaner_offset(name);
    let first_dirty = plan.from.unwrap_or_else(|| known.unwrap_or(0).clamp(log.start_offset(), log.end_offset()));
    let watch = PassBar::new(&*plan.storage, "compacting");
    let report = cleaner::clean(&log, &plan.clean_options(&log, first_dirty), &watch);
    drop(watch);
    let bound = Bound::of(&log, plan.to);
    let closed = log.close();
    let report = report?;
    closed?;
    // A pass that began above the dirty section says nothing about what lies between.
    let joins = first_dirty <= known.unwrap_or(0).max(log.start_offset());
    if report.outcome == CleanOutcome::Cleaned && joins {
        owned.data_dir.set_cleaner_offset(name, Some(report.new_dirty));
    }
    Ok(Passed::new(&partition.name, &report, bound))
}
