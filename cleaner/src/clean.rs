//! One pass over a real log: its segments as sources, a rewrite of them as the target.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog_engine::room;
use keeplog_engine::storage::{File, OpenMode, Storage, read_full_at};
use keeplog_engine::sync::{Mutex, on_threads};
use keeplog_engine::{Error, ErrorKind, Log, Replaced, Result, Segment, SegmentSet};
use keeplog_index::{AbortedTxn, TxnIndex};

use crate::options::{CleanOptions, CleanOutcome, CleanReport, Watch};
use crate::pass::{Approach, Ran, Target, run};
use crate::source::{LogView, ProducerEnd, Source};
use crate::target::{NoTarget, RewriteTarget};
use crate::walk::OP;
use crate::work::lock;

/// Cleans `log` once: of every key in the range, only the newest record stays, and what Kafka's cleaner keeps
/// beside it. Appends and reads go on meanwhile; they see the old segments until all new ones are finished, or until their own
/// are, where the device is short of room: see [`Watch::wants_room`].
///
/// The caller keeps [`CleanReport::new_dirty`] for the next pass ([`keeplog_engine::Log::set_cleaner_offset`]).
/// A pass that fails or is stopped leaves the log as it was, but for what was swapped by then for want of room: there, too, the
/// newest record of every key is as it was. (A failure of the swap itself, which is a handful of
/// renames, leaves what the next open completes.)
///
/// ```
/// # use keeplog_cleaner::{CleanOptions, clean};
/// # use keeplog_engine::{Durability, Log, LogOptions, record::Record, storage::{MemoryStorage, Storage}};
/// # let storage = std::sync::Arc::new(MemoryStorage::new());
/// # storage.create_dir("/data".as_ref()).unwrap();
/// let log = Log::open_with(storage, "/data/prices-0".as_ref(), LogOptions::new())?;
/// log.append(&[Record::new("EURUSD", "1.0842"), Record::new("EURUSD", "1.0843")], Durability::Synced)?;
/// log.roll()?;
/// let report = clean(&log, &CleanOptions::new(log.storage().now_ms()), &())?;
/// assert_eq!((report.records_read, report.records_kept, report.new_dirty), (2, 1, 2));
/// # Ok::<(), keeplog_engine::Error>(())
/// ```
///
/// # Errors
/// - `InvalidInput` for options that can't work, and for a log whose `cleanup_policy` does not compact, before anything
///   is touched.
/// - `Locked` while another rewrite or a truncation of this log is under way.
/// - `Corrupt`, naming file and position, for a batch whose checksum or contents are damaged. Unlike Kafka's
///   cleaner, this one never writes damaged bytes under a fresh checksum.
/// - `StorageFull` and `Io` from reading sources and writing outputs.
pub fn clean(log: &Log, options: &CleanOptions, watch: &dyn Watch) -> Result<CleanReport> {
    options.check()?;
    if !log.options().cleanup_policy.compacts() {
        let why = "its cleanup_policy is delete: cleaning would drop all records but the newest of every key";
        return Err(Error::invalid(OP, why).at(log.path()));
    }
    let began = log.storage().monotonic();
    let mut approach = Approach::default();
    loop {
        let (ran, replaced) = attempt(log, options, watch, approach)?;
        match ran {
            Ran::Done(report) => {
                let seconds = log.storage().monotonic().saturating_sub(began).as_secs_f64();
                if let Some(replaced) = replaced {
                    on_threads(options.threads, || replaced.remove());
                }
                return Ok(CleanReport { seconds, ..report });
            }
            // What there is to learn comes to an end: readings only rise, to a most, and all else is learned once.
            Ran::Again(next) => approach = next,
        }
    }
}

fn attempt(log: &Log, options: &CleanOptions, watch: &dyn Watch, approach: Approach) -> Result<(Ran, Option<Replaced>)> {
    if options.dry_run {
        let segments = slots(log, &log.segments());
        return Ok((attempt_on(log, &segments, options, watch, approach, &NoTarget)?, None));
    }
    let mut rewrite = log.begin_rewrite()?;
    // From here on no truncation comes in between.
    let cut = options.as_of_truncations.and_then(|earlier| log.lowest_truncation_since(earlier));
    let mut options = options.clone();
    if let Some(cut) = cut {
        // Of what was appended since, the caller knows neither whether it is dirty nor whether it is old enough.
        options.first_dirty = options.first_dirty.min(cut);
        options.first_uncleanable = Some(options.first_uncleanable.map_or(cut, |bound| bound.min(cut)));
    }
    let segments = slots(log, &rewrite.release_sources());
    let target = RewriteTarget::new(log, rewrite, &segments, watch);
    let ran = attempt_on(log, &segments, &options, watch, approach, &target)?;
    let is_done = matches!(&ran, Ran::Done(report) if report.outcome == CleanOutcome::Cleaned);
    let replaced = if is_done { Some(target.commit()?) } else { None };
    Ok((ran, replaced))
}

/// A segment of a log under a pass; none once it was swapped, so that its files can be closed and removed.
pub(crate) type Slot = Mutex<Option<Arc<Segment>>>;

/// Of `segments`, all of `log`, those that a pass is given: what lies below the start as a whole is retention's to remove, and
/// nobody's to read.
fn slots(log: &Log, segments: &SegmentSet) -> Vec<Slot> {
    let from = segments.position_of(log.start_offset());
    segments.all()[from..].iter().map(|segment| Mutex::new(Some(Arc::clone(segment)))).collect()
}

fn attempt_on(
    log: &Log,
    segments: &[Slot],
    options: &CleanOptions,
    watch: &dyn Watch,
    approach: Approach,
    target: &dyn Target,
) -> Result<Ran> {
    let opened = segments.iter().filter_map(|slot| lock(slot).clone().map(|segment| (slot, segment)));
    let source =
        |(slot, segment): (_, Arc<Segment>)| -> Result<Box<dyn Source>> { Ok(Box::new(LogSource::new(slot, &segment, log.storage())?)) };
    let sources = opened.map(source).collect::<Result<Vec<_>>>()?;
    let producers = log.active_producers().into_iter().map(|producer| ProducerEnd {
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        last_data_offset: producer.last_data_offset,
    });
    let view = LogView { sources: &sources, last_stable_offset: log.last_stable_offset(), producers: producers.collect() };
    run(&view, options, watch, approach, target)
}

/// A segment of a log, as large as it was when the pass began.
struct LogSource<'s> {
    slot: &'s Slot,
    storage: Arc<dyn Storage>,
    path: PathBuf,
    base_offset: u64,
    size_bytes: u32,
    offset_index_bytes: u32,
    time_index_bytes: u32,
    age_ms: i64,
    modified_ms: i64,
}

impl<'s> LogSource<'s> {
    fn new(slot: &'s Slot, segment: &Segment, storage: &Arc<dyn Storage>) -> Result<Self> {
        let path = segment.path();
        let size = segment.size_bytes();
        let size_bytes = u32::try_from(size).ok().filter(|size| i32::try_from(*size).is_ok()).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, OP, format!("{size} bytes are more than the 2147483647 that a segment may have")).at(&path)
        })?;
        let modified_ms = segment.modified_ms()?;
        let timestamp = segment.largest_timestamp();
        Ok(Self {
            slot,
            storage: Arc::clone(storage),
            path,
            base_offset: segment.base_offset(),
            size_bytes,
            offset_index_bytes: segment.offset_index_bytes(),
            time_index_bytes: segment.time_index_bytes(),
            age_ms: if (0..=storage.now_ms()).contains(&timestamp) { timestamp } else { modified_ms },
            modified_ms,
        })
    }

    fn segment(&self) -> Result<Arc<Segment>> {
        // invariant: of what was swapped everything was read, and nobody asks again.
        let gone = || Error::new(ErrorKind::Closed, OP, "the segment was swapped").at(&self.path);
        lock(self.slot).clone().ok_or_else(gone)
    }
}

impl Source for LogSource<'_> {
    fn base_offset(&self) -> u64 {
        self.base_offset
    }

    fn size_bytes(&self) -> u32 {
        self.size_bytes
    }

    fn offset_index_bytes(&self) -> u32 {
        self.offset_index_bytes
    }

    fn time_index_bytes(&self) -> u32 {
        self.time_index_bytes
    }

    fn modified_ms(&self) -> i64 {
        self.modified_ms
    }

    fn age_ms(&self) -> i64 {
        self.age_ms
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        self.segment()?.file()
    }

    fn is_gone(&self) -> bool {
        lock(self.slot).is_none()
    }

    fn index_positions(&self) -> Result<Vec<u32>> {
        Ok(self.segment()?.offset_entries()?.into_iter().map(|entry| entry.position).collect())
    }

    fn aborted_txns(&self) -> Result<Vec<AbortedTxn>> {
        let path = self.path.with_extension("txnindex");
        let file = match self.storage.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io(OP, &path, e)),
        };
        let read = || {
            let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
            let mut bytes = room::zeroed(len)?;
            let read = read_full_at(&*file, &mut bytes, 0)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        let bytes = read().map_err(|e| Error::io(OP, &path, e))?;
        let all = TxnIndex::new(bytes).iter().collect::<Result<Vec<_>, _>>();
        all.map_err(|e| Error::corrupt(OP, &path, 0, format!("{e}; run verify")).caused_by(e))
    }
}
