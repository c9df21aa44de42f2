//! Which log is cleaned next, and one pass over it with what the store remembers.

use std::sync::Arc;

use keeplog_cleaner::schedule::{Dirtiness, LogFacts, Rules, choose};
use keeplog_cleaner::{CleanOptions, CleanOutcome, CleanReport, Watch, clean};
use keeplog_engine::{Error, Log, Result};

use super::Inner;

impl Inner {
    /// The log that is most worth a pass now, if any is.
    pub(super) fn dirtiest(&self, logs: &[Log]) -> Option<Log> {
        let mut candidates = Vec::new();
        let mut dirtiness = Vec::new();
        for log in logs.iter().filter(|l| l.options().cleanup_policy.compacts()) {
            match self.dirtiness(log) {
                Ok(found) => {
                    candidates.push(log);
                    dirtiness.push((found, Rules::from(log.options())));
                }
                Err(error) => tracing::warn!(%error, log = %log.topic_partition(), "its dirty ratio can't be told"),
            }
        }
        choose(&dirtiness).map(|at| candidates[at].clone())
    }

    /// How much of a log is dirty. A checkpoint that lies outside of the log is corrected at once.
    pub(super) fn dirtiness(&self, log: &Log) -> Result<Dirtiness> {
        let rules = Rules::from(log.options());
        let name = log.topic_partition();
        let facts = LogFacts::read(log, self.data_dir.cleaner_offset(name), &rules)?;
        let dirtiness = Dirtiness::of(&facts, &rules, log.storage().now_ms());
        if let Some(fault) = dirtiness.checkpoint_fault {
            tracing::warn!(log = %name, ?fault, first_dirty = dirtiness.first_dirty, "the cleaner's checkpoint did not fit the log and was corrected");
            self.data_dir.set_cleaner_offset(name, Some(dirtiness.first_dirty));
        }
        Ok(dirtiness)
    }

    /// One pass; how far it got is saved.
    pub(super) fn clean(&self, log: &Log, watch: &dyn Watch) -> Result<CleanReport> {
        if !Arc::ptr_eq(log.data_dir(), &self.data_dir) {
            return Err(Error::invalid("clean", "the log is not one of this store").at(log.path()));
        }
        let dirtiness = self.dirtiness(log)?;
        let mut options = CleanOptions::for_log(log.options(), log.storage().now_ms());
        options.first_dirty = dirtiness.first_dirty;
        options.first_uncleanable = Some(dirtiness.first_uncleanable);
        options.dedupe_buffer_bytes = self.options.log_cleaner_dedupe_buffer_size;
        let report = clean(log, &options, watch)?;
        if report.outcome == CleanOutcome::Cleaned {
            self.data_dir.set_cleaner_offset(log.topic_partition(), Some(report.new_dirty));
            self.data_dir.write_checkpoints()?;
        }
        Ok(report)
    }
}
