//! One log: the public handle, and what its parts share.
//!
//! Locks, in the order in which they are taken: `closing`, `rewriting` (one rewrite, truncation or deletion of segments at
//! a time), `starting` (the start offset), `writer` (appends), `sync` (group commit). Readers take none of them: they hold a snapshot of the
//! segment set and read up to what is published.

mod append;
mod chunks;
mod commit;
mod fingerprint;
mod iter;
mod live;
mod read;
mod retention;
mod rewrite;
mod turnstile;
mod upkeep;

use std::fmt;
use std::path::Path;

pub(crate) use append::marker_of;
pub use append::{Appended, TransactionEnd};
pub use chunks::{Chunk, ChunkBuffer, Chunks};
pub use fingerprint::Fingerprint;
pub use iter::{Batches, Records, StoredBatch};
pub use retention::RetentionReport;
pub use rewrite::{OutputSegment, Replaced, Rewrite, SealedOutput};

use crate::checkpoint::LeaderEpochs;
use crate::config::LogOptions;
use crate::data_dir::{DataDir, Lease};
use crate::names::{FileKind, FileState, TopicPartition};
use crate::planted::{Defect, is_planted};
use crate::producers::{ActiveProducer, ProducerStates};
use crate::record::BatchWriter;
use crate::recovery::{self, RecoveryReport};
use crate::segment::{Place, Segment, write_file};
use crate::segment_set::{CurrentSet, SegmentSet};
use crate::storage::{File, RealStorage, Storage};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use crate::{Error, ErrorKind, Result};
use commit::SyncState;
use live::Live;
use turnstile::Turnstile;

/// A handle on one log: cheap to clone, usable from any thread. The log is closed when the last clone is
/// dropped; [`Log::close`] does it at once and returns the error that a drop must swallow.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    topic_partition: TopicPartition,
    place: Place,
    data_dir: Arc<DataDir>,
    /// What it says to the checkpoints of the data directory.
    lease: Lease,
    /// Whether closing this log closes the data directory with it.
    owns_data_dir: bool,
    options: LogOptions,
    /// What was changed of them since the log was opened.
    live: Live,
    segments: CurrentSet,
    writer: Mutex<Writer>,
    sync: SyncState,
    rewriting: Turnstile,
    /// Held while the start offset and its checkpoint change.
    starting: Mutex<()>,
    start_offset: AtomicU64,
    end_offset: AtomicU64,
    last_stable_offset: AtomicU64,
    /// The first failure of a write or a sync: nothing is written after it.
    failure: OnceLock<Failure>,
    /// Recovery left damage in place: the log is for reading.
    read_only: bool,
    closed: AtomicBool,
    /// Held from the beginning of the close to its end.
    closing: Mutex<()>,
    recovery: RecoveryReport,
    /// Batch writers at rest, for the next append to take.
    batch_writers: Mutex<Vec<BatchWriter>>,
}

/// What only the appender changes.
pub(crate) struct Writer {
    pub(crate) active: Arc<Segment>,
    pub(crate) file: Arc<dyn File>,
    /// Where the next batch goes.
    pub(crate) position: u64,
    pub(crate) next_offset: u64,
    /// Where the last batch ends: below `next_offset` after a truncation inside a batch, until the next append. An open
    /// finds this end, so recovery points must not lie above it.
    pub(crate) data_end: u64,
    /// Largest timestamp of the first batch in the active segment; for rolling by time.
    pub(crate) first_timestamp: Option<i64>,
    pub(crate) created_ms: i64,
    pub(crate) producers: ProducerStates,
    pub(crate) epochs: LeaderEpochs,
    /// Sealed since the last sync, ascending.
    pub(crate) unsynced: Vec<Unsynced>,
    pub(crate) rolls: usize, // since the last sync
    /// A name was made since the last sync of the directory.
    pub(crate) names_changed: bool,
    pub(crate) snapshot_offset: u64,
}

/// A sealed segment that waits for its sync.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pub(crate) base_offset: u64,
    /// What it was written through: a failed write-back is told to whoever had the file open. None where the open synced it.
    pub(crate) file: Option<Arc<dyn File>>,
}

#[derive(Debug)]
struct Failure {
    op: &'static str,
    detail: String,
}

impl Log {
    /// Opens the partition directory `path` (named `topic-partition`), creating it if it is missing, and recovers
    /// it if it was not closed cleanly. The directory above it is taken as the data directory, with Kafka's lock
    /// file and checkpoints, and belongs to this log until it is closed: to work with several logs of one data
    /// directory, open a store over it.
    ///
    /// # Errors
    /// `Locked` if another process or handle owns the data directory, `Corrupt` for damage that the recovery
    /// mode does not accept, `InvalidInput` for a name that is no topic and partition.
    pub fn open(path: impl AsRef<Path>, options: LogOptions) -> Result<Self> {
        Self::open_with(Arc::new(RealStorage::new()), path.as_ref(), options)
    }

    /// As [`Log::open`], over any storage.
    pub fn open_with(storage: Arc<dyn Storage>, path: &Path, options: LogOptions) -> Result<Self> {
        let (parent, topic_partition) = split_path(path)?;
        options.check()?;
        let data_dir = Arc::new(DataDir::open_or_create(storage, parent)?);
        Self::open_owned(data_dir, &topic_partition, options, true)
    }

    /// Opens (or creates) a log of an open data directory.
    pub fn open_in(data_dir: &Arc<DataDir>, topic_partition: &TopicPartition, options: LogOptions) -> Result<Self> {
        options.check()?;
        Self::open_owned(Arc::clone(data_dir), topic_partition, options, false)
    }

    fn open_owned(data_dir: Arc<DataDir>, topic_partition: &TopicPartition, options: LogOptions, owns_data_dir: bool) -> Result<Self> {
        if !data_dir.has_partition(topic_partition) {
            data_dir.create_partition(topic_partition)?;
        }
        let clean = data_dir.opened(topic_partition)?;
        let dir: Arc<Path> = data_dir.partition_path(topic_partition).into();
        let place = Place::new(Arc::clone(data_dir.storage()), dir);
        let input = recovery::Input {
            clean,
            recovery_point: data_dir.recovery_point(topic_partition),
            start_offset: data_dir.log_start(topic_partition),
        };
        let opened = match recovery::open(&place, &options, input) {
            Ok(opened) => opened,
            Err(error) => {
                data_dir.closed_unclean(topic_partition);
                return Err(error);
            }
        };
        if let Err(error) = lower_checkpoints(&data_dir, topic_partition, &opened) {
            data_dir.closed_unclean(topic_partition);
            return Err(error);
        }
        Ok(Self { inner: Arc::new(Inner::new(topic_partition.clone(), place, data_dir, owns_data_dir, options, opened)) })
    }

    /// Topic and partition of this log.
    #[must_use]
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.inner.topic_partition
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.place.dir
    }

    /// The settings that it was opened with; [`Log::current_options`] has those that were changed since.
    #[must_use]
    pub fn options(&self) -> &LogOptions {
        &self.inner.options
    }

    /// The storage beneath it, which is also its clock.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.inner.place.storage
    }

    /// The data directory that it is part of.
    #[must_use]
    pub fn data_dir(&self) -> &Arc<DataDir> {
        &self.inner.data_dir
    }

    /// What recovery found and did when the log was opened.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.recovery
    }

    /// First offset that can be read.
    #[must_use]
    pub fn start_offset(&self) -> u64 {
        self.inner.start_offset.load(Ordering::Acquire)
    }

    /// One past the last offset: what the next record gets.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.inner.end_offset.load(Ordering::Acquire)
    }

    /// First offset of the oldest open transaction, or the end offset: what readers of committed data see up to.
    #[must_use]
    pub fn last_stable_offset(&self) -> u64 {
        // A transaction may have begun below what is the start now.
        self.inner.last_stable_offset.load(Ordering::Acquire).max(self.start_offset())
    }

    /// Offset below which everything is on stable storage.
    #[must_use]
    pub fn recovery_point(&self) -> u64 {
        self.inner.sync.synced_offset()
    }

    /// The segments as they are now.
    #[must_use]
    pub fn segments(&self) -> Arc<SegmentSet> {
        self.inner.segments.snapshot()
    }

    /// The producers that the log knows, by id, after forgetting those that have been idle for `producer_id_expiration_ms`.
    #[must_use]
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        let now_ms = self.inner.place.storage.now_ms();
        let mut writer = self.inner.writer();
        writer.producers.expire(now_ms, self.inner.options.producer_id_expiration_ms);
        writer.producers.active()
    }

    /// The producer of this id, if the log knows it.
    #[must_use]
    pub fn active_producer(&self, id: i64) -> Option<ActiveProducer> {
        self.inner.writer().producers.active_one(id)
    }

    /// Brings what the data directory's checkpoints say of this log up to date, in memory: a checkpoint of the whole
    /// directory makes it durable.
    pub fn note_offsets(&self) {
        self.inner.note_offsets();
    }

    /// Whether it was closed, or a failure stopped its writes: then it must be opened anew to be written to.
    #[must_use]
    pub fn needs_reopen(&self) -> bool {
        self.inner.closed.load(Ordering::Acquire) || self.inner.failure.get().is_some()
    }

    /// Remembers, in the data directory's checkpoint, that everything below `offset` has been through the cleaner, as far
    /// as the log has not been truncated below it since [`Log::truncations`] gave `earlier`. In memory: a checkpoint of
    /// the whole directory makes it durable.
    pub fn set_cleaner_offset(&self, offset: u64, earlier: usize) {
        // A truncation holds this from before it is noted until it has lowered the entry itself.
        let _starting = self.inner.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let lowest = self.lowest_truncation_since(earlier).unwrap_or(u64::MAX);
        self.inner.lease.set_cleaner_offset(offset.min(lowest));
    }

    /// Closes the log: everything is made durable, the active segment's indexes are written, a producer snapshot
    /// is left at the end, and the checkpoints of the data directory are brought up to date. Other clones of the
    /// handle fail to read and write with `Closed` from then on; an iterator that is under way ends so at the first segment
    /// that it has not opened yet. Closing twice is fine.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("path", &self.inner.place.dir)
            .field("start_offset", &self.start_offset())
            .field("end_offset", &self.end_offset())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn new(
        topic_partition: TopicPartition,
        place: Place,
        data_dir: Arc<DataDir>,
        owns_data_dir: bool,
        options: LogOptions,
        opened: recovery::Opened,
    ) -> Self {
        let recovery::Opened { segments, writer, start_offset, synced_offset, report } = opened;
        let end_offset = writer.next_offset;
        let last_stable_offset = writer.producers.first_unstable_offset().unwrap_or(end_offset);
        let lease = Lease::of(&data_dir, &topic_partition);
        let live = Live::new(&options);
        Self {
            topic_partition,
            place,
            data_dir,
            lease,
            owns_data_dir,
            options,
            live,
            segments: CurrentSet::new(segments),
            writer: Mutex::new(writer),
            sync: SyncState::new(synced_offset),
            rewriting: Turnstile::default(),
            starting: Mutex::new(()),
            start_offset: AtomicU64::new(start_offset),
            end_offset: AtomicU64::new(end_offset),
            last_stable_offset: AtomicU64::new(last_stable_offset),
            failure: OnceLock::new(),
            read_only: report.has_unreadable_tail(),
            closed: AtomicBool::new(false),
            closing: Mutex::new(()),
            recovery: report,
            batch_writers: Mutex::new(Vec::new()),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses to write after close, after a failure, and over damage.
    fn check_writable(&self, op: &'static str) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, op, "the log was closed").at(&self.place.dir));
        }
        if let Some(failure) = self.failure.get() {
            let detail = format!("an earlier failure stopped writes, reopen the log; it was: could not {} {}", failure.op, failure.detail);
            return Err(Error::new(ErrorKind::Poisoned, op, detail).at(&self.place.dir));
        }
        if self.read_only {
            let detail = "recovery left damage at the end of this log in place, so it is open for reading only; see `keeplog verify`";
            return Err(Error::new(ErrorKind::Corrupt, op, detail).at(&self.place.dir));
        }
        Ok(())
    }

    /// Remembers the first failure, so that nothing is written after it.
    fn fail(&self, error: Error) -> Error {
        self.failure.get_or_init(|| Failure { op: error.op(), detail: format!("{error:?}") });
        self.note_change();
        error
    }

    fn publish_end(&self, writer: &Writer) {
        // Readers take the end offset as their limit, so it must not run ahead of the segment's published size.
        let stable = writer.producers.first_unstable_offset().unwrap_or(writer.next_offset);
        let before = self.last_stable_offset.load(Ordering::Relaxed);
        self.last_stable_offset.store(stable, Ordering::Release);
        self.end_offset.store(writer.next_offset, Ordering::Release);
        if before < writer.active.base_offset() && before != stable {
            self.note_change(); // a transaction ended that had kept closed segments from the cleaner
        }
    }

    /// See [`DataDir::note_change`].
    fn note_change(&self) {
        self.data_dir.note_change(&self.topic_partition);
    }

    /// Saves the producers' state as it is at the end of the log, where the next open finds it. Not synced here.
    fn write_snapshot(&self, writer: &mut Writer) -> Result<Option<Arc<dyn File>>> {
        let end = writer.data_end;
        if writer.snapshot_offset == end {
            return Ok(None);
        }
        let path = self.place.path(end, FileKind::Snapshot, FileState::Live);
        let file = write_file(&self.place, &path, &writer.producers.encode())?;
        writer.snapshot_offset = end;
        writer.names_changed = true;
        Ok(Some(file))
    }

    fn close(&self) -> Result<()> {
        // Who comes second returns when it is closed, too.
        let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.rewriting.request_abort();
        let _turn = self.rewriting.enter();
        // Whoever has begun to place a batch is done then; later ones see that the log is closed.
        drop(self.writer());
        self.take_over_syncs();
        let result = self.close_files();
        self.end_syncs(result.is_ok().then(|| self.end_offset.load(Ordering::Acquire)));
        self.note_offsets();
        self.note_change();
        self.place.give_up();
        if result.is_ok() {
            self.lease.set_recovery_point(self.writer().data_end);
            self.data_dir.closed_clean(&self.topic_partition);
        } else {
            self.data_dir.closed_unclean(&self.topic_partition);
        }
        if self.owns_data_dir {
            return result.and(self.data_dir.close().map(drop));
        }
        result
    }

    /// Tells the data directory's checkpoints where the log starts and ends.
    fn note_offsets(&self) {
        // Kafka leaves the start out where the first segment says the same. But its name may not be on stable storage yet,
        // nor the removal of those before it.
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let start_offset = self.start_offset.load(Ordering::Acquire);
        self.lease.set_log_start(Some(start_offset).filter(|&start| start > 0));
        self.lease.set_high_watermark(self.end_offset.load(Ordering::Acquire));
    }

    fn close_files(&self) -> Result<()> {
        if let Some(Failure { op, detail }) = self.failure.get() {
            return Err(Error::new(ErrorKind::Poisoned, "close cleanly", format!("could not {op} {detail}")).at(&self.place.dir));
        }
        if self.read_only {
            return Err(
                Error::new(ErrorKind::Corrupt, "close cleanly", "damage at the end of the log was left in place").at(&self.place.dir)
            );
        }
        let mut writer = self.writer();
        let sync = |file: &dyn File| file.sync_data().map_err(|e| Error::io("sync a file of", &self.place.dir, e));
        // Sealing writes the index files at their exact length, with the closing time entry: what a clean open trusts.
        let sealed = writer.active.seal()?;
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex] {
            let path = self.place.path(sealed.base_offset(), kind, FileState::Live);
            if self.place.exists(&path) {
                let file = self.place.storage.open(&path, crate::storage::OpenMode::Write).map_err(|e| Error::io("open", &path, e))?;
                sync(&*file)?;
            }
        }
        if let Some(file) = self.write_snapshot(&mut writer)? {
            sync(&*file)?;
        }
        let work = self.take_sync_work(&mut writer);
        drop(writer);
        self.run_sync_work(&work)?;
        self.place.sync_dir()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "a log was dropped without a clean close; the next open recovers it");
        }
    }
}

/// What is appended from here on was never safe: a recovery point above the end must not outlive the first append, or a
/// torn tail would be taken for damage, and unsynced segments for sound ones. Of a log that is open for reading only it
/// stays: it tells that the damage lies in what was safe once. A cleaner's offset above the end says nothing of this log,
/// and the cleaner starts over, as Kafka's does.
fn lower_checkpoints(data_dir: &DataDir, topic_partition: &TopicPartition, opened: &recovery::Opened) -> Result<()> {
    let end = opened.writer.next_offset;
    if opened.report.has_unreadable_tail() {
        return Ok(());
    }
    let point_is_ahead = data_dir.recovery_point(topic_partition) > end;
    let cleaner_is_ahead = data_dir.cleaner_offset(topic_partition).is_some_and(|offset| offset > end);
    let cleaner_is_ahead = cleaner_is_ahead && !is_planted(Defect::KeepCleanerOffsetOnTruncate);
    if point_is_ahead {
        data_dir.set_recovery_point(topic_partition, end);
    }
    if cleaner_is_ahead {
        data_dir.set_cleaner_offset(topic_partition, None);
    }
    if point_is_ahead || cleaner_is_ahead { data_dir.write_checkpoints() } else { Ok(()) }
}

/// A partition directory's data directory and name.
fn split_path(path: &Path) -> Result<(&Path, TopicPartition)> {
    let refuse = |why: String| Error::invalid("open the log", why).at(path);
    let name =
        path.file_name().and_then(|n| n.to_str()).ok_or_else(|| refuse("the path must end in topic-partition, such as orders-0".into()))?;
    let topic_partition: TopicPartition = name.parse().map_err(|e| refuse(format!("{e}")))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent, topic_partition))
}
