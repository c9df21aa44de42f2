//! Which log is cleaned next, and one pass over it with what the store remembers.

use std::collections::BTreeMap;
use std::sync::Arc;

use keeplog_cleaner::schedule::{Candidate, Dirtiness, LogFacts, Rules, choose};
use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, Watch, clean};
use keeplog_engine::{DataDir, Error, Log, Result, TopicPartition};

use super::Inner;
use super::passes::summarize;
use crate::{CONSUMER_OFFSETS, TRANSACTION_STATE};

/// All that is dirty counts, however young.
const NO_LAGS: Rules = Rules { min_cleanable_dirty_ratio: 0.0, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX };

/// Whether a log is known to be compacted by policy, which is written down nowhere in a data directory: Kafka's own
/// topics are, and those that a cleaner has been at.
pub fn is_known_compacted(data_dir: &DataDir, name: &TopicPartition) -> bool {
    [CONSUMER_OFFSETS, TRANSACTION_STATE].contains(&name.topic()) || data_dir.cleaner_offset(name).is_some()
}

impl Inner {
    /// The log that is to be cleaned now, if any is worth it. `waited` says how many passes over others each has let go
    /// first, and is brought up to date.
    pub(super) fn next_to_clean(&self, logs: &[Log], waited: &mut BTreeMap<TopicPartition, u32>) -> Option<Log> {
        let mut known = Vec::new();
        let mut candidates = Vec::new();
        for log in logs.iter().filter(|l| l.options().cleanup_policy.compacts() && self.is_meant(l.topic_partition())) {
            match self.dirtiness(log) {
                Ok(dirtiness) => {
                    let passes_waited = waited.get(log.topic_partition()).copied().unwrap_or(0);
                    known.push(log);
                    candidates.push(Candidate { dirtiness, rules: Rules::from(log.options()), passes_waited });
                }
                Err(error) => tracing::warn!(%error, log = %log.topic_partition(), "its dirty ratio can't be told"),
            }
        }
        let dirtiest = candidates.iter().map(|candidate| candidate.dirtiness.ratio()).fold(0.0, f64::max);
        self.metrics.selected(self.data_dir.storage().monotonic(), dirtiest);
        let chosen = choose(&candidates);
        let others =
            known.iter().zip(&candidates).enumerate().filter(|(at, (_, candidate))| Some(*at) != chosen && candidate.is_eligible());
        *waited = others.map(|(_, (log, candidate))| (log.topic_partition().clone(), candidate.passes_waited.saturating_add(1))).collect();
        chosen.map(|at| known[at].clone())
    }

    /// Whether somebody has said, in one way or another, that this log is compacted: see [`Store::open`](crate::Store::open).
    fn is_meant(&self, name: &TopicPartition) -> bool {
        self.options.topics.contains_key(name.topic()) || is_known_compacted(&self.data_dir, name) || self.logs().asked_for.contains(name)
    }

    /// How much of a log is dirty. A checkpoint that lies outside of the log is corrected at once.
    pub(super) fn dirtiness(&self, log: &Log) -> Result<Dirtiness> {
        let rules = Rules::from(log.options());
        let (name, as_of) = (log.topic_partition(), log.truncations());
        let facts = LogFacts::read(log, self.data_dir.cleaner_offset(name), &rules)?;
        let dirtiness = Dirtiness::of(&facts, &rules, log.storage().now_ms());
        if let Some(fault) = dirtiness.checkpoint_fault {
            tracing::warn!(log = %name, ?fault, first_dirty = dirtiness.first_dirty, "the cleaner's checkpoint did not fit the log and was corrected");
            log.set_cleaner_offset(dirtiness.first_dirty, as_of);
        }
        Ok(dirtiness)
    }

    /// One pass; how far it got is saved.
    pub(super) fn clean(&self, log: &Log, watch: &dyn Watch) -> Result<CleanReport> {
        if !Arc::ptr_eq(log.data_dir(), &self.data_dir) {
            return Err(Error::invalid("clean", "the log is not one of this store").at(log.path()));
        }
        let as_of = log.truncations();
        let dirtiness = self.dirtiness(log)?;
        let mut options = CleanOptions::for_log(log.options(), log.storage().now_ms());
        options.first_dirty = dirtiness.first_dirty;
        options.as_of_truncations = Some(as_of);
        options.first_uncleanable = Some(dirtiness.first_uncleanable);
        options.threads = self.options.log_cleaner_threads;
        options.dedupe_buffer_bytes = self.options.log_cleaner_dedupe_buffer_size;
        let report = clean(log, &options, &self.passes.begin(log, watch)).inspect_err(|_| self.metrics.pass_failed())?;
        if report.outcome == CleanOutcome::Cleaned {
            log.set_cleaner_offset(report.new_dirty, as_of);
            self.data_dir.write_checkpoints()?;
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
