//! The pass: over groups, segments and chunks from the newest to the oldest, each chunk read once; then the swap,
//! oldest group first.

use std::cell::Cell;
use std::ops::Range;

use keeplog_engine::{Error, ErrorKind, Result};
use keeplog_index::AbortedTxn;

use crate::chunk::{Chunk, Scanner};
use crate::cuts::{Trust, cut};
use crate::decide::decide;
use crate::dedup::{DedupSet, Full};
use crate::emit::{Emitter, Piece};
use crate::end::{keys_bound, pass_end};
use crate::hash::KeyHasher;
use crate::options::{CleanOptions, CleanOutcome, CleanReport, Progress, Watch};
use crate::plan::{DirtyRange, Rules, group};
use crate::source::LogView;
use crate::transactions::LazyTransactions;
use crate::walk::{OP, Order};

/// Why a pass does not go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Whoever watches wants it to stop.
    Stopped,
    /// The dirty section has more keys than the dedup set takes.
    Full,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(cause: Error) -> Self {
        Self::Failed(cause)
    }
}

impl From<Full> for Halt {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// Tells the watcher how far the pass is, and asks it whether to go on.
pub(crate) struct Meter<'a> {
    watch: &'a dyn Watch,
    progress: Cell<Progress>,
}

impl<'a> Meter<'a> {
    /// More is to be read than was known.
    fn expect(&self, bytes: u64) {
        let Progress { bytes_done, bytes_total } = self.progress.get();
        self.progress.set(Progress { bytes_done, bytes_total: bytes_total + bytes });
    }

    /// Before `bytes` are read.
    pub(crate) fn before(&self, bytes: u32) -> Result<(), Halt> {
        self.go_on()?;
        let mut progress = self.progress.get();
        progress.bytes_done += u64::from(bytes);
        progress.bytes_total = progress.bytes_total.max(progress.bytes_done);
        self.progress.set(progress);
        self.watch.charge(u64::from(bytes));
        self.watch.progress(progress);
        Ok(())
    }

    fn go_on(&self) -> Result<(), Halt> {
        if self.watch.is_stopped() { Err(Halt::Stopped) } else { Ok(()) }
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
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }
}

/// Where the outputs of a pass go.
pub(crate) trait Target {
    /// Takes the output of the segments `sources` (places in the log, one group). Groups come newest first.
    fn write(&mut self, sources: Range<usize>, output: GroupOutput) -> Result<()>;
    /// Puts all outputs in the place of their sources, oldest first.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Cleans `log` once. `begin` makes a target for every attempt; a target that is dropped leaves nothing behind.
pub(crate) fn run<'t>(
    log: &LogView<'_>,
    options: &CleanOptions,
    watch: &dyn Watch,
    begin: &mut dyn FnMut() -> Result<Box<dyn Target + 't>>,
) -> Result<CleanReport> {
    options.check()?;
    let range = DirtyRange::of(log, options);
    let report = CleanReport { first_uncleanable: range.first_uncleanable, ..CleanReport::begin(options) };
    if range.is_empty() {
        return Ok(report);
    }
    let pass = Pass::plan(log, range, options, watch).map_err(Halt::Failed);
    match pass.and_then(|mut pass| pass.run(&report, begin)) {
        Ok(report) => Ok(report),
        Err(Halt::Stopped) => Ok(CleanReport { outcome: CleanOutcome::Stopped, ..report }),
        Err(Halt::Failed(cause)) => Err(cause),
        // Offsets rise from entry to entry; only old wrappers can still overlap, inside.
        Err(Halt::Full) => Err(Error::new(ErrorKind::Corrupt, OP, "the records of the log have more keys than offsets; run verify")),
    }
}

/// What is known of the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All dirty keys fit.
    Certain,
    /// They may not. The pass is tried, for most logs repeat their keys; its end is settled if it fills the set.
    Open,
    /// They did not. The end must be settled.
    Unsettled,
}

struct Pass<'a> {
    log: &'a LogView<'a>,
    range: DirtyRange,
    options: &'a CleanOptions,
    rules: Rules,
    transactions: LazyTransactions<'a>,
    hasher: KeyHasher,
    set: DedupSet,
    end: End,
    trust: Trust,
    meter: Meter<'a>,
}

impl<'a> Pass<'a> {
    fn plan(log: &'a LogView<'a>, range: DirtyRange, options: &'a CleanOptions, watch: &'a dyn Watch) -> Result<Self> {
        let capacity = options.dedupe_keys();
        let bound = keys_bound(log, range, capacity)?;
        Ok(Self {
            log,
            range,
            options,
            rules: Rules::new(log, range, options),
            transactions: LazyTransactions::new(log.sources, range.first_uncleanable),
            hasher: options.hash_seed.map_or_else(KeyHasher::random, KeyHasher::from_seed),
            set: DedupSet::with_capacity(bound.min(capacity)),
            end: if bound <= capacity { End::Certain } else { End::Open },
            trust: Trust::Indexes,
            meter: Meter { watch, progress: Cell::default() },
        })
    }

    fn run<'t>(&mut self, report: &CleanReport, begin: &mut dyn FnMut() -> Result<Box<dyn Target + 't>>) -> Result<CleanReport, Halt> {
        loop {
            let step = match self.end {
                End::Unsettled => self.settle_end().map(|()| None),
                End::Open | End::Certain => begin().map_err(Halt::Failed).and_then(|target| self.attempt(target, report.clone()).map(Some)),
            };
            match step {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                Err(Halt::Full) if self.end == End::Open => self.end = End::Unsettled,
                // An index may have cut where no entry begins. Only what the headers confirm is damage.
                Err(Halt::Failed(cause)) if cause.is_corruption() && self.trust == Trust::Indexes => self.trust = Trust::Headers,
                Err(halt) => return Err(halt),
            }
            self.set.clear();
        }
    }

    /// Finds where Kafka's map would be full.
    fn settle_end(&mut self) -> Result<(), Halt> {
        let Self { log, range, options, set, .. } = self;
        let mut scanner = Scanner::new(&self.rules, &self.transactions, &self.hasher, set.buckets(), options.batch_bytes_max);
        let end = pass_end(log, *range, options, self.trust, &mut scanner, set, &self.meter)?;
        self.rules.end = end;
        self.end = End::Certain;
        Ok(())
    }

    fn attempt<'t>(&mut self, mut target: Box<dyn Target + 't>, mut report: CleanReport) -> Result<CleanReport, Halt> {
        let groups = group(self.log.sources, self.rules.end, self.range, self.options);
        let sources = &self.log.sources[..groups.last().map_or(0, |last| last.end)];
        self.meter.expect(sources.iter().map(|source| u64::from(source.size_bytes())).sum());
        for sources in groups.into_iter().rev() {
            let output = self.clean_group(&sources, &mut report)?;
            report.segments_before += sources.len();
            report.segments_after += 1;
            report.bytes_kept += output.bytes();
            if !self.is_unchanged(&sources, &output)? {
                report.bytes_written += output.bytes();
                self.meter.go_on()?;
                self.meter.watch.charge(output.bytes());
                target.write(sources, output)?;
            }
        }
        if self.end == End::Open && self.set.is_full() {
            // Perhaps just so: walking forward tells whether a key came when the map was full.
            return Err(Halt::Full);
        }
        self.meter.go_on()?;
        target.commit()?;
        report.outcome = CleanOutcome::Cleaned;
        report.new_dirty = self.rules.end;
        report.map_size = self.set.len();
        report.map_bytes = self.set.bytes();
        Ok(report)
    }

    fn clean_group(&mut self, sources: &Range<usize>, report: &mut CleanReport) -> Result<GroupOutput, Halt> {
        let Self { log, options, rules, set, meter, .. } = self;
        let mut scanner = Scanner::new(rules, &self.transactions, &self.hasher, set.buckets(), options.batch_bytes_max);
        let mut emitter = Emitter::new(rules.new_horizon_ms, options.batch_bytes_max);
        let mut chunk = Chunk::default();
        let mut output = GroupOutput {
            base_offset: log.sources[sources.start].base_offset(),
            modified_ms: log.sources[sources.end - 1].modified_ms(),
            ..GroupOutput::default()
        };
        for i in sources.clone().rev() {
            let source = &*log.sources[i];
            let file = source.file()?;
            let cuts = cut(source, &*file, options.chunk_bytes, self.trust)?;
            let mut limit = log.sources.get(i + 1).map_or(u64::MAX, |next| next.base_offset());
            for bounds in cuts.windows(2).rev() {
                meter.before(bounds[1] - bounds[0])?;
                let order = Order::new(source.base_offset(), limit);
                scanner.scan(source, &*file, (bounds[0], bounds[1]), order, &mut chunk)?;
                limit = chunk.first_offset;
                decide(&mut chunk.probes, set)?;
                let piece = emitter.emit(&chunk, source)?;
                report.bytes_read += u64::from(bounds[1] - bounds[0]);
                report.records_read += chunk.counts.records_read;
                report.records_keyless += chunk.counts.records_keyless;
                report.records_kept += piece.records;
                report.tombstones_kept += piece.tombstones;
                output.pieces.push(piece);
            }
        }
        if let Some(transactions) = self.transactions.known() {
            let next = log.sources.get(sources.end).map_or(u64::MAX, |next| next.base_offset());
            output.aborts = transactions.aborts_between(output.base_offset, next).to_vec();
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
}
