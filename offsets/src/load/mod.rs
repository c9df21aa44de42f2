//! From the log of one partition to its cache.
//!
//! The log is read in pieces from the newest to the oldest, by any number of threads: what an older record says counts only
//! where no newer one has spoken, so most of a log that was not cleaned is passed over after a look at one bit. Reading,
//! checking and decoding a piece needs nothing from newer ones; only the fold does, and there each piece has its turn:
//! whatever the threads do, what comes of it is the same.
//!
//! ```text
//! feed    the next piece, for whoever asks            Chunks of the engine
//! parse   any number of pieces at a time; names       parse
//!         as numbers, new ones one thread at a time
//! turn    one piece after the other                   fold
//! ```
//! What comes of it is what [`Replay`] makes of the log in its order (`plain`). That is also what says what is wrong with
//! a log, once anything is.

mod fold;
mod item;
mod parse;
mod plain;
mod restore;

use keeplog_engine::record::Decoder;
use keeplog_engine::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, on_threads};
use keeplog_engine::{Chunk, Chunks, Error, Log, Result};

use crate::cache::KeyNames;
use crate::replay::{Replay, ReplayError};
use crate::store::LoadReport;
pub(crate) use restore::{Kept, load_restoring};

use fold::Fold;
use parse::{Parser, Piece};

/// About how many bytes of a log are worked on at a time. They stay in the processor's cache from the read to the fold.
const PIECE_BYTES: u32 = 256 << 10;
/// More threads than this would only wait for their turns.
const THREADS_MAX: u64 = 4;

/// Folds all of `log`, from its start to its end, with so many threads. Anything that cannot be read ends it: half a cache
/// would answer with offsets that are no longer true.
pub fn load(log: &Log, threads: usize) -> Result<(Replay, LoadReport)> {
    load_with(log, threads, &|_| {})
}

/// As [`load`]; `progress` is told of the bytes read, a piece at a time.
pub(crate) fn load_with(log: &Log, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<(Replay, LoadReport)> {
    let (replay, bytes) = match newest_first(log, threads, PIECE_BYTES, progress) {
        Ok(loaded) => loaded,
        Err(cause) => {
            let loaded = plain::load(log)?;
            tracing::warn!(log = %log.path().display(), %cause, "offsets were loaded in the order of the log, which takes longer");
            loaded
        }
    };
    Ok(reported(replay, bytes))
}

fn reported(replay: Replay, bytes: u64) -> (Replay, LoadReport) {
    let counts = replay.counts();
    let report = LoadReport {
        records: counts.records,
        bytes,
        entries: replay.cache().len() as u64,
        groups: replay.cache().group_count() as u64,
        tombstones: counts.tombstones,
        unknown_types: counts.unknown_types,
        newer_values: counts.newer_values,
        open_transactions: replay.open_transactions() as u64,
        ..LoadReport::default()
    };
    (replay, report)
}

/// How many threads to load `log` with, if it is one of several at the same time that have `all_bytes` together: so many that
/// no processor is idle when the smaller ones are done.
pub fn threads_for(log: &Log, all_bytes: Option<u64>) -> usize {
    let bytes = size_bytes(log);
    let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get() as u64);
    threads_of(bytes, all_bytes.unwrap_or(bytes), processors)
}

fn threads_of(bytes: u64, all_bytes: u64, processors: u64) -> usize {
    let share = u128::from(bytes) * u128::from(processors);
    let threads = share.div_ceil(all_bytes.max(1).into()).min(bytes.div_ceil(PIECE_BYTES.into()).into());
    threads.clamp(1, THREADS_MAX.into()) as usize
}

/// Bytes that a load of `log` reads, or a few more.
pub fn size_bytes(log: &Log) -> u64 {
    log.segments().all().iter().map(|segment| segment.size_bytes()).sum()
}

/// Why the log is read in its order.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Log(#[from] Error),
    #[error(transparent)]
    Batch(#[from] keeplog_engine::record::DecodeError),
    #[error(transparent)]
    Record(#[from] ReplayError),
    #[error("a batch decompresses to more than 4 GiB")]
    TooLarge,
    #[error("a name is not UTF-8")]
    Name,
    #[error("pieces of the log overlap at offset {0}")]
    Overlap(u64),
    #[error("it was read up to offset {found}, and ends at {expected}")]
    Short { found: u64, expected: u64 },
    #[error("a thread panicked")]
    Panic,
}

/// Folds all of `log`; gives the bytes read as well.
fn newest_first(log: &Log, threads: usize, piece_bytes: u32, progress: &(dyn Fn(u64) + Sync)) -> Result<(Replay, u64), Cause> {
    let (start_offset, end_offset) = (log.start_offset(), log.end_offset());
    let crew = Crew {
        log,
        start_offset,
        feed: Mutex::new(Feed { chunks: log.chunks_from(start_offset, piece_bytes)?, number: 0 }),
        names: RwLock::default(),
        turn: Turn::default(),
        progress,
    };
    on_threads(threads, || crew.work());
    let Decision { fold, failure, .. } = crew.turn.decision.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some(cause) => Err(cause),
        None if is_short(log, fold.end_offset(), end_offset) => Err(Cause::Short { found: fold.end_offset(), expected: end_offset }),
        None => Ok(fold.finish(crew.names.into_inner().unwrap_or_else(PoisonError::into_inner))),
    }
}

/// Whether batches up to `found` are not all of a log that ended at `expected` before it was read: a batch whose offset says that
/// it was appended later ends every read. Without batches, a segment tells by its name where the log ends.
fn is_short(log: &Log, found: u64, expected: u64) -> bool {
    let newest = log.segments().all().last().map_or(0, |newest| newest.base_offset());
    found.max(newest).max(log.start_offset()) < expected
}

/// What those who load a log share.
struct Crew<'a> {
    log: &'a Log,
    start_offset: u64,
    feed: Mutex<Feed>,
    names: RwLock<KeyNames>,
    turn: Turn,
    progress: &'a (dyn Fn(u64) + Sync),
}

struct Feed {
    chunks: Chunks,
    /// Pieces given out.
    number: usize,
}

impl Crew<'_> {
    /// Works until nothing is left to do, or anything is wrong.
    fn work(&self) {
        let _fails = FailsOnPanic(&self.turn);
        let mut parser = Parser::new(Decoder::new(self.log.options().decompressed_bytes_max), self.start_offset);
        let mut piece = Piece::default();
        loop {
            let (number, chunk) = {
                let mut feed = lock(&self.feed);
                let Some(chunk) = feed.chunks.next() else { return };
                feed.number += 1;
                (feed.number - 1, chunk)
            };
            let ready = self.prepare(chunk, &mut parser, &mut piece);
            let folded = self.turn.take(number, |fold| {
                ready?;
                fold.check_follows(&piece)?;
                fold.piece(&piece);
                while piece.parse_more(&mut parser, &self.names)? {
                    fold.piece(&piece);
                }
                Ok(())
            });
            if folded.is_none() {
                return;
            }
        }
    }

    /// All that can be done before the turn.
    fn prepare(&self, chunk: Result<Chunk>, parser: &mut Parser, piece: &mut Piece) -> Result<(), Cause> {
        (self.progress)(piece.read(&chunk?)?);
        piece.parse_more(parser, &self.names)?;
        Ok(())
    }
}

/// The order of the fold.
#[derive(Default)]
struct Turn {
    decision: Mutex<Decision>,
    advanced: Condvar,
}

#[derive(Default)]
struct Decision {
    /// The piece whose turn it is.
    next: usize,
    fold: Fold,
    /// Nothing is folded after it.
    failure: Option<Cause>,
}

impl Turn {
    /// Folds piece `number` when its turn comes. `None` if something is wrong, before or here.
    fn take(&self, number: usize, fold: impl FnOnce(&mut Fold) -> Result<(), Cause>) -> Option<()> {
        let mut decision = lock(&self.decision);
        while decision.failure.is_none() && decision.next != number {
            decision = self.advanced.wait(decision).unwrap_or_else(PoisonError::into_inner);
        }
        if decision.failure.is_some() {
            return None;
        }
        let folded = fold(&mut decision.fold);
        decision.next += 1;
        let folded = folded.map_err(|cause| decision.failure = Some(cause)).ok();
        drop(decision);
        self.advanced.notify_all();
        folded
    }
}

/// Lets the others go when one panics, so that the panic ends the load.
struct FailsOnPanic<'t>(&'t Turn);

impl Drop for FailsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.decision).failure.get_or_insert(Cause::Panic);
            self.0.advanced.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the load, and nothing of it is used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
