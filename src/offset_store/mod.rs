//! Committed offsets on a store of their own.

mod background;
mod manager;
mod metrics;
mod options;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use keeplog_engine::storage::{RealStorage, Storage};
use keeplog_engine::{Error, Result};
use keeplog_offsets::Lead;

use self::background::Background;
pub use self::metrics::OFFSET_METRICS;
use self::metrics::OffsetMetrics;
pub use self::options::OffsetOptions;
use crate::Store;

/// The topic that holds committed offsets.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The topic that holds the state of transactions.
pub const TRANSACTION_STATE: &str = "__transaction_state";

/// Committed offsets of consumer groups, in `__consumer_offsets-0` to `-N` of a directory: a [`Store`] with its
/// background cleaner, and the cache over it.
///
/// What can be done with it (commit, fetch, list, delete, reload) is said at [`keeplog_offsets::OffsetStore`], which
/// this stands for. A handle: cheap to clone, usable from any thread, closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct OffsetStore {
    offsets: keeplog_offsets::OffsetStore,
    // Ends before the store beneath is closed, with what it still has to sync.
    background: Arc<Background>,
    store: Store,
}

impl OffsetStore {
    /// Opens the directory `path`, creating it if it is missing, recovers what was not closed cleanly, and loads the cache.
    ///
    /// # Errors
    /// `Locked` if another process or handle owns the directory; `InvalidInput` for another number of partitions than
    /// the store has; `Corrupt` for damage. A store that can't load all of its partitions serves nothing.
    pub fn open(path: impl AsRef<Path>, options: OffsetOptions) -> Result<Self> {
        Self::open_with(Arc::new(RealStorage::new()), path.as_ref(), options)
    }

    /// As [`OffsetStore::open`], over any storage.
    pub fn open_with(storage: Arc<dyn Storage>, path: &Path, options: OffsetOptions) -> Result<Self> {
        let OffsetOptions { offsets_topic_num_partitions, log, commit, lead_all, offsets_retention_check_interval, store } = options;
        let has_threads = store.background_thread;
        let store = Store::open_with(storage, path, store.topic(CONSUMER_OFFSETS, log))?;
        let partitions = count_partitions(&store, offsets_topic_num_partitions)?;
        let logs = (0..partitions).map(|p| store.log(CONSUMER_OFFSETS, p)).collect::<Result<Vec<_>>>()?;
        let open = if lead_all { keeplog_offsets::OffsetStore::open } else { keeplog_offsets::OffsetStore::open_unled };
        let offsets = open(logs, commit)?;
        let background = Arc::new(Background::new(offsets.clone(), OffsetMetrics::new(path), offsets_retention_check_interval));
        if has_threads {
            background.start()?;
        }
        Ok(Self { offsets, background, store })
    }

    /// The store beneath: its logs, its cleaner.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Begins to lead a partition, as of leader epoch `epoch`, and loads it in the background: see
    /// [`keeplog_offsets::OffsetStore::lead`]. Several are loaded at a time, the largest first.
    ///
    /// # Errors
    /// `InvalidInput` for a partition that there is not.
    pub fn lead(&self, partition: u32, epoch: i32) -> Result<Lead> {
        let lead = self.offsets.lead(partition, epoch)?;
        if lead == Lead::Loads {
            self.background.load();
        }
        Ok(lead)
    }

    /// Changes how often offsets are looked for that have expired.
    pub fn set_retention_check_interval(&self, interval: std::time::Duration) {
        self.background.set_check_interval(interval);
    }

    /// Sets the metrics of this store ([`OFFSET_METRICS`](crate::OFFSET_METRICS)), and those of the one beneath, to what is the case
    /// now. Done by itself every `offsets_retention_check_interval`; an application that answers an exporter calls it before.
    pub fn publish_metrics(&self) {
        self.background.publish_metrics();
        self.store.publish_metrics();
    }

    /// Closes the store, after everything that was committed is on stable storage and answered. Commits and deletions through other
    /// handles fail with `Closed` from then on; what the cache holds can still be fetched.
    pub fn close(&self) -> Result<()> {
        let flushed = self.background.stop();
        self.store.close().and(flushed)
    }
}

impl Deref for OffsetStore {
    type Target = keeplog_offsets::OffsetStore;

    fn deref(&self) -> &Self::Target {
        &self.offsets
    }
}

/// How many partitions the store has, or is to have.
fn count_partitions(store: &Store, asked: Option<u32>) -> Result<u32> {
    const OP: &str = "open the offset store";
    if let Some((name, kind, why)) = store.failure_in(CONSUMER_OFFSETS) {
        return Err(Error::new(kind, OP, format!("{name} did not open: {why}")).at(store.path()));
    }
    let mut logs = store.logs();
    logs.retain(|log| log.topic_partition().topic() == CONSUMER_OFFSETS);
    let present: Vec<u32> = logs.iter().map(|log| log.topic_partition().partition()).collect();
    // A first open that was interrupted has made some of them: nothing was ever looked for in another place.
    let unused = logs.iter().all(|log| log.end_offset() == 0 && !log.data_dir().directory_was_clean());
    let Some(count) =
        present.iter().max().map(|&highest| highest + 1).filter(|count| !unused || asked.unwrap_or(options::NUM_PARTITIONS) < *count)
    else {
        let partitions = asked.unwrap_or(options::NUM_PARTITIONS);
        return if partitions == 0 {
            Err(Error::invalid(OP, "offsets_topic_num_partitions must be at least 1").at(store.path()))
        } else {
            Ok(partitions)
        };
    };
    if present.len() != count as usize {
        let missing = (0..count).find(|p| !present.contains(p)).unwrap_or(count);
        let detail = format!("partition {missing} of {CONSUMER_OFFSETS} is missing, {} of {count} are there", present.len());
        return Err(Error::invalid(OP, detail).at(store.path()));
    }
    match asked {
        Some(asked) if asked != count => {
            let detail = format!(
                "it has {count} partitions, offsets_topic_num_partitions asks for {asked}: every group would be looked for in another one"
            );
            Err(Error::invalid(OP, detail).at(store.path()))
        }
        _ => Ok(count),
    }
}
