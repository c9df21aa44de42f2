//! The pass as a whole: how it begins, who works on it, and the swap at its end.

use std::ops::Range;

use keeplog_engine::{Error, Result};
use keeplog_index::AbortedTxn;

use crate::cuts::{Cutter, Trust};
use crate::dedup::{DedupSet, NotAdded};
use crate::end::{keys_bound, pass_end};
use crate::hash::KeyHasher;
use crate::options::{CleanOptions, CleanOutcome, CleanReport, Watch};
use crate::plan::{DirtyRange, Joints, Rules};
use crate::progress::Pace;
use crate::scan::Scanner;
use crate::source::LogView;
use crate::transactions::LazyTransactions;
use crate::walk::OP;
use crate::work;

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
}

impl Default for Approach {
    fn default() -> Self {
        Self { trust: Trust::Indexes, settles_end: false }
    }
}

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
    /// All are finished: the target takes them.
    fn hand_over(self: Box<Self>) -> Result<()>;
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
    /// Whether the dirty section may have more keys than the set takes, and the pass was not ended before that.
    may_fill: bool,
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
    let mut pass = Pass {
        log,
        options,
        cutter: Cutter { chunk_bytes: options.chunk_bytes, trust: approach.trust },
        rules: Rules::new(log, range, options),
        transactions: LazyTransactions::new(log.sources, range.first_uncleanable),
        hasher: options.hash_seed.map_or_else(KeyHasher::random, KeyHasher::from_seed),
        target,
        pace: Pace::new(watch),
        range,
        approach,
        may_fill: bound > capacity,
    };
    let set = if pass.may_fill && approach.settles_end { pass.settle_end(capacity)? } else { pass.new_set(bound.min(capacity))? };
    let sources = &log.sources[..log.sources.partition_point(|source| source.base_offset() < pass.rules.end)];
    pass.pace.expect(sources.iter().map(|source| u64::from(source.size_bytes())).sum());
    let joints = Joints::new(log, sources.len(), range, options);
    let (set, mut report) = work::on_sources(&pass, set, sources.len(), joints, report)?;
    if pass.may_fill && set.is_full() {
        // Perhaps just so; walking forward tells whether another key came when the map was full.
        return Err(pass.full());
    }
    pass.go_on()?;
    report.outcome = CleanOutcome::Cleaned;
    report.new_dirty = pass.rules.end;
    report.map_size = set.len();
    report.map_bytes = set.bytes();
    Ok(report)
}

impl Pass<'_> {
    fn new_set(&self, capacity: u64) -> Result<DedupSet, Halt> {
        DedupSet::growing(capacity).map_err(|e| self.not_added(NotAdded::OutOfMemory(e)))
    }

    /// Finds where Kafka's map would be full, and ends the pass there. Gives a set for the keys below.
    fn settle_end(&mut self, capacity: u64) -> Result<DedupSet, Halt> {
        let mut set = self.new_set(capacity)?;
        let end = pass_end(self, self.range, &mut set)?;
        self.rules.end = end;
        self.may_fill = false;
        let keys = set.len();
        drop(set);
        DedupSet::with_capacity(keys).map_err(|e| self.not_added(NotAdded::OutOfMemory(e)))
    }

    /// A scanner for this pass.
    pub(crate) fn scanner(&self) -> Scanner<'_> {
        Scanner::new(&self.rules, &self.transactions, &self.hasher, self.options.batch_bytes_max)
    }

    /// What it means that the dedup set did not take a key.
    pub(crate) fn not_added(&self, why: NotAdded) -> Halt {
        match why {
            NotAdded::Full => self.full(),
            NotAdded::OutOfMemory(cause) => {
                let path = self.log.sources.first().map_or("".as_ref(), |source| source.path());
                Halt::Failed(Error::io("take memory (dedupe_buffer_bytes) to clean", path, cause))
            }
        }
    }

    /// The dedup set has no room for another key.
    fn full(&self) -> Halt {
        if self.may_fill {
            return Halt::Again(Approach { settles_end: true, ..self.approach });
        }
        // Offsets rise from entry to entry; only old wrappers can still overlap, inside.
        let detail = "its records have more keys than offsets; run verify";
        Halt::Failed(Error::corrupt(OP, self.log.sources[0].path(), 0, detail))
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
