//! The pass as a whole: how it begins, who works on it, and the swap at its end.

use std::ops::Range;

use keeplog_engine::{Error, Result};
use keeplog_index::AbortedTxn;

use crate::cuts::{Cutter, Trust};
use crate::decide::Share;
use crate::dedup::{DedupSet, NotAdded};
use crate::end::{keys_bound, pass_end};
use crate::hash::KeyHasher;
use crate::options::{CleanOptions, CleanOutcome, CleanReport, Overflow, Watch};
use crate::plan::{DirtyRange, Joints, Rules};
use crate::progress::Pace;
use crate::scan::Scanner;
use crate::source::LogView;
use crate::transactions::LazyTransactions;
use crate::walk::OP;
use crate::work::{self, Lives, Reading};

/// Why a pass does not go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Whoever watches wants it to stop, or the log does.
    Stopped,
    /// It has learned something that changes how it must begin.
    Again(Approach),
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(cause: Error) -> Self {
        Self::Failed(cause)
    }
}

/// How a pass begins. The default is right for almost all logs; where it is not, the pass notices and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Approach {
    /// Whether the offset indexes may say where to cut.
    pub(crate) trust: Trust,
    /// Whether to settle where the pass ends before it begins, if there may be too many keys for the dedup set. By
    /// default it just begins: most logs repeat their keys.
    pub(crate) settles_end: bool,
    /// How often to read the log, each time for another share of the keys.
    pub(crate) readings: u32,
}

impl Default for Approach {
    fn default() -> Self {
        Self { trust: Trust::Indexes, settles_end: false, readings: 1 }
    }
}

/// Beyond so many readings a larger dedup set is the answer.
const READINGS_MAX: u32 = 1 << 12;

/// Where the outputs of a pass go, until whoever runs the pass puts them in the place of their sources, oldest first.
pub(crate) trait Target: Sync {
    /// Begins the outputs of the segments `sources` (places in the log, one group).
    fn begin(&self, sources: Range<usize>) -> Result<Box<dyn Outputs + '_>>;
    /// Whether somebody waits for the segments to be let go.
    fn is_unwanted(&self) -> bool {
        false
    }
}

/// The outputs of one group, written one after the other, ascending.
pub(crate) trait Outputs {
    /// Begins one. The first has the base offset of the group.
    fn start(&mut self, base_offset: u64) -> Result<()>;
    /// Adds whole batches to it.
    fn append(&mut self, entries: &[u8]) -> Result<()>;
    /// Ends it. `modified_ms` is its modification time.
    fn finish(&mut self, aborts: &[AbortedTxn], modified_ms: i64) -> Result<()>;
    /// All are finished: the target takes them. The group `stands_alone` if nothing below it can come back when it is swapped
    /// first.
    fn hand_over(self: Box<Self>, stands_alone: bool) -> Result<()>;
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) enum Ran {
    /// If it is `Cleaned`, the outputs may be put in place.
    Done(CleanReport),
    /// The same is to be done again, differently. Nothing was put in place.
    Again(Approach),
}

/// Cleans `log` once into `target`, or learns how it has to be done.
pub(crate) fn run(log: &LogView<'_>, options: &CleanOptions, watch: &dyn Watch, approach: Approach, target: &dyn Target) -> Result<Ran> {
    let range = DirtyRange::of(log, options);
    let report = CleanReport { first_uncleanable: range.first_uncleanable, ..CleanReport::begin(options) };
    if range.is_empty() {
        return Ok(Ran::Done(report));
    }
    match clean(log, range, options, watch, approach, target, report.clone()) {
        Ok(report) => Ok(Ran::Done(report)),
        Err(Halt::Stopped) => Ok(Ran::Done(CleanReport { outcome: CleanOutcome::Stopped, ..report })),
        Err(Halt::Again(approach)) => Ok(Ran::Again(approach)),
        // An index may have cut where no entry begins. Only what the headers confirm is damage.
        Err(Halt::Failed(cause)) if cause.is_corruption() && approach.trust == Trust::Indexes => {
            Ok(Ran::Again(Approach { trust: Trust::Headers, ..approach }))
        }
        Err(Halt::Failed(cause)) => Err(cause),
    }
}

/// A pass under way: all that those who work on it share and nobody changes.
pub(crate) struct Pass<'a> {
    pub(crate) log: &'a LogView<'a>,
    pub(crate) options: &'a CleanOptions,
    pub(crate) cutter: Cutter,
    pub(crate) rules: Rules,
    pub(crate) transactions: LazyTransactions<'a>,
    pub(crate) hasher: KeyHasher,
    pub(crate) target: &'a dyn Target,
    pub(crate) pace: Pace<'a>,
    range: DirtyRange,
    approach: Approach,
    /// Keys that the dedup set takes.
    capacity: u64,
    /// Keys that the dirty section has at most, up to where the pass ends.
    keys_bound: u64,
}

fn clean(
    log: &LogView<'_>,
    range: DirtyRange,
    options: &CleanOptions,
    watch: &dyn Watch,
    approach: Approach,
    target: &dyn Target,
    report: CleanReport,
) -> Result<CleanReport, Halt> {
    let capacity = options.dedupe_keys();
    let bound = keys_bound(log, range, capacity)?;
    let transactions = |end| LazyTransactions::new(log.sources, range.first_uncleanable, end, options.threads);
    let rules = Rules::new(log, range, options);
    let mut pass = Pass {
        log,
        options,
        cutter: Cutter { chunk_bytes: options.chunk_bytes, trust: approach.trust },
        transactions: transactions(rules.end),
        rules,
        hasher: options.hash_seed.map_or_else(KeyHasher::random, KeyHasher::from_seed),
        target,
        pace: Pace::new(watch),
        range,
        approach,
        capacity,
        keys_bound: bound,
    };
    let bytes_below = |end| -> u64 {
        let sources = log.sources.iter().take_while(|source| source.base_offset() < end);
        sources.map(|source| u64::from(source.size_bytes())).sum()
    };
    if pass.may_fill() && approach.settles_end {
        pass.pace.announce(bytes_below(pass.rules.end));
        pass.settle_end()?;
        // What is not read now is to be checked by whoever believes it.
        pass.transactions = transactions(pass.rules.end);
    }
    let sources = &log.sources[..log.sources.partition_point(|source| source.base_offset() < pass.rules.end)];
    pass.pace.announce(bytes_below(pass.rules.end).saturating_mul(approach.readings.into()));
    let mut report = report;
    let lives = Lives::default();
    for share in Share::each(approach.readings) {
        let set = pass.new_set()?;
        pass.pace.begin(sources.iter().map(|source| (source.base_offset(), source.size_bytes())));
        let joints = share.is_last().then(|| Joints::new(log, sources.len(), range, options));
        let (set, read) = work::on_sources(&pass, Reading { share, lives: &lives }, set, sources.len(), joints, report)?;
        if pass.is_provisional() && set.is_full() {
            // Perhaps just so; walking forward tells whether another key came when the map was full.
            return Err(pass.full(&set));
        }
        report = read;
        report.map_size += set.len();
        report.map_bytes = report.map_bytes.max(set.bytes() + lives.bytes());
    }
    pass.go_on()?;
    report.outcome = CleanOutcome::Cleaned;
    report.new_dirty = pass.rules.end;
    report.readings = approach.readings;
    report.dirty_bytes = log.dirty_bytes(range.first_dirty, report.new_dirty);
    Ok(report)
}

impl Pass<'_> {
    /// Whether the dirty section may have more keys than the set takes, and the pass was not ended before that.
    fn may_fill(&self) -> bool {
        self.keys_bound > self.capacity
    }

    /// Whether it may still turn out that what was decided is to be decided otherwise, without being wrong.
    pub(crate) fn is_provisional(&self) -> bool {
        self.options.overflow == Overflow::EndPass && self.may_fill()
    }

    fn new_set(&self) -> Result<DedupSet, Halt> {
        DedupSet::growing(self.keys_bound.min(self.capacity)).map_err(|e| self.out_of_memory(e))
    }

    /// Finds where Kafka's map would be full, and ends the pass there.
    fn settle_end(&mut self) -> Result<(), Halt> {
        let mut set = self.new_set()?;
        let end = pass_end(self, self.range, &mut set)?;
        self.rules.end = end;
        self.keys_bound = set.len();
        Ok(())
    }

    /// A scanner for this pass.
    pub(crate) fn scanner(&self) -> Scanner<'_> {
        Scanner::new(&self.rules, &self.transactions, &self.hasher, self.options.batch_bytes_max)
    }

    /// What it means that the dedup set did not take a key.
    pub(crate) fn not_added(&self, why: NotAdded, set: &DedupSet) -> Halt {
        match why {
            NotAdded::Full => self.full(set),
            NotAdded::OutOfMemory(cause) => self.out_of_memory(cause),
        }
    }

    fn out_of_memory(&self, cause: std::io::Error) -> Halt {
        let path = self.log.sources.first().map_or("".as_ref(), |source| source.path());
        Halt::Failed(Error::io("take memory (dedupe_buffer_bytes) to clean", path, cause))
    }

    /// The dedup set has no room for another key.
    fn full(&self, set: &DedupSet) -> Halt {
        let Approach { readings, .. } = self.approach;
        if !self.may_fill() {
            // Offsets rise from entry to entry; only old wrappers can still overlap, inside.
            let detail = "its records have more keys than offsets; run verify";
            return Halt::Failed(Error::corrupt(OP, self.log.sources[0].path(), 0, detail));
        }
        if self.options.overflow == Overflow::EndPass {
            return Halt::Again(Approach { settles_end: true, ..self.approach });
        }
        if readings == READINGS_MAX {
            let why = format!("the keys do not fit into {READINGS_MAX} dedup sets: give it a larger dedupe_buffer_bytes");
            return Halt::Failed(Error::invalid(OP, why).at(self.log.sources[0].path()));
        }
        // Shares are not quite equal, and the guess is only one. A reading that finds the set full ends there: a quarter more
        // are tried at least, so that it does not end often, and twice as many at most.
        let keys = set.likely_keys().saturating_mul(readings.into()).min(self.keys_bound);
        let enough = (keys + keys / 8).div_ceil(self.capacity);
        let least = u64::from(readings + readings.div_ceil(4));
        let readings = enough.clamp(least, 2 * u64::from(readings)).min(READINGS_MAX.into()) as u32;
        Halt::Again(Approach { readings, ..self.approach })
    }

    pub(crate) fn go_on(&self) -> Result<(), Halt> {
        if self.pace.is_stopped() || self.target.is_unwanted() { Err(Halt::Stopped) } else { Ok(()) }
    }

    /// Before `bytes` are read.
    pub(crate) fn before(&self, bytes: u32) -> Result<(), Halt> {
        self.go_on()?;
        self.pace.before(bytes);
        Ok(())
    }
}
