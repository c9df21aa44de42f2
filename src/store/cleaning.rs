//! How dirty a log is, and one pass over it with what the store remembers.

use std::sync::Arc;

use keeplog_cleaner::schedule::{Dirtiness, LogFacts, Rules};
use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, clean};
use keeplog_engine::{DataDir, Error, Log, Result, TopicPartition};

use super::Inner;
use super::pace::Paced;
use super::progress::summarize;
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
        if !Arc::ptr_eq(log.data_dir(), &self.data_dir) {
            return Err(Error::invalid("clean", "the log is not one of this store").at(log.path()));
        }
        let pass = self.passes.begin(log.topic_partition())?;
        // After that: who changes the policy ends the passes that began before.
        let log_options = log.current_options();
        if !log_options.cleanup_policy.compacts() {
            return Err(Error::invalid("clean", "its cleanup_policy does not compact any more").at(log.path()));
        }
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
        let paced = Paced::begin(self, log, &pass, sake);
        let report = clean(log, &options, &self.in_progress.watch(log, &paced)).inspect_err(|_| self.metrics.pass_failed())?;
        if report.outcome == CleanOutcome::Cleaned {
            log.set_cleaner_offset(report.new_dirty, as_of);
            if sake == For::Caller {
                self.data_dir.write_checkpoints()?;
            }
        }
        summarize(log.topic_partition(), &report);
        self.metrics.pass_ended(log, &report, dirtiness.overdue_ms);
        Ok(report)
    }

    /// Bytes of the dirty section up to the active segment, as far as they can be told.
    pub(super) fn dirty_bytes(&self, log: &Log) -> u64 {
        let facts = LogFacts::read(log, self.data_dir.cleaner_offset(log.topic_partition()), &NO_LAGS);
        facts.map_or(0, |facts| Dirtiness::of(&facts, &NO_LAGS, log.storage().now_ms()).cleanable_bytes)
    }
}
