//! The work on the segments of a pass, chunk by chunk from the newest to the oldest, by one thread or several.
//!
//! Reading, checking and hashing a chunk needs nothing from newer ones, nor does writing what stays of it. Only the
//! decision does: each chunk has its turn there, in which nobody else has the dedup set. So whatever the threads do, what
//! stays is the same; and of several failures the pass ends with that of the newest chunk.
//!
//! ```text
//! feed    the next chunk, for whoever asks         Feed
//! scan    any number of chunks at a time           scan
//! turn    one chunk after the other                Turn
//! emit    any number of chunks at a time           emit
//! write   by whoever completes a group             assemble, output
//! ```

use std::collections::BTreeMap;

use keeplog_engine::sync::{Condvar, Mutex, MutexGuard, PoisonError, on_threads};

use crate::assemble::{Assembly, Group, Held, Part};
use crate::chunk::Chunk;
use crate::decide::{Share, decide};
use crate::dedup::{DedupSet, Shelf};
use crate::emit::Emitter;
use crate::feed::{Feed, Step, Task};
use crate::options::CleanReport;
use crate::pass::{Halt, Pass};
use crate::plan::Joints;
use crate::scan::Scanner;
use crate::walk::{Order, corrupt_order};

/// One reading of a pass.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// The keys that it decides on.
    pub(crate) share: Share,
    /// What the readings before it have decided.
    pub(crate) lives: &'a Lives,
}

/// Which records live by what was decided so far, one bit each, by the number of their chunk: chunks are the same in each
/// reading.
#[derive(Default)]
pub(crate) struct Lives(Mutex<BTreeMap<usize, Vec<u64>>>);

impl Lives {
    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.0).values().map(|bits| size_of_val(&bits[..]) as u64).sum()
    }

    /// Takes out those of a chunk.
    fn take(&self, number: usize) -> Option<Vec<u64>> {
        lock(&self.0).remove(&number)
    }

    fn put(&self, number: usize, bits: Vec<u64>) {
        lock(&self.0).insert(number, bits);
    }
}

/// Reads the first `sources` segments of the log once and decides by the keys that come into `set`. With `joints`, the last
/// time: what stays is joined as they say and goes to the pass's target, and what was done is added to `report`.
pub(crate) fn on_sources(
    pass: &Pass<'_>,
    reading: Reading<'_>,
    set: DedupSet,
    sources: usize,
    joints: Option<Joints>,
    report: CleanReport,
) -> Result<(DedupSet, CleanReport), Halt> {
    let crew = Crew {
        pass,
        reading,
        feed: Mutex::new(Feed::new(sources)),
        turn: Turn::new(set),
        assembly: joints.map(|joints| Assembly::new(sources, joints)),
        held: Held::new(pass.options.held_bytes_max),
        report: Mutex::new(report),
    };
    on_threads(pass.options.threads, || crew.work());
    let Decision { set, halt, .. } = unlocked(crew.turn.decision);
    match halt {
        Some((_, halt)) => Err(halt),
        None => Ok((set, unlocked(crew.report))),
    }
}

/// What those who work on a pass share.
struct Crew<'a> {
    pass: &'a Pass<'a>,
    reading: Reading<'a>,
    feed: Mutex<Feed>,
    turn: Turn,
    /// None in a reading that only decides.
    assembly: Option<Assembly>,
    held: Held,
    report: Mutex<CleanReport>,
}

/// What each of them has for himself.
pub(crate) struct Hand<'a> {
    pub(crate) scanner: Scanner<'a>,
    pub(crate) emitter: Emitter,
    pub(crate) chunk: Chunk,
}

impl Crew<'_> {
    /// Works until nothing is left to do, or the pass halts.
    fn work(&self) {
        let _halts = HaltsOnPanic(&self.turn);
        let emitter = Emitter::new(self.pass.rules.new_horizon_ms, self.pass.options);
        let mut hand = Hand { scanner: self.pass.scanner(), emitter, chunk: Chunk::default() };
        loop {
            let step = lock(&self.feed).next(self.pass);
            let (number, groups) = match step {
                Step::Chunk(task) => match self.chunk(&task, &mut hand) {
                    Some(groups) => (task.number, groups),
                    None => return,
                },
                Step::SourceEnd { number, at, parts } => {
                    (number, self.assembly.as_ref().map_or_else(Vec::new, |assembly| assembly.end(self.pass, at, parts)))
                }
                Step::Failed { number, halt } => {
                    self.turn.take(number, |_| Err::<(), _>(halt));
                    return;
                }
                Step::Done => return,
            };
            if let Err(halt) = groups.into_iter().try_for_each(|group| self.write(group, &mut hand)) {
                self.turn.halt(number, halt);
                return;
            }
        }
    }

    /// Works on a chunk; gives the groups that are complete with it. `None` if the pass halts.
    fn chunk(&self, task: &Task<'_>, hand: &mut Hand<'_>) -> Option<Vec<Group>> {
        self.decide(task, hand)?;
        let Some(assembly) = &self.assembly else {
            self.reading.lives.put(task.number, hand.chunk.live_bits());
            return Some(Vec::new());
        };
        let part = self.emit(task, hand)?;
        Some(assembly.add(self.pass, task.at, task.place, part))
    }

    /// Fills the hand's chunk and, when its turn comes, marks the records that stay.
    fn decide(&self, task: &Task<'_>, hand: &mut Hand<'_>) -> Option<()> {
        let Task { number, source, bounds, .. } = *task;
        let chunk = &mut hand.chunk;
        let order = Order::new(source.base_offset(), task.next_base);
        let Reading { share, lives } = self.reading;
        if share.is_all() {
            hand.scanner.shelf = *lock(&self.turn.shelf);
        }
        let scanned = self.pass.before(bounds.1 - bounds.0);
        let scanned = scanned.and_then(|()| Ok(hand.scanner.scan(source, &*task.file, bounds, order, chunk)?));
        if scanned.is_ok() {
            self.pass.pace.after(bounds.1 - bounds.0);
        }
        if let Some(bits) = lives.take(number) {
            chunk.mark_live(&bits);
        }
        self.turn.take(number, |decision| {
            scanned?;
            let limit = if task.place == 0 { task.next_base } else { decision.limit };
            if chunk.next_offset > limit {
                let why = format!("offset {} is not below {limit}, where what follows begins", chunk.next_offset - 1);
                return Err(Halt::Failed(corrupt_order(source, chunk.last_position(), &why)));
            }
            decision.limit = chunk.first_offset;
            decide(&mut chunk.probes, &mut decision.set, share).map_err(|why| self.pass.not_added(why, &decision.set))?;
            *lock(&self.turn.shelf) = decision.set.shelf();
            Ok(())
        })
    }

    /// What stays of the hand's chunk.
    fn emit(&self, task: &Task<'_>, hand: &mut Hand<'_>) -> Option<Part> {
        let chunk = &hand.chunk;
        match hand.emitter.emit(chunk, task.source) {
            Ok(piece) => {
                let mut report = lock(&self.report);
                report.bytes_read += u64::from(task.bounds.1 - task.bounds.0);
                report.records_read += chunk.counts.records_read;
                report.records_keyless += chunk.counts.records_keyless;
                report.records_kept += piece.records;
                report.tombstones_kept += piece.tombstones;
                Some(Part::new(task, piece, chunk, &self.held))
            }
            Err(error) => {
                self.turn.halt(task.number, error.into());
                None
            }
        }
    }

    /// Writes a group.
    fn write(&self, group: Group, hand: &mut Hand<'_>) -> Result<(), Halt> {
        let (sources, bytes, held) = (group.sources.len(), group.bytes, group.parts.iter().map(Part::held).sum());
        let written = group.write(self.pass, hand)?;
        self.held.release(held);
        let mut report = lock(&self.report);
        report.segments_before += sources;
        report.bytes_kept += bytes;
        report.segments_after += written.segments;
        report.bytes_written += written.bytes;
        Ok(())
    }
}

/// The order of decisions.
struct Turn {
    decision: Mutex<Decision>,
    advanced: Condvar,
    /// That of the set, for those whose turn is not yet.
    shelf: Mutex<Shelf>,
}

/// What whoever has the turn decides by.
struct Decision {
    /// The chunk whose turn it is.
    next: usize,
    /// Offsets of the next chunk are below this, unless it is the first of its segment.
    limit: u64,
    set: DedupSet,
    /// Why the pass does not go on, and at which chunk.
    halt: Option<(usize, Halt)>,
    /// One of those who work on it has panicked: its chunk's turn will never end.
    is_broken: bool,
}

impl Turn {
    fn new(set: DedupSet) -> Self {
        let shelf = Mutex::new(set.shelf());
        let decision = Decision { next: 0, limit: u64::MAX, set, halt: None, is_broken: false };
        Self { decision: Mutex::new(decision), advanced: Condvar::new(), shelf }
    }

    /// Decides on chunk `number` when its turn comes. `None` if the pass halts, before or here.
    fn take<R>(&self, number: usize, decide: impl FnOnce(&mut Decision) -> Result<R, Halt>) -> Option<R> {
        let mut decision = lock(&self.decision);
        loop {
            // A failure further down the log keeps nobody from a decision before it, nor from a failure.
            if decision.is_broken || decision.halt.as_ref().is_some_and(|(at, _)| *at < number) {
                return None;
            }
            if decision.next == number {
                break;
            }
            decision = self.advanced.wait(decision).unwrap_or_else(PoisonError::into_inner);
        }
        let decided = decide(&mut decision);
        decision.next += 1;
        let decided = decided.map_err(|halt| decision.halt = Some((number, halt))).ok();
        drop(decision);
        self.advanced.notify_all();
        decided
    }

    /// Ends the pass for something that happened to chunk `number` outside of its turn.
    fn halt(&self, number: usize, halt: Halt) {
        let mut decision = lock(&self.decision);
        if decision.halt.as_ref().is_none_or(|(at, _)| *at > number) {
            decision.halt = Some((number, halt));
        }
        drop(decision);
        self.advanced.notify_all();
    }
}

/// Lets the others go when one panics, so that the panic ends the pass.
struct HaltsOnPanic<'t>(&'t Turn);

impl Drop for HaltsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.decision).is_broken = true;
            self.0.advanced.notify_all();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the pass, whose outputs then count for nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a mutex held that nobody needs any more.
pub(crate) fn unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
