//! How dirty a log is, and one pass over it with what the store remembers.

use std::sync::Arc;

use keeplog_cleaner::schedule::{Dirtiness, LogFacts, Rules};
use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, Progress, Watch, clean};
use keeplog_engine::{DataDir, Error, Log, LogOptions, Result, TopicPartition};

use super::Inner;
use super::pace::Paced;
use super::passes::Pass;
use super::progress::summarize;
use super::tally::LastClean;
use crate::{CONSUMER_OFFSETS, TRANSACTION_STATE};

/// All that is dirty counts, however young.
const NO_LAGS: Rules = Rules { min_cleanable_dirty_ratio: 0.0, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX };

/// Whether a log is known to be compacted by policy, which is written down nowhere in a data directory: Kafka's own
/// topics are, and those that a cleaner has been at.
pub fn is_known_compacted(data_dir: &DataDir, name: &TopicPartition) -> bool {
    [CONSUMER_OFFSETS, TRANSACTION_STATE].contains(&name.topic()) || data_dir.cleaner_offset(name).is_some()
}

/// How dirty a log is, and until when that holds.
pub(super) struct Look {
    pub(super) dirtiness: Dirtiness,
    pub(super) rules: Rules,
    /// See [`LogFacts::holds_until_ms`].
    pub(super) holds_until_ms: Option<i64>,
}

/// Who wants a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// The rounds of background work: only while they are to clean, and how far it got is saved by them.
    Background,
    /// The application.
    Caller,
}

/// A pass that the store keeps to its pace and somebody else watches.
struct Both<'a> {
    paced: &'a Paced<'a>,
    watch: &'a dyn Watch,
}

impl Watch for Both<'_> {
    fn progress(&self, progress: Progress) {
        self.watch.progress(progress);
    }

    fn is_stopped(&self) -> bool {
        self.paced.is_stopped() || self.watch.is_stopped()
    }

    fn wants_room(&self) -> bool {
        self.watch.wants_room() || self.paced.wants_room()
    }

    fn charge(&self, bytes: u64) {
        self.watch.charge(bytes);
        self.paced.charge(bytes);
    }
}

/// The settings of a log, if its policy compacts.
fn compacting(log: &Log) -> Result<LogOptions> {
    let options = log.current_options();
    if options.cleanup_policy.compacts() {
        return Ok(options);
    }
    Err(Error::invalid("clean", "its cleanup_policy does not compact any more").at(log.path()))
}

impl Inner {
    /// Whether the background cleaner takes this log: its policy compacts, and somebody has said, in one way or another, that
    /// it is meant to: see [`Store::open`](crate::Store::open).
    pub(super) fn is_to_be_compacted(&self, log: &Log) -> bool {
        let name = log.topic_partition();
        if !log.current_options().cleanup_policy.compacts() {
            return false;
        }
        // On its own: nothing else is taken while the options are held.
        let has_settings = self.options().topics.contains_key(name.topic());
        has_settings || is_known_compacted(&self.data_dir, name) || self.logs().asked_for.contains(name)
    }

    /// How much of a log is dirty. A checkpoint that lies outside of the log is corrected at once.
    pub(super) fn look(&self, log: &Log) -> Result<Look> {
        let rules = Rules::from(&log.current_options());
        let (name, as_of, now_ms) = (log.topic_partition(), log.truncations(), log.storage().now_ms());
        let facts = LogFacts::read(log, self.data_dir.cleaner_offset(name), &rules)?;
        let dirtiness = Dirtiness::of(&facts, &rules, now_ms);
        if let Some(fault) = dirtiness.checkpoint_fault {
            tracing::warn!(log = %name, ?fault, first_dirty = dirtiness.first_dirty, "the cleaner's checkpoint did not fit the log and was corrected");
            log.set_cleaner_offset(dirtiness.first_dirty, as_of);
        }
        Ok(Look { dirtiness, rules, holds_until_ms: facts.holds_until_ms(&rules, now_ms) })
    }

    /// One pass. How far it got is remembered, and saved where the background does not do it later.
    pub(super) fn clean(&self, log: &Log, sake: For) -> Result<CleanReport> {
        let pass = self.begin_pass(log)?;
        // After that: who changes the policy ends the passes that began before.
        let log_options = compacting(log)?;
        let as_of = log.truncations();
        let dirtiness = self.look(log)?.dirtiness;
        let mut options = CleanOptions::for_log(&log_options, log.storage().now_ms());
        options.first_dirty = dirtiness.first_dirty;
        options.as_of_truncations = Some(as_of);
        options.first_uncleanable = Some(dirtiness.first_uncleanable);
        {
            let settings = self.options();
            options.threads = settings.log_cleaner_threads;
            options.dedupe_buffer_bytes = settings.log_cleaner_dedupe_buffer_size;
        }
        let report = self.run(log, &options, &Paced::begin(self, log, &pass, sake))?;
        self.pass_ended(log, &report, dirtiness.overdue_ms);
        if report.outcome == CleanOutcome::Cleaned {
            log.set_cleaner_offset(report.new_dirty, as_of);
            if sake == For::Caller {
                self.data_dir.write_checkpoints()?;
            }
        }
        Ok(report)
    }

    /// One pass with settings of the caller's own.
    pub(super) fn clean_with(&self, log: &Log, options: &CleanOptions, watch: &dyn Watch) -> Result<CleanReport> {
        let pass = self.begin_pass(log)?;
        compacting(log)?;
        let as_of = log.truncations();
        let known = self.data_dir.cleaner_offset(log.topic_partition()).unwrap_or(0).max(log.start_offset());
        let options = options.clone().as_of_truncations(options.as_of_truncations.or(Some(as_of)));
        let paced = Paced::begin(self, log, &pass, For::Caller);
        let report = self.run(log, &options, &Both { paced: &paced, watch })?;
        if options.dry_run {
            return Ok(report);
        }
        self.pass_ended(log, &report, 0);
        // What lies between, a pass that began above it says nothing about.
        if report.outcome == CleanOutcome::Cleaned && report.first_dirty <= known && report.new_dirty > known {
            log.set_cleaner_offset(report.new_dirty, as_of);
            self.data_dir.write_checkpoints()?;
        }
        Ok(report)
    }

    fn begin_pass(&self, log: &Log) -> Result<Pass<'_>> {
        if !Arc::ptr_eq(log.data_dir(), &self.data_dir) {
            return Err(Error::invalid("clean", "the log is not one of this store").at(log.path()));
        }
        self.check_open("clean")?;
        self.passes.begin(log.topic_partition())
    }

    fn run(&self, log: &Log, options: &CleanOptions, watch: &dyn Watch) -> Result<CleanReport> {
        clean(log, options, &self.in_progress.watch(log, watch)).inspect_err(|_| {
            if !options.dry_run {
                self.tally.failed();
                self.metrics.pass_failed();
            }
        })
    }

    /// Counts a pass that is over, where it came to its end.
    fn pass_ended(&self, log: &Log, report: &CleanReport, overdue_ms: i64) {
        let name = log.topic_partition();
        summarize(name, report);
        if report.outcome != CleanOutcome::Cleaned {
            return;
        }
        self.metrics.pass_ended(log, report, overdue_ms);
        self.tally.cleaned(report);
        // Both locks: what is known of a log that is deleted meanwhile goes with it.
        let logs = self.logs();
        if logs.holds(log) {
            self.tally.note_last(name.clone(), LastClean { report: report.clone(), ended_ms: log.storage().now_ms() });
        }
    }

    /// Bytes of the dirty section up to the active segment, as far as they can be told.
    pub(super) fn dirty_bytes(&self, log: &Log) -> u64 {
        let facts = LogFacts::read(log, self.data_dir.cleaner_offset(log.topic_partition()), &NO_LAGS);
        facts.map_or(0, |facts| Dirtiness::of(&facts, &NO_LAGS, log.storage().now_ms()).cleanable_bytes)
    }
}
