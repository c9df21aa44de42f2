//! The running process: an offset store and logs beside it, over the simulated disk, and the oracle that watches.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use keeplog::inspect::DataDir;
use keeplog::inspect::storage::Storage;
use keeplog::{
    CONSUMER_OFFSETS, CleanupPolicy, Codec, Error, Log, LogOptions, OffsetOptions, OffsetStore, RecoveryMode, StoreOptions, TopicPartition,
};

use crate::dice::Dice;
use crate::disk::{Disk, without_faults};
use crate::model::{Models, check_fold, read_around};

/// When the simulation begins, ms since the Unix epoch.
pub const T0: i64 = 1_760_000_000_000;
const DATA: &str = "/data";
/// How long tombstones stay.
pub const TOMBSTONES_STAY_MS: u64 = 1000;
/// The topic of the logs beside the offset store.
pub const EVENTS: &str = "events";

/// Why a step ended early.
#[derive(Debug)]
pub enum Stop {
    /// A call failed.
    Failed(Error),
    /// Something is not as it must be.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

/// What is the same from the first era to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Partitions of `events`: the first is compacted, the second also deleted from, the third only that.
    pub logs: u32,
    /// Partitions of the offset store.
    pub offset_logs: u32,
    /// Size of a segment.
    pub segment_bytes: u32,
    /// Of batches that are built by the log.
    pub compression: Codec,
}

impl Settings {
    /// Those of a seed.
    pub fn random(dice: &mut Dice) -> Self {
        Self {
            logs: 1 + dice.roll(3) as u32,
            offset_logs: 1 + dice.roll(2) as u32,
            segment_bytes: [4096, 4096, 6000, 16_384][dice.roll(4) as usize],
            compression: [Codec::None, Codec::None, Codec::Lz4, Codec::Zstd][dice.roll(4) as usize],
        }
    }

    fn of_log(&self, partition: u32) -> LogOptions {
        let policy = [CleanupPolicy::Compact, CleanupPolicy::CompactDelete, CleanupPolicy::Delete][partition as usize % 3];
        LogOptions::new()
            .cleanup_policy(policy)
            .segment_bytes(self.segment_bytes)
            .compression(self.compression)
            .index_interval_bytes(256)
            .retention_bytes(Some(5 * u64::from(self.segment_bytes)))
            .min_cleanable_dirty_ratio(0.3)
            .delete_retention_ms(TOMBSTONES_STAY_MS as i64)
    }

    fn of_topic(&self, name: &str) -> LogOptions {
        self.of_log((0..self.logs).find(|log| topic(*log) == name).unwrap_or(0))
    }

    fn options(&self) -> OffsetOptions {
        // Settings go by topic, so that each log beside the offset store is a topic of its own.
        let mut store = StoreOptions::new().background_thread(false).log_flush_offset_checkpoint_interval_ms(2000);
        for log in 0..self.logs {
            store = store.topic(topic(log), self.of_log(log));
        }
        OffsetOptions::new().offsets_topic_num_partitions(self.offset_logs).log(self.of_log(0)).store(store)
    }
}

fn topic(log: u32) -> String {
    format!("{EVENTS}-{log}")
}

/// What outlives the process.
#[derive(Debug)]
pub struct Outside {
    /// The oracle.
    pub models: RefCell<Models>,
    /// What the simulation is set to.
    pub settings: Settings,
    /// What was done, one line each, where a trace is wanted.
    notes: Option<RefCell<Vec<String>>>,
    /// What went wrong in the middle of something else.
    aside: RefCell<Option<Stop>>,
}

impl Outside {
    /// An oracle that knows of nothing yet.
    #[must_use]
    pub fn new(settings: Settings, trace: bool) -> Rc<Self> {
        let notes = trace.then(RefCell::default);
        Rc::new(Self { models: RefCell::default(), settings, notes, aside: RefCell::default() })
    }

    /// The same knowledge once more, for another way that things may go.
    #[must_use]
    pub fn fork(&self) -> Rc<Self> {
        let (models, settings) = (self.models.clone(), self.settings.clone());
        Rc::new(Self { models, settings, notes: None, aside: RefCell::default() })
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(notes) = &self.notes {
            notes.borrow_mut().push(line());
        }
    }

    /// The trace so far.
    #[must_use]
    pub fn take_notes(&self) -> Vec<String> {
        self.notes.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// Keeps what went wrong in the middle of something else for [`Outside::take_aside`].
    pub fn put_aside(&self, stop: Stop) {
        self.aside.borrow_mut().get_or_insert(stop);
    }

    /// What was kept.
    pub fn take_aside(&self) -> Option<Stop> {
        self.aside.take()
    }
}

/// The running process. A clone is a handle on the same one.
#[derive(Clone, Debug)]
pub struct World {
    /// What it runs on.
    pub disk: Disk,
    /// What it serves.
    pub offsets: OffsetStore,
    /// What outlives it.
    pub outside: Rc<Outside>,
}

impl World {
    /// Starts the process: everything is opened, and recovered if need be.
    pub fn open(disk: &Disk, outside: &Rc<Outside>) -> Result<Self, Error> {
        let storage = Arc::new(disk.clone()) as Arc<dyn Storage>;
        let offsets = OffsetStore::open_with(storage, Path::new(DATA), outside.settings.options())?;
        for log in 0..outside.settings.logs {
            offsets.store().log(&topic(log), 0)?;
        }
        Ok(Self { disk: disk.clone(), offsets, outside: Rc::clone(outside) })
    }

    /// What an operator does about damage that recovery has left in place: cuts every log at the first that there is.
    pub fn salvage(disk: &Disk, outside: &Rc<Outside>) -> Result<(), Error> {
        let storage = Arc::new(disk.clone()) as Arc<dyn Storage>;
        let dir = Arc::new(DataDir::open_or_create(storage, Path::new(DATA))?);
        for name in dir.partitions() {
            let options = outside.settings.of_topic(name.topic()).recovery_mode(RecoveryMode::Salvage).recovery_full_scan(true);
            let log = Log::open_in(&dir, &name, options)?;
            outside.note(|| format!("salvage {name}: {:?}", log.recovery_report().damage));
            log.close()?;
        }
        dir.close().map(drop)
    }

    /// Whether recovery has left damage in place somewhere.
    #[must_use]
    pub fn is_scarred(&self) -> bool {
        let scarred = |log: &Log| log.recovery_report().read_only || log.recovery_report().damage.iter().any(|damage| damage.in_place);
        self.logs().iter().any(scarred)
    }

    /// Ends it in order.
    pub fn close(self) -> Result<(), Error> {
        self.offsets.close()
    }

    /// A log beside the offset store.
    pub fn log(&self, number: u32) -> Result<Log, Error> {
        self.offsets.store().log(&topic(number), 0)
    }

    /// Any of them.
    pub fn any_log(&self, dice: &mut Dice) -> Result<Log, Error> {
        // Most of the time the first, so that things happen to it.
        let number = if dice.one_in(2) { 0 } else { dice.roll(u64::from(self.outside.settings.logs)) as u32 };
        self.log(number)
    }

    /// All logs, those of the offset store among them.
    #[must_use]
    pub fn logs(&self) -> Vec<Log> {
        self.offsets.store().logs()
    }

    /// Those beside the offset store.
    #[must_use]
    pub fn events(&self) -> Vec<Log> {
        self.logs().into_iter().filter(|log| log.topic_partition().topic() != CONSUMER_OFFSETS).collect()
    }

    /// The model of a log beside the offset store.
    pub fn model<T>(&self, log: &Log, change: impl FnOnce(&mut crate::model::LogModel) -> T) -> T {
        change(self.outside.models.borrow_mut().logs.entry(log.topic_partition().clone()).or_default())
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.outside.note(line);
    }

    /// What the disk must be right about: everything, after it was opened again.
    pub fn check(&self) -> Result<(), String> {
        without_faults(|| {
            for log in self.events() {
                let result = self.model(&log, |model| model.check(&log));
                result.map_err(|why| format!("{}: {why}", log.topic_partition()))?;
            }
            self.outside.models.borrow().offsets.check(&self.offsets)?;
            check_fold(&self.offsets)
        })
    }

    /// What is there now is the truth from here on, and all of it is safe if `durable`.
    pub fn take_over(&self, durable: bool) -> Result<(), String> {
        for log in self.events() {
            self.model(&log, |model| model.take_over(&log, durable))?;
        }
        self.outside.models.borrow_mut().offsets.take_over(&self.offsets)
    }

    /// After a power failure, some of what was never acknowledged may be missing.
    pub fn lose_unsynced(&self) {
        for log in self.events() {
            self.model(&log, |model| model.lose_unsynced(&log));
        }
    }

    /// Where each log begins and ends, what offsets it holds, and what is committed: for telling whether two are the same.
    pub fn extents(&self) -> Result<Extents, String> {
        let mut logs = Vec::new();
        for log in self.logs() {
            let offsets = read_around(&log, keeplog::Log::read_from)?.iter().map(keeplog::StoredRecord::offset).collect();
            logs.push((log.topic_partition().clone(), log.start_offset(), log.end_offset(), offsets));
        }
        let committed = self.offsets.list().map_err(|e| format!("{e:?}"))?.iter().map(|o| format!("{o:?}")).collect();
        Ok(Extents { logs, committed })
    }
}

/// See [`World::extents`].
#[derive(Debug, PartialEq, Eq)]
pub struct Extents {
    logs: Vec<(TopicPartition, u64, u64, Vec<u64>)>,
    committed: Vec<String>,
}
