//! From what stays of a group of segments to its files.
//!
//! An output that does not fit one file goes on in further ones: a batch that is written again can be larger than it
//! was, and a segment of an old version can span more offsets than an index can hold.

use keeplog_engine::Result;
use keeplog_engine::record::BatchHeader;
use keeplog_index::AbortedTxn;

use crate::assemble::{Group, Kept, Part};
use crate::pass::{Halt, Outputs, Pass};
use crate::plan::OUTPUT_SPAN_MAX;
use crate::source::Source;
use crate::walk::{Order, corrupt, corrupt_order};
use crate::work::Hand;

/// What became of a group.
pub(crate) struct Written {
    pub(crate) segments: usize,
    pub(crate) bytes: u64,
}

impl Group {
    /// Writes it to the target, unless it is one segment that lost nothing and gained nothing.
    pub(crate) fn write(self, pass: &Pass<'_>, hand: &mut Hand<'_>) -> Result<Written, Halt> {
        let log = pass.log;
        let (first, last) = (&*log.sources[self.sources.start], &*log.sources[self.sources.end - 1]);
        let next_base = log.next_base(self.sources.end - 1);
        // Of a log whose transactions nobody has asked for, no batch here has any.
        let aborts = pass.transactions.known().map_or(&[][..], |known| known.aborts_between(first.base_offset(), next_base));
        if self.sources.len() == 1 && !self.changed && first.aborted_txns()? == aborts {
            return Ok(Written { segments: 1, bytes: 0 });
        }
        pass.go_on()?;
        if !pass.options.dry_run {
            pass.pace.before_writing(self.bytes);
        }
        let bytes_max = u64::from(pass.options.output_bytes_max);
        let fits = self.bytes <= bytes_max && (next_base - 1).saturating_sub(first.base_offset()) <= OUTPUT_SPAN_MAX;
        let mut files = Files {
            outputs: pass.target.begin(self.sources)?,
            base: first.base_offset(),
            bytes: 0,
            bytes_max: (!fits).then_some(bytes_max),
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
        files.outputs.hand_over(!self.lost_tombstones && !pass.is_provisional())?;
        Ok(Written { segments, bytes: self.bytes })
    }
}

/// The bytes of a part of which only `bits` were held.
fn again(pass: &Pass<'_>, hand: &mut Hand<'_>, part: &Part, bits: &[u64]) -> Result<Vec<u8>, Halt> {
    let source = &*pass.log.sources[part.at];
    let Hand { scanner, emitter, chunk } = hand;
    pass.pace.expect(u64::from(part.bounds.1 - part.bounds.0));
    pass.before(part.bounds.1 - part.bounds.0)?;
    let order = Order::new(source.base_offset(), pass.log.next_base(part.at));
    scanner.scan(source, &*source.file()?, part.bounds, order, chunk)?;
    pass.pace.after(part.bounds.1 - part.bounds.0);
    chunk.mark_live(bits);
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
