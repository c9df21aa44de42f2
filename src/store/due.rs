//! Which logs a round of background work looks at: those that changed, and those whose moment has come. All others are as
//! they were when they were last looked at, however many they are.

use std::collections::{BTreeMap, BTreeSet};

use keeplog_cleaner::schedule::{Agenda, Queue};
use keeplog_engine::sync::atomic::{AtomicU64, Ordering};
use keeplog_engine::sync::{Mutex, MutexGuard, PoisonError};
use keeplog_engine::{Log, TopicPartition};

use super::Inner;

/// What is known of the logs of a store.
#[derive(Default)]
pub(super) struct Due {
    state: Mutex<State>,
    looks: Looks,
}

#[derive(Default)]
struct State {
    cleaning: Queue<TopicPartition>,
    upkeep: Agenda<TopicPartition>,
    /// Logs whose size is limited, with their ends when they were last looked at: any append may be one too many, and tells
    /// nobody.
    limited: BTreeMap<TopicPartition, u64>,
}

/// How many logs were looked at. Told without a wait for a look.
#[derive(Debug, Default)]
struct Looks {
    /// To tell how dirty they are.
    dirtiness: AtomicU64,
    /// To remove old segments, or to close the active one.
    upkeep: AtomicU64,
}

impl Due {
    /// The log that is to be cleaned now, if any is worth it. `may_be_cleaned` says of a log whether it can be at all.
    pub(super) fn next_to_clean(&self, inner: &Inner, may_be_cleaned: impl Fn(&Log) -> bool) -> Option<Log> {
        let mut state = self.state(inner);
        let usable = |name: &TopicPartition| inner.open_log(name).filter(|log| inner.is_to_be_compacted(log) && may_be_cleaned(log));
        for name in state.cleaning.take(inner.data_dir.storage().now_ms()) {
            let Some(log) = usable(&name) else {
                state.cleaning.forget(&name);
                continue;
            };
            self.looks.dirtiness.fetch_add(1, Ordering::Relaxed);
            match inner.look(&log) {
                Ok(look) => state.cleaning.judge(&name, &look.dirtiness, &look.rules, look.holds_until_ms),
                Err(error) => {
                    tracing::warn!(%error, log = %name, "its dirty ratio can't be told");
                    state.cleaning.forget(&name);
                    state.cleaning.note(name);
                }
            }
        }
        inner.metrics.selected(inner.data_dir.storage().monotonic(), state.cleaning.ratio_max());
        let mut chosen = None;
        state.cleaning.choose(|name| {
            chosen = usable(name);
            chosen.is_some()
        });
        chosen
    }

    /// The logs in which old segments may have to go, or the active one may have to be closed.
    pub(super) fn for_upkeep(&self, inner: &Inner) -> Vec<Log> {
        let mut state = self.state(inner);
        let mut names = state.upkeep.take(inner.data_dir.storage().now_ms());
        names.extend(grown(&mut state.limited, inner));
        let logs: Vec<Log> = names.iter().filter_map(|name| inner.open_log(name)).collect();
        let open: BTreeSet<_> = logs.iter().map(Log::topic_partition).collect();
        for name in names.iter().filter(|name| !open.contains(name)) {
            state.upkeep.forget(name);
            state.limited.remove(name);
        }
        self.looks.upkeep.fetch_add(logs.len() as u64, Ordering::Relaxed);
        logs
    }

    /// A log was seen to, and is to be again at `moment_ms`.
    pub(super) fn set_upkeep(&self, log: &Log, moment_ms: Option<i64>) {
        let options = log.current_options();
        let mut state = self.lock();
        state.upkeep.set(log.topic_partition(), moment_ms);
        if options.cleanup_policy.deletes() && options.retention_bytes.is_some() {
            // Of a new one it is not known whether anything was appended since its look.
            state.limited.entry(log.topic_partition().clone()).or_insert(0);
        } else {
            state.limited.remove(log.topic_partition());
        }
    }

    /// How many looks were taken so far: at how dirty logs are, and at their upkeep.
    pub(super) fn looks(&self) -> [u64; 2] {
        [&self.looks.dirtiness, &self.looks.upkeep].map(|looks| looks.load(Ordering::Relaxed))
    }

    /// The state, in which is noted what has changed.
    fn state(&self, inner: &Inner) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        for name in inner.data_dir.take_changed() {
            state.cleaning.note(name.clone());
            state.upkeep.note(name);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // notes; a lost one is made up for by the log's next change
    }
}

/// Those whose end has moved since the last look.
fn grown(limited: &mut BTreeMap<TopicPartition, u64>, inner: &Inner) -> Vec<TopicPartition> {
    let logs = inner.logs();
    let moved = limited.iter_mut().filter_map(|(name, end)| {
        let now = logs.open.get(name).map_or(*end, Log::end_offset);
        (std::mem::replace(end, now) != now).then(|| name.clone())
    });
    moved.collect()
}

#[cfg(test)]
mod tests;
