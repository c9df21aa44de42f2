//! The pass: over groups, segments and chunks from the newest to the oldest, each chunk read once; then the swap,
//! oldest group first.

use std::cell::Cell;
use std::ops::Range;

use keeplog_engine::{Error, Result};
use keeplog_index::AbortedTxn;

use crate::chunk::{Chunk, Scanner};
use crate::cuts::{Cutter, Trust};
use crate::decide::decide;
use crate::dedup::{DedupSet, Full};
use crate::emit::{Emitter, Piece};
use crate::end::{keys_bound, pass_end};
use crate::hash::KeyHasher;
use crate::options::{CleanOptions, CleanOutcome, CleanReport, Progress, Watch};
use crate::plan::{DirtyRange, Rules, group};
use crate::source::LogView;
use crate::split::split;
use crate::transactions::LazyTransactions;
use crate::walk::{OP, Order};

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

/// What stays of one group of segments.
#[derive(Debug, Default)]
pub(crate) struct GroupOutput {
    /// Base offset of the segment to be: that of the first of the group.
    pub(crate) base_offset: u64,
    /// Its bytes, the newest piece first. Each piece holds whole batches.
    pub(crate) pieces: Vec<Piece>,
    /// Its transaction index.
    pub(crate) aborts: Vec<AbortedTxn>,
    /// Its modification time, ms: that of the last of the group.
    pub(crate) modified_ms: i64,
}

impl GroupOutput {
    /// Bytes of the file to be.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }
}

/// Where the outputs of a pass go. Dropped before the commit, it leaves nothing behind.
pub(crate) trait Target {
    /// Takes the outputs, ascending, of the segments `sources` (places in the log, one group). Groups come newest first.
    fn write(&mut self, sources: Range<usize>, outputs: Vec<GroupOutput>) -> Result<()>;
    /// Puts all outputs in the place of their sources, oldest first.
    fn commit(self: Box<Self>) -> Result<()>;
    /// Whether somebody waits for the segments to be let go.
    fn is_unwanted(&self) -> bool {
        false
    }
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) enum Ran {
    Done(CleanReport),
    /// The same is to be done again, differently. Nothing was put in place.
    Again(Approach),
}

/// Cleans `log` once, or learns how it has to be done.
pub(crate) fn run(
    log: &LogView<'_>,
    options: &CleanOptions,
    watch: &dyn Watch,
    approach: Approach,
    target: Box<dyn Target + '_>,
) -> Result<Ran> {
    let range = DirtyRange::of(log, options);
    let report = CleanReport { first_uncleanable: range.first_uncleanable, ..CleanReport::begin(options) };
    if range.is_empty() {
        return Ok(Ran::Done(report));
    }
    let pass = Pass::plan(log, range, options, watch, approach, target);
    match pass.map_err(Halt::Failed).and_then(|pass| pass.run(report.clone())) {
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

struct Pass<'a> {
    log: &'a LogView<'a>,
    range: DirtyRange,
    options: &'a CleanOptions,
    approach: Approach,
    rules: Rules,
    transactions: LazyTransactions<'a>,
    hasher: KeyHasher,
    set: DedupSet,
    /// Whether the dirty section may have more keys than the set takes, and the pass was not ended before that.
    may_fill: bool,
    target: Box<dyn Target + 'a>,
    watch: &'a dyn Watch,
    progress: Cell<Progress>,
}

impl<'a> Pass<'a> {
    fn plan(
        log: &'a LogView<'a>,
        range: DirtyRange,
        options: &'a CleanOptions,
        watch: &'a dyn Watch,
        approach: Approach,
        target: Box<dyn Target + 'a>,
    ) -> Result<Self> {
        let capacity = options.dedupe_keys();
        let bound = keys_bound(log, range, capacity)?;
        Ok(Self {
            log,
            range,
            options,
            approach,
            rules: Rules::new(log, range, options),
            transactions: LazyTransactions::new(log.sources, range.first_uncleanable),
            hasher: options.hash_seed.map_or_else(KeyHasher::random, KeyHasher::from_seed),
            set: DedupSet::with_capacity(bound.min(capacity)),
            may_fill: bound > capacity,
            target,
            watch,
            progress: Cell::default(),
        })
    }

    fn run(mut self, mut report: CleanReport) -> Result<CleanReport, Halt> {
        if self.may_fill && self.approach.settles_end {
            self.settle_end()?;
        }
        let groups = group(self.log.sources, self.rules.end, self.range, self.options);
        let sources = &self.log.sources[..groups.last().map_or(0, |last| last.end)];
        self.expect(sources.iter().map(|source| u64::from(source.size_bytes())).sum());
        for sources in groups.into_iter().rev() {
            let output = self.clean_group(&sources, &mut report)?;
            let bytes = output.bytes();
            report.segments_before += sources.len();
            report.bytes_kept += bytes;
            if self.is_unchanged(&sources, &output)? {
                report.segments_after += 1;
                continue;
            }
            let last_possible = self.log.next_base(sources.end - 1) - 1;
            let outputs = split(output, self.options.output_bytes_max, last_possible, &*self.log.sources[sources.start])?;
            report.segments_after += outputs.len();
            report.bytes_written += bytes;
            self.go_on()?;
            self.watch.charge(bytes);
            self.target.write(sources, outputs)?;
        }
        if self.may_fill && self.set.is_full() {
            // Perhaps just so; walking forward tells whether another key came when the map was full.
            return Err(self.full());
        }
        self.go_on()?;
        self.target.commit()?;
        report.outcome = CleanOutcome::Cleaned;
        report.new_dirty = self.rules.end;
        report.map_size = self.set.len();
        report.map_bytes = self.set.bytes();
        Ok(report)
    }

    /// Finds where Kafka's map would be full, and ends the pass there.
    fn settle_end(&mut self) -> Result<(), Halt> {
        let mut set = std::mem::replace(&mut self.set, DedupSet::with_capacity(0));
        let mut scanner = Scanner::new(&self.rules, &self.transactions, &self.hasher, set.buckets(), self.options.batch_bytes_max);
        let cutter = Cutter { chunk_bytes: self.options.chunk_bytes, trust: self.approach.trust };
        let end = pass_end(self.log, self.range, cutter, &mut scanner, &mut set, &|bytes| self.before(bytes))?;
        self.rules.end = end;
        self.may_fill = false;
        set.clear();
        self.set = set;
        Ok(())
    }

    fn clean_group(&mut self, sources: &Range<usize>, report: &mut CleanReport) -> Result<GroupOutput, Halt> {
        let batch_bytes_max = self.options.batch_bytes_max;
        let mut set = std::mem::replace(&mut self.set, DedupSet::with_capacity(0));
        let mut scanner = Scanner::new(&self.rules, &self.transactions, &self.hasher, set.buckets(), batch_bytes_max);
        let mut emitter = Emitter::new(self.rules.new_horizon_ms, batch_bytes_max);
        let mut chunk = Chunk::default();
        let mut output = GroupOutput {
            base_offset: self.log.sources[sources.start].base_offset(),
            modified_ms: self.log.sources[sources.end - 1].modified_ms(),
            ..GroupOutput::default()
        };
        let cutter = Cutter { chunk_bytes: self.options.chunk_bytes, trust: self.approach.trust };
        for i in sources.clone().rev() {
            let source = &*self.log.sources[i];
            let file = source.file()?;
            let cuts = cutter.cut(source, &*file)?;
            let mut limit = self.log.next_base(i);
            for bounds in cuts.windows(2).rev() {
                self.before(bounds[1] - bounds[0])?;
                let order = Order::new(source.base_offset(), limit);
                scanner.scan(source, &*file, (bounds[0], bounds[1]), order, &mut chunk)?;
                limit = chunk.first_offset;
                decide(&mut chunk.probes, &mut set).map_err(|Full| self.full())?;
                let piece = emitter.emit(&chunk, source)?;
                report.bytes_read += u64::from(bounds[1] - bounds[0]);
                report.records_read += chunk.counts.records_read;
                report.records_keyless += chunk.counts.records_keyless;
                report.records_kept += piece.records;
                report.tombstones_kept += piece.tombstones;
                output.pieces.push(piece);
            }
        }
        self.set = set;
        if let Some(transactions) = self.transactions.known() {
            output.aborts = transactions.aborts_between(output.base_offset, self.log.next_base(sources.end - 1)).to_vec();
        }
        Ok(output)
    }

    /// Whether a group is one segment that lost nothing and gained nothing.
    fn is_unchanged(&self, sources: &Range<usize>, output: &GroupOutput) -> Result<bool> {
        if sources.len() != 1 || output.pieces.iter().any(|piece| piece.changed) {
            return Ok(false);
        }
        Ok(self.log.sources[sources.start].aborted_txns()? == output.aborts)
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

    fn go_on(&self) -> Result<(), Halt> {
        if self.watch.is_stopped() || self.target.is_unwanted() { Err(Halt::Stopped) } else { Ok(()) }
    }

    /// More is to be read than was known.
    fn expect(&self, bytes: u64) {
        let Progress { bytes_done, bytes_total } = self.progress.get();
        self.progress.set(Progress { bytes_done, bytes_total: bytes_total + bytes });
    }

    /// Before `bytes` are read.
    fn before(&self, bytes: u32) -> Result<(), Halt> {
        self.go_on()?;
        let mut progress = self.progress.get();
        progress.bytes_done += u64::from(bytes);
        progress.bytes_total = progress.bytes_total.max(progress.bytes_done);
        self.progress.set(progress);
        self.watch.charge(u64::from(bytes));
        self.watch.progress(progress);
        Ok(())
    }
}
