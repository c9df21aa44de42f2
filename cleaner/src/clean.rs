//! One pass over a real log: its segments as sources, a rewrite of them as the target.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog_engine::room;
use keeplog_engine::storage::{File, OpenMode, Storage, read_full_at};
use keeplog_engine::sync::{Mutex, on_threads};
use keeplog_engine::{Error, ErrorKind, Log, OutputSegment, Replaced, Result, Rewrite, SealedOutput, Segment};
use keeplog_index::{AbortedTxn, TxnIndex};

use crate::options::{CleanOptions, CleanOutcome, CleanReport, Watch};
use crate::pass::{Approach, Outputs, Ran, Target, run};
use crate::source::{LogView, ProducerEnd, Source};
use crate::walk::OP;
use crate::work::{lock, unlocked};

/// Cleans `log` once: of every key in the range, only the newest record stays, and what Kafka's cleaner keeps
/// beside it. Appends and reads go on meanwhile; they see the old segments until all new ones are finished.
///
/// The caller keeps [`CleanReport::new_dirty`] for the next pass ([`keeplog_engine::Log::set_cleaner_offset`]).
/// A pass that fails or is stopped leaves the log as it was. (A failure of the swap itself, which is a handful of
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
        let segments = log.segments();
        let from = segments.position_of(log.start_offset());
        return Ok((attempt_on(log, &segments.all()[from..], options, watch, approach, &NoTarget)?, None));
    }
    let rewrite = log.begin_rewrite()?;
    // From here on no truncation comes in between.
    let cut = options.as_of_truncations.and_then(|earlier| log.lowest_truncation_since(earlier));
    let mut options = options.clone();
    if let Some(cut) = cut {
        // Of what was appended since, the caller knows neither whether it is dirty nor whether it is old enough.
        options.first_dirty = options.first_dirty.min(cut);
        options.first_uncleanable = Some(options.first_uncleanable.map_or(cut, |bound| bound.min(cut)));
    }
    let segments = Arc::clone(rewrite.sources());
    // What lies below the start as a whole is retention's to remove, and nobody's to read.
    let from = segments.position_of(log.start_offset());
    let target = RewriteTarget { log, rewrite, from, written: Mutex::default(), synced: Mutex::default() };
    let ran = attempt_on(log, &segments.all()[from..], &options, watch, approach, &target)?;
    drop(segments);
    let is_done = matches!(&ran, Ran::Done(report) if report.outcome == CleanOutcome::Cleaned);
    let replaced = if is_done { Some(target.commit()?) } else { None };
    Ok((ran, replaced))
}

fn attempt_on(
    log: &Log,
    segments: &[Arc<Segment>],
    options: &CleanOptions,
    watch: &dyn Watch,
    approach: Approach,
    target: &dyn Target,
) -> Result<Ran> {
    let source = |segment: &Arc<Segment>| -> Result<Box<dyn Source>> { Ok(Box::new(LogSource::new(segment, log.storage())?)) };
    let sources = segments.iter().map(source).collect::<Result<Vec<_>>>()?;
    let producers = log.active_producers().into_iter().map(|producer| ProducerEnd {
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        last_data_offset: producer.last_data_offset,
    });
    let view = LogView { sources: &sources, last_stable_offset: log.last_stable_offset(), producers: producers.collect() };
    run(&view, options, watch, approach, target)
}

/// A segment of a log, as large as it was when the pass began.
struct LogSource {
    segment: Arc<Segment>,
    storage: Arc<dyn Storage>,
    path: PathBuf,
    size_bytes: u32,
    modified_ms: i64,
}

impl LogSource {
    fn new(segment: &Arc<Segment>, storage: &Arc<dyn Storage>) -> Result<Self> {
        let path = segment.path();
        let size = segment.size_bytes();
        let size_bytes = u32::try_from(size).ok().filter(|size| i32::try_from(*size).is_ok()).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, OP, format!("{size} bytes are more than the 2147483647 that a segment may have")).at(&path)
        })?;
        let modified_ms = segment.modified_ms()?;
        Ok(Self { segment: Arc::clone(segment), storage: Arc::clone(storage), path, size_bytes, modified_ms })
    }
}

impl Source for LogSource {
    fn base_offset(&self) -> u64 {
        self.segment.base_offset()
    }

    fn size_bytes(&self) -> u32 {
        self.size_bytes
    }

    fn offset_index_bytes(&self) -> u32 {
        self.segment.offset_index_bytes()
    }

    fn time_index_bytes(&self) -> u32 {
        self.segment.time_index_bytes()
    }

    fn modified_ms(&self) -> i64 {
        self.modified_ms
    }

    fn age_ms(&self) -> i64 {
        let timestamp = self.segment.largest_timestamp();
        if (0..=self.storage.now_ms()).contains(&timestamp) { timestamp } else { self.modified_ms }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        self.segment.file()
    }

    fn index_positions(&self) -> Result<Vec<u32>> {
        Ok(self.segment.offset_entries()?.into_iter().map(|entry| entry.position).collect())
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

/// So many groups may have outputs whose sync is still to come. Syncing many at a time costs little more than syncing one
/// (what the device has been given meanwhile is there by then), but each holds its files open.
const UNSYNCED_MAX: usize = 64;

/// The outputs of groups, with the places of their sources.
type Written = Vec<(Range<usize>, Vec<SealedOutput>)>;

/// Outputs under temporary names, until all are there.
struct RewriteTarget<'l> {
    log: &'l Log,
    rewrite: Rewrite,
    /// Place, in the log, of the first segment that the pass was given.
    from: usize,
    written: Mutex<Written>,
    synced: Mutex<Written>,
}

impl RewriteTarget<'_> {
    /// Puts `written` on stable storage.
    fn sync(&self, mut written: Written) -> Result<()> {
        written.iter_mut().flat_map(|(_, outputs)| outputs).try_for_each(SealedOutput::sync)?;
        lock(&self.synced).append(&mut written);
        Ok(())
    }

    /// Puts all outputs in the place of their sources, whose files are left to be removed.
    fn commit(self) -> Result<Replaced> {
        self.sync(std::mem::take(&mut *lock(&self.written)))?;
        let Self { log, mut rewrite, from, synced, .. } = self;
        // A record goes because a newer one is there: that one must outlast a crash too. Until its own segment is
        // swapped, or if that is left untouched, it may never have been synced. Nor may the offset that this pass came to
        // be remembered longer than what lies below it.
        if log.recovery_point() < rewrite.sources().active().base_offset() {
            log.sync()?;
        }
        // Oldest first: a tombstone or an abort marker must not go while older data that it covers can come back.
        let mut outputs = unlocked(synced);
        outputs.sort_unstable_by_key(|(sources, _)| sources.start);
        // A segment that was swapped is open for whoever still reads it, and closed when nobody does: nor is it held here.
        let mut segments: Vec<_> = rewrite.release_sources().into_iter().map(Some).collect();
        for (sources, outputs) in outputs {
            let group: Vec<_> = segments[from..][sources].iter_mut().filter_map(Option::take).collect();
            rewrite.swap(&group, outputs)?;
        }
        Ok(rewrite.finish())
    }
}

impl Target for RewriteTarget<'_> {
    fn begin(&self, sources: Range<usize>) -> Result<Box<dyn Outputs + '_>> {
        Ok(Box::new(RewriteOutputs { target: self, sources, open: None, sealed: Vec::new() }))
    }

    fn is_unwanted(&self) -> bool {
        self.rewrite.is_unwanted()
    }
}

struct RewriteOutputs<'t> {
    target: &'t RewriteTarget<'t>,
    sources: Range<usize>,
    open: Option<OutputSegment>,
    sealed: Vec<SealedOutput>,
}

impl Outputs for RewriteOutputs<'_> {
    fn start(&mut self, base_offset: u64) -> Result<()> {
        self.open = Some(self.target.rewrite.create_output(base_offset)?);
        Ok(())
    }

    fn append(&mut self, entries: &[u8]) -> Result<()> {
        match &mut self.open {
            Some(open) if !entries.is_empty() => open.append(entries),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, aborts: &[AbortedTxn], modified_ms: i64) -> Result<()> {
        if let Some(mut open) = self.open.take() {
            aborts.iter().try_for_each(|txn| open.append_aborted(*txn))?;
            self.sealed.push(open.seal(modified_ms)?);
        }
        Ok(())
    }

    fn hand_over(self: Box<Self>) -> Result<()> {
        let Self { target, sources, sealed, .. } = *self;
        let due = {
            let mut written = lock(&target.written);
            written.push((sources, sealed));
            if written.len() < UNSYNCED_MAX {
                return Ok(());
            }
            // The older half: by now most of it is with the device.
            written.drain(..UNSYNCED_MAX / 2).collect()
        };
        target.sync(due)
    }
}

/// Where the outputs of a dry run go.
struct NoTarget;

impl Target for NoTarget {
    fn begin(&self, _: Range<usize>) -> Result<Box<dyn Outputs + '_>> {
        Ok(Box::new(Self))
    }
}

impl Outputs for NoTarget {
    fn start(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &[AbortedTxn], _: i64) -> Result<()> {
        Ok(())
    }

    fn hand_over(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
