//! Committed offsets on a store of their own.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use keeplog_engine::storage::{RealStorage, Storage};
use keeplog_engine::{Durability, Error, LogOptions, Result};
use keeplog_offsets::CommitOptions;

use crate::{Store, StoreOptions};

/// The topic that holds committed offsets.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The topic that holds the state of transactions.
pub const TRANSACTION_STATE: &str = "__transaction_state";

/// Partitions of a new store where none are asked for. A broker makes 50, to spread them over a cluster; within one
/// process fewer of them share more of their syncs.
const NUM_PARTITIONS: u32 = 4;
/// A broker makes segments of 100 MiB. Smaller ones are cleaned sooner and leave less to load.
const SEGMENT_BYTES: u32 = 10 << 20;
/// `min.cleanable.dirty.ratio` by default.
const DIRTY_RATIO: f64 = 0.3;

/// Settings of an [`OffsetStore`]. Methods set one value each and return the options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OffsetOptions {
    /// `offsets.topic.num.partitions`: partitions of a new store; default 4. An existing store keeps its number, since
    /// another one would look for every group in the wrong place; asking for another one is an error.
    pub offsets_topic_num_partitions: Option<u32>,
    /// Settings of the logs: by default `offsets.topic.segment.bytes` is 10 MiB, and `min.cleanable.dirty.ratio` 0.3, so that
    /// the files, a pass's outputs among them, stay within three times what is live.
    pub log: LogOptions,
    /// How commits are made.
    pub commit: CommitOptions,
    /// Settings of the store beneath, such as the cleaner's. For the logs of `__consumer_offsets`, [`log`](#structfield.log)
    /// counts in place of those here.
    pub store: StoreOptions,
}

impl Default for OffsetOptions {
    fn default() -> Self {
        Self {
            offsets_topic_num_partitions: None,
            log: LogOptions::new().segment_bytes(SEGMENT_BYTES).min_cleanable_dirty_ratio(DIRTY_RATIO),
            commit: CommitOptions::new(),
            store: StoreOptions::new(),
        }
    }
}

impl OffsetOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`OffsetOptions::offsets_topic_num_partitions`](#structfield.offsets_topic_num_partitions).
    #[must_use]
    pub fn offsets_topic_num_partitions(mut self, partitions: u32) -> Self {
        self.offsets_topic_num_partitions = Some(partitions);
        self
    }

    /// Sets `offsets.topic.segment.bytes`: 10 MiB by default.
    #[must_use]
    pub fn offsets_topic_segment_bytes(mut self, bytes: u32) -> Self {
        self.log = self.log.segment_bytes(bytes);
        self
    }

    /// Sets the settings of the logs.
    #[must_use]
    pub fn log(mut self, options: LogOptions) -> Self {
        self.log = options;
        self
    }

    /// Sets how commits are made.
    #[must_use]
    pub fn commit(mut self, options: CommitOptions) -> Self {
        self.commit = options;
        self
    }

    /// Sets when a commit is acknowledged: once it is on stable storage, by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.commit = self.commit.durability(durability);
        self
    }

    /// Sets the settings of the store beneath; those of its own logs are [`OffsetOptions::log`](#structfield.log).
    #[must_use]
    pub fn store(mut self, store: StoreOptions) -> Self {
        self.store = store;
        self
    }
}

/// Committed offsets of consumer groups, in `__consumer_offsets-0` to `-N` of a directory: a [`Store`] with its
/// background cleaner, and the cache over it.
///
/// What can be done with it (commit, fetch, list, delete, reload) is said at [`keeplog_offsets::OffsetStore`], which
/// this stands for. A handle: cheap to clone, usable from any thread, closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct OffsetStore {
    offsets: keeplog_offsets::OffsetStore,
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
        let OffsetOptions { offsets_topic_num_partitions, log, commit, store } = options;
        let store = Store::open_with(storage, path, store.topic(CONSUMER_OFFSETS, log))?;
        let partitions = count_partitions(&store, offsets_topic_num_partitions)?;
        let logs = (0..partitions).map(|p| store.log(CONSUMER_OFFSETS, p)).collect::<Result<Vec<_>>>()?;
        let offsets = keeplog_offsets::OffsetStore::open(logs, commit)?;
        Ok(Self { offsets, store })
    }

    /// The store beneath: its logs, its cleaner.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Closes the store. Commits and deletions through other handles fail with `Closed` from then on; what the cache
    /// holds can still be fetched.
    pub fn close(&self) -> Result<()> {
        self.store.close()
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
    let Some(count) = present.iter().max().map(|&highest| highest + 1).filter(|count| !unused || asked.unwrap_or(NUM_PARTITIONS) < *count)
    else {
        let partitions = asked.unwrap_or(NUM_PARTITIONS);
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
