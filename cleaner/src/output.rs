//! What stays of a group of segments, from its chunks to its files.
//!
//! Chunks come newest first, files are written oldest first: until a group is through, what stays of it is held. There is a
//! limit to that, for all groups together. Of chunks beyond it only one bit a record is held; when their group is written
//! they are read again.
//!
//! An output that does not fit one file goes on in further ones: a batch that is written again can be larger than it
//! was, and a segment of an old version can span more offsets than an index can hold.

use std::collections::BTreeMap;
use std::ops::Range;

use keeplog_engine::Result;
use keeplog_engine::record::BatchHeader;
use keeplog_engine::sync::Mutex;
use keeplog_engine::sync::atomic::{AtomicU64, Ordering};
use keeplog_index::AbortedTxn;

use crate::chunk::{Chunk, Marks};
use crate::emit::Piece;
use crate::feed::Task;
use crate::pass::{Halt, Outputs, Pass};
use crate::plan::OUTPUT_SPAN_MAX;
use crate::source::Source;
use crate::walk::{Order, corrupt, corrupt_order};
use crate::work::{Hand, lock};

/// What stays of one chunk.
pub(crate) struct Part {
    /// The place of its segment in the log.
    at: usize,
    bounds: (u32, u32),
    bytes: u64,
    changed: bool,
    kept: Kept,
}

enum Kept {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Which of its records are live.
    Bits(Vec<u64>),
}

impl Part {
    /// What stays of `task`'s chunk, `piece`, held as there is room for it in `groups`.
    pub(crate) fn new(task: &Task<'_>, piece: Piece, chunk: &Chunk, groups: &Groups, pass: &Pass<'_>) -> Self {
        let bytes = piece.bytes.len() as u64;
        let kept = if groups.hold(bytes) {
            Kept::Bytes(piece.bytes)
        } else {
            // It will be read once more.
            pass.pace.expect(u64::from(task.bounds.1 - task.bounds.0));
            Kept::Bits(live_bits(chunk))
        };
        Self { at: task.at, bounds: task.bounds, bytes, changed: piece.changed, kept }
    }

    fn held(&self) -> u64 {
        if let Kept::Bytes(bytes) = &self.kept { bytes.len() as u64 } else { 0 }
    }
}

fn live_bits(chunk: &Chunk) -> Vec<u64> {
    let mut bits = vec![0; chunk.probes.len().div_ceil(64)];
    for (i, _) in chunk.probes.iter().enumerate().filter(|(_, probe)| probe.marks.has(Marks::LIVE)) {
        bits[i / 64] |= 1 << (i % 64);
    }
    bits
}

/// The groups of a pass that are begun and not yet through.
pub(crate) struct Groups {
    sources: Vec<Range<usize>>,
    open: Mutex<BTreeMap<usize, Open>>,
    held: AtomicU64,
    held_max: u64,
}

#[derive(Default)]
struct Open {
    /// By their place, the newest first; none for those that are still worked on.
    parts: Vec<Option<Part>>,
    done: usize,
    /// How many there are, once that is known.
    of: Option<usize>,
}

impl Groups {
    /// Of the segments `sources`, which hold at most `held_max` bytes together.
    pub(crate) fn new(sources: Vec<Range<usize>>, held_max: u64) -> Self {
        Self { sources, open: Mutex::default(), held: AtomicU64::new(0), held_max }
    }

    /// Whether `bytes` more may be held; then they are counted.
    fn hold(&self, bytes: u64) -> bool {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = held.saturating_add(bytes) <= self.held_max;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// So many bytes are held no more.
    pub(crate) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds the part at `place`; gives the group if that was the last one missing.
    pub(crate) fn add(&self, group: usize, place: usize, part: Part) -> Option<Whole> {
        self.change(group, |open| {
            if open.parts.len() <= place {
                open.parts.resize_with(place + 1, || None);
            }
            open.parts[place] = Some(part);
            open.done += 1;
        })
    }

    /// Notes that `group` has so many parts; gives it if all are there.
    pub(crate) fn end(&self, group: usize, parts: usize) -> Option<Whole> {
        self.change(group, |open| open.of = Some(parts))
    }

    fn change(&self, group: usize, change: impl FnOnce(&mut Open)) -> Option<Whole> {
        let mut all = lock(&self.open);
        let open = all.entry(group).or_default();
        change(open);
        if open.of != Some(open.done) {
            return None;
        }
        let parts = all.remove(&group)?.parts.into_iter().flatten().collect();
        Some(Whole { sources: self.sources[group].clone(), parts })
    }
}

/// All that stays of a group.
pub(crate) struct Whole {
    /// The places of its segments in the log.
    pub(crate) sources: Range<usize>,
    /// The newest first.
    parts: Vec<Part>,
}

/// What became of a group.
pub(crate) struct Written {
    pub(crate) segments: usize,
    pub(crate) is_unchanged: bool,
    /// Bytes that were held for it.
    pub(crate) held: u64,
}

impl Whole {
    /// Bytes that stay.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Writes it to the target, unless it is one segment that lost nothing and gained nothing.
    pub(crate) fn write(self, pass: &Pass<'_>, hand: &mut Hand<'_>) -> Result<Written, Halt> {
        let log = pass.log;
        let (first, last) = (&*log.sources[self.sources.start], &*log.sources[self.sources.end - 1]);
        let next_base = log.next_base(self.sources.end - 1);
        // Of a log whose transactions nobody has asked for, no batch here has any.
        let aborts = pass.transactions.known().map_or(&[][..], |known| known.aborts_between(first.base_offset(), next_base));
        let held = self.parts.iter().map(Part::held).sum();
        if self.sources.len() == 1 && !self.parts.iter().any(|part| part.changed) && first.aborted_txns()? == aborts {
            return Ok(Written { segments: 1, is_unchanged: true, held });
        }
        pass.go_on()?;
        let bytes = self.bytes();
        pass.pace.before_writing(bytes);
        let fits =
            bytes <= u64::from(pass.options.output_bytes_max) && (next_base - 1).saturating_sub(first.base_offset()) <= OUTPUT_SPAN_MAX;
        let mut files = Files {
            outputs: pass.target.begin(self.sources)?,
            base: first.base_offset(),
            bytes: 0,
            bytes_max: (!fits).then_some(u64::from(pass.options.output_bytes_max)),
            aborts,
            modified_ms: last.modified_ms(),
            finished: 0,
        };
        files.outputs.start(files.base)?;
        for part in self.parts.into_iter().rev() {
            let source = &*log.sources[part.at];
            let piece = match part.kept {
                Kept::Bytes(bytes) => bytes,
                Kept::Bits(ref bits) => again(pass, hand, &part, bits)?,
            };
            files.append(&piece, source)?;
        }
        files.finish(u64::MAX)?;
        let segments = files.finished;
        files.outputs.hand_over()?;
        Ok(Written { segments, is_unchanged: false, held })
    }
}

/// The bytes of a part of which only `bits` were held.
fn again(pass: &Pass<'_>, hand: &mut Hand<'_>, part: &Part, bits: &[u64]) -> Result<Vec<u8>, Halt> {
    let source = &*pass.log.sources[part.at];
    let Hand { scanner, emitter, chunk } = hand;
    pass.before(part.bounds.1 - part.bounds.0)?;
    let order = Order::new(source.base_offset(), pass.log.next_base(part.at));
    scanner.scan(source, &*source.file()?, part.bounds, order, chunk)?;
    for (i, probe) in chunk.probes.iter_mut().enumerate() {
        if bits.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 == 1) {
            probe.marks.set(Marks::LIVE);
        }
    }
    let piece = emitter.emit(chunk, source)?;
    if piece.bytes.len() as u64 != part.bytes {
        return Err(Halt::Failed(corrupt_order(source, part.bounds.0, "it reads otherwise than a moment ago")));
    }
    Ok(piece.bytes)
}

/// The files of one group, each as large as it may be.
struct Files<'p> {
    outputs: Box<dyn Outputs + 'p>,
    /// Of the file at hand.
    base: u64,
    bytes: u64,
    /// Bytes of a file at most; a single larger batch is a file of its own. `None` where it is known that one file is enough.
    bytes_max: Option<u64>,
    /// Of this file and the next ones.
    aborts: &'p [AbortedTxn],
    modified_ms: i64,
    finished: usize,
}

impl Files<'_> {
    /// Adds whole batches, of `source`.
    fn append(&mut self, entries: &[u8], source: &dyn Source) -> Result<()> {
        let Some(bytes_max) = self.bytes_max else { return self.outputs.append(entries) };
        let (mut from, mut at) = (0, 0);
        while at < entries.len() {
            let header = BatchHeader::parse(&entries[at..]).map_err(|e| corrupt(source, 0, e))?;
            let bytes = self.bytes + (at - from) as u64;
            let fits = bytes == 0 || bytes + u64::from(header.size) <= bytes_max;
            if !fits || header.last_offset - self.base > OUTPUT_SPAN_MAX {
                self.outputs.append(&entries[from..at])?;
                self.finish(header.base_offset)?;
                self.outputs.start(header.base_offset)?;
                (self.base, self.bytes, from) = (header.base_offset, 0, at);
            }
            at += header.size as usize;
        }
        self.bytes += (at - from) as u64;
        self.outputs.append(&entries[from..])
    }

    /// Ends the file at hand; the next one begins at offset `next_base`.
    fn finish(&mut self, next_base: u64) -> Result<()> {
        let (aborts, rest) = self.aborts.split_at(self.aborts.partition_point(|txn| txn.last_offset < next_base));
        self.aborts = rest;
        self.finished += 1;
        self.outputs.finish(aborts, self.modified_ms)
    }
}
