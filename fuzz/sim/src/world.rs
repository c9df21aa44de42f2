//! The running process: an offset store and logs beside it, over the simulated disk, and the oracle that watches.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keeplog::inspect::DataDir;
use keeplog::inspect::storage::{OpenMode, Storage, read_exact_at};
use keeplog::{
    CONSUMER_OFFSETS, CleanupPolicy, Codec, CommitOptions, Error, ErrorKind, Log, LogOptions, OffsetOptions, OffsetStore, Pending,
    RecoveryMode, RequiredAcks, StoreOptions, TopicPartition,
};

use crate::dice::Dice;
use crate::disk::{Disk, without_faults};
use crate::model::{Models, Partition, Served, check_fold, read_around};

/// When the simulation begins, ms since the Unix epoch.
pub const T0: i64 = 1_760_000_000_000;
const DATA: &str = "/data";
/// As of which leader epoch partitions are led that the store does not lead by itself.
const FIRST_EPOCH: i32 = 1;
/// How long tombstones stay.
pub const TOMBSTONES_STAY_MS: u64 = 1000;
/// Copies of snapshots that are kept.
const COPIES_MAX: usize = 16;
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
    /// When commits are acknowledged, until that is changed.
    pub acks: RequiredAcks,
    /// Whether the offset store leads its partitions from the open on, or is told to.
    pub lead_all: bool,
    /// Whether it saves snapshots, and begins its loads with them.
    pub snapshots: bool,
}

impl Settings {
    /// Those of a seed.
    pub fn random(dice: &mut Dice) -> Self {
        Self {
            logs: 1 + dice.roll(3) as u32,
            offset_logs: 1 + dice.roll(2) as u32,
            segment_bytes: [4096, 4096, 6000, 16_384][dice.roll(4) as usize],
            compression: [Codec::None, Codec::None, Codec::Lz4, Codec::Zstd][dice.roll(4) as usize],
            acks: [RequiredAcks::Synced, RequiredAcks::Synced, RequiredAcks::Written, RequiredAcks::Queued][dice.roll(4) as usize],
            lead_all: !dice.one_in(3),
            snapshots: !dice.one_in(4),
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
        OffsetOptions::new()
            .offsets_topic_num_partitions(self.offset_logs)
            .log(self.of_log(0))
            // One is due whenever the log has more than it.
            .commit(CommitOptions::new().snapshots(self.snapshots).snapshot_interval_bytes(0))
            .offsets_commit_required_acks(self.acks)
            .offsets_retention(Duration::from_millis(World::RETENTION_MS))
            .lead_all(self.lead_all)
            .store(store)
    }
}

/// Where the snapshot of a partition of the offset store lies.
#[must_use]
pub fn snapshot_of(partition: usize) -> PathBuf {
    Path::new(DATA).join(format!("{CONSUMER_OFFSETS}-{partition}")).join("offsets.keeplog-snapshot")
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
    /// Snapshots of committed offsets as they were once, by partition.
    pub copies: RefCell<Vec<(usize, Vec<u8>)>>,
    /// Opens that began with a snapshot.
    pub restored: Cell<u64>,
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
        Rc::new(Self {
            models: RefCell::default(),
            settings,
            copies: RefCell::default(),
            restored: Cell::default(),
            notes,
            aside: RefCell::default(),
        })
    }

    /// The same knowledge once more, for another way that things may go.
    #[must_use]
    pub fn fork(&self) -> Rc<Self> {
        let (models, settings, copies) = (self.models.clone(), self.settings.clone(), self.copies.clone());
        Rc::new(Self { models, settings, copies, restored: Cell::default(), notes: None, aside: RefCell::default() })
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
    /// Commits whose answers are owed, in the order of the calls.
    owed: Rc<RefCell<VecDeque<Owed>>>,
    /// Answers that came.
    answers: Arc<Mutex<Vec<Answer>>>,
}

#[derive(Clone, Copy, Debug)]
struct Owed {
    partition: usize,
    number: usize,
    /// A part of the commit is refused.
    is_refused: bool,
    /// It comes after those before it.
    in_turn: bool,
}

/// To which commit, and what: its partition, its number there, and what went wrong.
type Answer = (usize, usize, Option<ErrorKind>);

impl World {
    /// How long offsets are kept at most.
    pub const RETENTION_MS: u64 = 6000;

    /// Starts the process: everything is opened, and recovered if need be.
    pub fn open(disk: &Disk, outside: &Rc<Outside>) -> Result<Self, Error> {
        let storage = Arc::new(disk.clone()) as Arc<dyn Storage>;
        let offsets = OffsetStore::open_with(storage, Path::new(DATA), outside.settings.options())?;
        outside.restored.update(|restored| restored + u64::from(offsets.load_report().from_snapshot > 0));
        for log in 0..outside.settings.logs {
            offsets.store().log(&topic(log), 0)?;
        }
        if !outside.settings.lead_all {
            for partition in 0..outside.settings.offset_logs {
                offsets.lead(partition, FIRST_EPOCH)?;
            }
            offsets.list()?;
        }
        Ok(Self { disk: disk.clone(), offsets, outside: Rc::clone(outside), owed: Rc::default(), answers: Arc::default() })
    }

    /// What an operator does about damage that recovery has left in place: cuts every log at the first that there is.
    pub fn salvage(disk: &Disk, outside: &Rc<Outside>) -> Result<(), Error> {
        let storage = Arc::new(disk.clone()) as Arc<dyn Storage>;
        let dir = Arc::new(DataDir::open_or_create(storage, Path::new(DATA))?);
        for name in dir.partitions() {
            let options = outside.settings.of_topic(name.topic()).recovery_mode(RecoveryMode::Salvage).recovery_full_scan(true);
            let mut log = Log::open_in(&dir, &name, options.clone())?;
            outside.note(|| format!("salvage {name}: {:?}", log.recovery_report().damage));
            if let Some(damage) = log.recovery_report().damage.iter().find(|damage| damage.in_place).cloned() {
                // An offset store that did not open for it has closed its logs in order: as with `--recovery-point`.
                log.close()?;
                dir.set_recovery_point(&name, damage.offset);
                log = Log::open_in(&dir, &name, options)?;
            }
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

    /// The snapshot of a partition of the offset store, whatever it is worth.
    #[must_use]
    pub fn read_snapshot(&self, partition: usize) -> Option<Vec<u8>> {
        without_faults(|| {
            let file = self.disk.open(&snapshot_of(partition), OpenMode::Read).ok()?;
            let mut bytes = vec![0; file.len().ok()? as usize];
            read_exact_at(&*file, &mut bytes, 0).ok()?;
            Some(bytes)
        })
    }

    /// Keeps a snapshot, so that it can take the place of a later one.
    pub fn keep_copy(&self, partition: usize, snapshot: Option<Vec<u8>>) {
        let mut copies = self.outside.copies.borrow_mut();
        let copy = snapshot.map(|bytes| (partition, bytes)).filter(|copy| copies.len() < COPIES_MAX && !copies.contains(copy));
        copies.extend(copy);
    }

    /// What the disk must be right about: everything, after it was opened again.
    pub fn check(&self) -> Result<(), String> {
        without_faults(|| {
            for log in self.events() {
                let result = self.model(&log, |model| model.check(&log));
                result.map_err(|why| format!("{}: {why}", log.topic_partition()))?;
            }
            let models = self.outside.models.borrow();
            models.offsets.check(&self.offsets)?;
            check_fold(&models.offsets, &self.offsets)
        })
    }

    /// What the logs of the offset store hold after it was opened must be what was acknowledged, and is the truth from here on.
    pub fn opened(&self) -> Result<(), String> {
        let epoch = (!self.outside.settings.lead_all).then_some(FIRST_EPOCH);
        without_faults(|| self.outside.models.borrow_mut().offsets.opened(&self.offsets, epoch))
    }

    /// It was closed in order: all is safe, and answered.
    pub fn closed(&self) -> Result<(), String> {
        self.outside.models.borrow_mut().offsets.closed();
        self.hear()?;
        match self.owed.borrow().front() {
            Some(owed) => Err(format!("when the store was closed, there was no answer to {owed:?}")),
            None => Ok(()),
        }
    }

    /// The model of a partition of the offset store.
    pub fn partition<T>(&self, number: usize, change: impl FnOnce(&mut Partition) -> T) -> T {
        change(&mut self.outside.models.borrow_mut().offsets.partitions[number])
    }

    /// What was committed where it is served is shown and safe.
    pub fn settle_offsets(&self) {
        let mut models = self.outside.models.borrow_mut();
        models.offsets.partitions.iter_mut().filter(|partition| partition.served == Served::Yes).for_each(Partition::settle);
    }

    /// Whether an answer of a partition is owed: others come behind it then.
    #[must_use]
    pub fn owes(&self, partition: usize) -> bool {
        self.owed.borrow().iter().any(|owed| owed.partition == partition)
    }

    /// The answer to commit `number` of a partition is owed.
    pub fn owe(&self, partition: usize, number: usize, is_refused: bool, pending: Pending) {
        let in_turn = self.owes(partition) || self.partition(partition, |partition| !partition.is_queued(number));
        self.owed.borrow_mut().push_back(Owed { partition, number, is_refused, in_turn });
        let answers = Arc::clone(&self.answers);
        pending.on_answer(move |answer| answers.lock().unwrap().push((partition, number, answer.err().map(|error| error.kind()))));
    }

    /// Tells the oracle of the answers that came, and refuses wrong ones, early ones, and such as did not come.
    pub fn hear(&self) -> Result<(), String> {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        let mut owed = self.owed.borrow_mut();
        for (partition, number, failure) in answers {
            let found = owed.iter().position(|owed| (owed.partition, owed.number) == (partition, number));
            let Owed { is_refused, in_turn, .. } = found.and_then(|at| owed.remove(at)).ok_or("an answer that nobody waits for")?;
            let is_before = |owed: &&Owed| in_turn && owed.in_turn && owed.partition == partition && owed.number < number;
            // What could not be written is answered at once.
            if let Some(before) = owed.iter().find(is_before).filter(|_| failure.is_none() || !self.disk.has_struck()) {
                return Err(format!("commit {number} of partition {partition} is answered before {before:?}"));
            }
            let is_right = match failure {
                None => !is_refused,
                Some(ErrorKind::InvalidInput) => is_refused,
                Some(ErrorKind::NotLeader) => self.partition(partition, |partition| partition.served != Served::Yes),
                Some(_) => self.disk.has_struck(),
            };
            if !is_right {
                return Err(format!("commit {number} of partition {partition} is answered with {failure:?}"));
            }
            if matches!(failure, None | Some(ErrorKind::InvalidInput)) {
                self.partition(partition, |partition| partition.answered(number));
            }
        }
        let is_late = |owed: &&Owed| !owed.in_turn || self.partition(owed.partition, |partition| partition.is_answered(owed.number));
        match owed.iter().find(is_late).filter(|_| !self.disk.has_struck()) {
            Some(late) => Err(format!("it is shown, or over, and not answered: {late:?}")),
            None => Ok(()),
        }
    }

    /// What is there now is the truth from here on, and all of it is safe if `durable`.
    pub fn take_over(&self, durable: bool) -> Result<(), String> {
        for log in self.events() {
            self.model(&log, |model| model.take_over(&log, durable))?;
        }
        Ok(())
    }

    /// After a power failure, some of what was never acknowledged may be missing.
    pub fn lose_unsynced(&self) {
        for log in self.events() {
            self.model(&log, |model| model.lose_unsynced(&log));
        }
        self.outside.models.borrow_mut().offsets.lose_unsynced();
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
