//! Many logs under one directory: the composition root, and the only place where threads start.

mod background;
mod cleaning;
mod due;
mod growth;
mod guard;
mod metrics;
mod options;
mod pace;
mod passes;
mod progress;
mod settings;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use keeplog_cleaner::{CleanOptions, CleanReport, Watch};
use keeplog_engine::names::{FileKind, FileName};
use keeplog_engine::storage::{RealStorage, Storage};
use keeplog_engine::sync::{Arc, Mutex, MutexGuard, PoisonError, map_each};
use keeplog_engine::{DataDir, Error, ErrorKind, Log, Result, TopicPartition};

pub use background::CleanerStatus;
pub use cleaning::is_known_compacted;
pub use metrics::METRICS;
pub use options::StoreOptions;
pub use passes::CleaningPause;
pub use progress::PassProgress;
pub use settings::CleanerSettings;
pub use tally::LastClean;

use background::Background;
use cleaning::For;
use guard::Guard;
use metrics::StoreMetrics;
use pace::Pace;
use passes::Passes;
use progress::InProgress;
use tally::Tally;

/// A directory of logs, open for this process alone, with a background cleaner for those that are compacted.
///
/// A handle: cheap to clone, usable from any thread. The store is closed when the last clone is dropped;
/// [`Store::close`] does it at once and returns the error that a drop must swallow.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// Stops the background thread when the last handle goes; the thread holds only `inner`'s parts.
    background: Arc<Background>,
}

pub(crate) struct Inner {
    data_dir: Arc<DataDir>,
    /// Some of them change while the store is open. Nothing else is taken while it is held.
    options: Mutex<StoreOptions>,
    pace: Arc<Pace>,
    guard: Guard,
    passes: Passes,
    in_progress: InProgress,
    tally: Tally,
    metrics: StoreMetrics,
    logs: Mutex<Logs>,
    /// Held from the beginning of the close to its end.
    closing: Mutex<()>,
}

#[derive(Default)]
struct Logs {
    open: BTreeMap<TopicPartition, Log>,
    failed: BTreeMap<TopicPartition, Error>,
    /// Those that the application has asked for.
    asked_for: BTreeSet<TopicPartition>,
    closed: bool,
}

impl Logs {
    /// Whether `log` is still the one of its name. Clones of a handle share what it refers to.
    fn holds(&self, log: &Log) -> bool {
        self.open.get(log.topic_partition()).is_some_and(|open| std::ptr::eq(open.topic_partition(), log.topic_partition()))
    }
}

impl Store {
    /// Opens the directory `path`, creating it if it is missing, and every log in it; logs that were not closed
    /// cleanly are recovered, several at a time. A log that does not open does not keep the others from it: see
    /// [`Store::failed`].
    ///
    /// Compacting a log that is not meant to be compacted destroys it, and no file of a data directory says which are. So the
    /// background cleaner takes only logs that it is told of: those of topics with settings of their own
    /// ([`StoreOptions::topic`]), those that the application has asked for ([`Store::log`]), Kafka's own compacted topics,
    /// and those that a cleaner has been at before. Of these, the ones whose `cleanup_policy` compacts.
    ///
    /// # Errors
    /// `Locked` if another process or handle owns the directory; `InvalidInput` for options that can't work, and for the
    /// directory of a single log.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Self::open_with(Arc::new(RealStorage::new()), path.as_ref(), options)
    }

    /// As [`Store::open`], over any storage.
    pub fn open_with(storage: Arc<dyn Storage>, path: &Path, options: StoreOptions) -> Result<Self> {
        options.check()?;
        refuse_partition(&*storage, path)?;
        let data_dir = Arc::new(DataDir::open_or_create(storage, path)?);
        for warning in data_dir.warnings() {
            tracing::warn!(path = %warning.path.display(), "{}", warning.detail);
        }
        let opened = map_each(data_dir.partitions(), |name| {
            let log = Log::open_in(&data_dir, &name, options.of_topic(name.topic()).clone());
            (name, log)
        });
        let mut logs = Logs::default();
        for (name, log) in opened {
            match log {
                Ok(log) => _ = logs.open.insert(name, log),
                Err(error) => {
                    tracing::error!(%error, log = %name, "a log did not open; the others go on");
                    logs.failed.insert(name, error);
                }
            }
        }
        let pace = Arc::new(Pace::new(options.log_cleaner_io_max_bytes_per_second, data_dir.storage().monotonic()));
        data_dir.append_latency().set_wanted(options.yield_to_appends);
        let inner = Arc::new(Inner {
            metrics: StoreMetrics::new(data_dir.path()),
            data_dir,
            options: Mutex::new(options),
            pace,
            guard: Guard::default(),
            passes: Passes::default(),
            in_progress: InProgress::default(),
            tally: Tally::default(),
            logs: Mutex::new(logs),
            closing: Mutex::new(()),
        });
        let background = Arc::new(Background::start(&inner)?);
        Ok(Self { inner, background })
    }

    /// The log of `topic` and `partition`, created if it is missing, and opened anew if it was closed or a failure stopped
    /// its writes. From then on the background cleaner takes it, if its `cleanup_policy` compacts.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is no topic; whatever opening it finds.
    pub fn log(&self, topic: &str, partition: u32) -> Result<Log> {
        let name = TopicPartition::new(topic, partition)?;
        let mut logs = self.inner.logs();
        if logs.closed {
            return Err(closed(&self.inner, "open a log of"));
        }
        if logs.asked_for.insert(name.clone()) {
            self.inner.data_dir.note_change(&name);
        }
        if let Some(log) = logs.open.get(&name) {
            if !log.needs_reopen() {
                return Ok(log.clone());
            }
            let _ = log.close(); // after a failure it can't be closed cleanly, and is recovered now
            logs.open.remove(&name);
        }
        let options = self.inner.options().of_topic(topic).clone();
        let log = Log::open_in(&self.inner.data_dir, &name, options)?;
        logs.failed.remove(&name);
        self.background.forget_failure(&name);
        logs.open.insert(name, log.clone());
        Ok(log)
    }

    /// All open logs, by name.
    #[must_use]
    pub fn logs(&self) -> Vec<Log> {
        self.inner.logs().open.values().cloned().collect()
    }

    /// The logs that are there but did not open, with the reason. [`Store::log`] tries again.
    #[must_use]
    pub fn failed(&self) -> Vec<(TopicPartition, String)> {
        self.inner.logs().failed.iter().map(|(name, error)| (name.clone(), format!("{error:?}"))).collect()
    }

    /// The first log of `topic` that is there but did not open.
    pub(crate) fn failure_in(&self, topic: &str) -> Option<(TopicPartition, ErrorKind, String)> {
        let logs = self.inner.logs();
        let (name, error) = logs.failed.iter().find(|(name, _)| name.topic() == topic)?;
        Some((name.clone(), error.kind(), format!("{error:?}")))
    }

    /// Closes a log and removes its directory with all that is in it.
    pub fn delete_log(&self, topic: &str, partition: u32) -> Result<()> {
        let name = TopicPartition::new(topic, partition)?;
        let mut logs = self.inner.logs();
        if logs.closed {
            return Err(closed(&self.inner, "delete a log of"));
        }
        if let Some(log) = logs.open.remove(&name) {
            // What a close would save is of no use any more.
            let _ = log.close();
        }
        logs.failed.remove(&name);
        logs.asked_for.remove(&name);
        self.background.forget(&name);
        self.inner.tally.forget(&name);
        self.inner.passes.forget(&name);
        self.inner.data_dir.remove(&name)
    }

    /// Cleans one log now, whatever its dirty ratio, and saves how far it got. The background cleaner does the same
    /// for logs that are due.
    ///
    /// # Errors
    /// `InvalidInput` for a log of another store, or one whose `cleanup_policy` does not compact.
    pub fn clean(&self, log: &Log) -> Result<CleanReport> {
        self.inner.clean(log, For::Caller)
    }

    /// As [`Store::clean`], by `options` of the caller's own, and watched by `watch`. Pauses hold and the rate of this store's
    /// passes counts as for any other pass, which they do not for [`clean`](crate::clean). With `first_dirty` as it is by
    /// default, the whole log counts as dirty. How far it got is saved unless it is a dry run, or began above what is clean.
    ///
    /// # Errors
    /// As [`Store::clean`]; `InvalidInput` for options that can't work.
    pub fn clean_with(&self, log: &Log, options: &CleanOptions, watch: &dyn Watch) -> Result<CleanReport> {
        self.inner.clean_with(log, options, watch)
    }

    /// Wakes the background cleaner now instead of at its next turn.
    pub fn wake_cleaner(&self) {
        self.background.wake();
    }

    /// What the cleaner has done and is doing, and how far every pass under way is.
    #[must_use]
    pub fn cleaner(&self) -> CleanerStatus {
        self.background.status(&self.inner)
    }

    /// Sets all gauges of this store ([`METRICS`](crate::METRICS)) to what is the case now. Done by itself every
    /// `log_flush_offset_checkpoint_interval_ms`; an application whose exporter is asked at its own moments calls this before
    /// it answers. Without a recorder of the `metrics` crate it does nothing that anybody sees.
    pub fn publish_metrics(&self) {
        self.inner.metrics.publish(&self.inner, &self.background.status(&self.inner));
    }

    /// One round of background work in the caller's thread: cleans the log that is most worth a pass, if one is due, applies
    /// retention to all, and saves the checkpoints if it is time. Returns how long the next round may wait: not at all
    /// while there is more to clean. For applications that have switched [`StoreOptions::background_thread`] off; what
    /// fails is logged and shown in [`Store::cleaner`].
    pub fn housekeep(&self) -> Duration {
        self.background.round(&self.inner).unwrap_or(Duration::MAX)
    }

    /// Saves recovery points, start offsets and cleaner offsets of all logs. Done by itself every
    /// `log_flush_offset_checkpoint_interval_ms` and on close.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint()
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.data_dir.path()
    }

    /// Stops the cleaner, closes every log, and leaves the clean-shutdown mark if all went well. Log handles fail with
    /// `Closed` from then on. Closing twice is fine.
    pub fn close(&self) -> Result<()> {
        // Who comes second returns when it is closed, too.
        let _closing = self.inner.closing.lock().unwrap_or_else(PoisonError::into_inner);
        self.background.stop();
        self.inner.close()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path()).field("logs", &self.inner.logs().open.len()).finish_non_exhaustive()
    }
}

impl Inner {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner) // no call leaves the map half changed
    }

    fn options(&self) -> MutexGuard<'_, StoreOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner) // changed once it is known that all of it holds
    }

    /// Refuses what makes no sense any more.
    fn check_open(&self, op: &'static str) -> Result<()> {
        if self.logs().closed { Err(closed(self, op)) } else { Ok(()) }
    }

    fn open_log(&self, name: &TopicPartition) -> Option<Log> {
        self.logs().open.get(name).cloned()
    }

    fn checkpoint(&self) -> Result<()> {
        for log in self.logs().open.values() {
            log.note_offsets();
        }
        self.data_dir.write_checkpoints()
    }

    fn close(&self) -> Result<()> {
        let open = {
            let mut logs = self.logs();
            if std::mem::replace(&mut logs.closed, true) {
                return Ok(());
            }
            std::mem::take(&mut logs.open)
        };
        // Every log gets its chance: one that fails must not cost the others their clean close.
        let mut first_error = None;
        for log in open.values() {
            if let Err(error) = log.close() {
                first_error.get_or_insert(error);
            }
        }
        let closed = self.data_dir.close().map(drop);
        first_error.map_or(closed, Err)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "a store was dropped without a clean close; the next open recovers it");
        }
    }
}

/// A partition directory is no data directory, and would get the files of one.
fn refuse_partition(storage: &dyn Storage, path: &Path) -> Result<()> {
    let entries = storage.list(path).unwrap_or_default();
    if entries.iter().any(|entry| FileName::parse(&entry.name).is_some_and(|file| file.kind == FileKind::Log)) {
        let detail = "it is the directory of one log: give the directory above it, or open it with Log::open";
        return Err(Error::invalid("open the store", detail).at(path));
    }
    Ok(())
}

fn closed(inner: &Inner, op: &'static str) -> Error {
    Error::new(ErrorKind::Closed, op, "the store was closed").at(inner.data_dir.path())
}
