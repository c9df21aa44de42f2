//! From a decided chunk to the bytes that stay of it, straight from the buffer that it was read into.

use keeplog_engine::record::{
    Attributes, BatchHeader, BatchSpec, BatchWriter, Codec, DecodeError, Decoder, EncodeError, RecordRef, write_empty,
};
use keeplog_engine::{Error, ErrorKind, Result};

use crate::chunk::{Chunk, Entry, Marks, Traits, Verdict};
use crate::options::CleanOptions;
use crate::source::Source;
use crate::walk::{OP, corrupt};

/// What stays of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Whole v2 batches, ascending.
    pub(crate) bytes: Vec<u8>,
    /// Whether `bytes` differ from what was read.
    pub(crate) changed: bool,
    pub(crate) records: u64,
    pub(crate) tombstones: u64,
}

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Gone,
    /// Byte for byte as it is.
    Whole,
    /// Its header stays, without records.
    Emptied,
    /// It is written again; with the pass's delete horizon, if that is to be stamped.
    Rebuilt {
        stamp: bool,
    },
}

/// An entry of which something stays, or several that are adjacent and stay whole.
#[derive(Clone, Copy, Debug)]
struct Stay {
    fate: Fate,
    /// The place of the first in the chunk.
    entry: u32,
    /// Where the last ends in the chunk's bytes.
    end: u32,
}

/// Writes what stays. One for each thread that does so.
pub(crate) struct Emitter {
    writer: BatchWriter,
    decoder: Decoder,
    new_horizon_ms: i64,
    gzip_level: Option<i32>,
    zstd_level: Option<i32>,
    /// Of the chunk at hand.
    stays: Vec<Stay>,
}

/// Why a batch could not be written again.
#[derive(Clone, Copy)]
enum RebuildError {
    Decode(DecodeError),
    Encode(EncodeError),
}

impl From<DecodeError> for RebuildError {
    fn from(cause: DecodeError) -> Self {
        Self::Decode(cause)
    }
}

impl From<EncodeError> for RebuildError {
    fn from(cause: EncodeError) -> Self {
        Self::Encode(cause)
    }
}

impl Emitter {
    /// An emitter that stamps `new_horizon_ms`.
    pub(crate) fn new(new_horizon_ms: i64, options: &CleanOptions) -> Self {
        let &CleanOptions { batch_bytes_max, gzip_level, zstd_level, .. } = options;
        let (writer, decoder) = (BatchWriter::new(), Decoder::new(batch_bytes_max));
        Self { writer, decoder, new_horizon_ms, gzip_level, zstd_level, stays: Vec::new() }
    }

    /// What stays of `chunk`, a decided part of `source`.
    pub(crate) fn emit(&mut self, chunk: &Chunk, source: &dyn Source) -> Result<Piece> {
        let mut piece = Piece::default();
        let mut stays = std::mem::take(&mut self.stays);
        stays.clear();
        for (i, entry) in chunk.entries.iter().enumerate() {
            let (fate, end) = (fate(chunk, i, entry, &mut piece), entry.start + entry.size);
            match stays.last_mut() {
                _ if fate == Fate::Gone => piece.changed = true,
                // Adjacent whole entries are copied as one run.
                Some(last) if fate == Fate::Whole && last.fate == fate && last.end == entry.start => last.end = end,
                _ => stays.push(Stay { fate, entry: i as u32, end }),
            }
        }
        // What is written again can be larger, where compression does worse on less: then this grows.
        let start = |stay: &Stay| chunk.entries[stay.entry as usize].start;
        piece.bytes.reserve_exact(stays.iter().map(|stay| (stay.end - start(stay)) as usize).sum());
        for stay in &stays {
            let (i, entry) = (stay.entry as usize, &chunk.entries[stay.entry as usize]);
            match stay.fate {
                Fate::Emptied => self.empty(chunk, entry, &mut piece),
                Fate::Rebuilt { stamp } => self.rebuild(chunk, i, entry, stamp, &mut piece),
                Fate::Gone | Fate::Whole => {
                    piece.bytes.extend_from_slice(&chunk.bytes()[entry.start as usize..stay.end as usize]);
                    Ok(())
                }
            }
            .map_err(|e| failed(e, chunk, entry, source))?;
        }
        self.stays = stays;
        Ok(piece)
    }

    fn empty(&mut self, chunk: &Chunk, entry: &Entry, piece: &mut Piece) -> Result<(), RebuildError> {
        let bytes = chunk.entry_bytes(entry);
        let mut header = BatchHeader::parse(bytes)?;
        if header.magic < 2 {
            // The other bits mean nothing in the old formats.
            header.attributes.0 &= if header.magic == 0 { 0 } else { Attributes::LOG_APPEND_TIME };
        }
        let start = piece.bytes.len();
        write_empty(&header, &mut piece.bytes);
        piece.changed |= piece.bytes[start..] != *bytes;
        Ok(())
    }

    fn rebuild(&mut self, chunk: &Chunk, i: usize, entry: &Entry, stamp: bool, piece: &mut Piece) -> Result<(), RebuildError> {
        let bytes = chunk.entry_bytes(entry);
        let header = BatchHeader::parse(bytes)?;
        let mut spec = BatchSpec::like(&header)?;
        spec.level = match spec.codec {
            Codec::Gzip => self.gzip_level,
            Codec::Zstd => self.zstd_level,
            Codec::None | Codec::Snappy | Codec::Lz4 => None,
        };
        if stamp {
            spec.delete_horizon_ms = Some(self.new_horizon_ms);
        }
        let probes = chunk.probes_of(i);
        if entry.traits.has(Traits::KEPT) {
            self.writer.begin(spec);
            for (at, _) in probes.iter().enumerate().filter(|(_, probe)| probe.marks.has(Marks::LIVE)) {
                self.writer.push_ref(&chunk.body(entry.bodies, at))?;
            }
        } else {
            let stays = |at: usize| entry.verdict != Verdict::Judge || probes[at].marks.has(Marks::LIVE);
            let (writer, mut begun) = (&mut self.writer, false);
            let mut push = |record: &RecordRef<'_>| {
                if !begun {
                    if entry.traits.has(Traits::LEGACY) {
                        spec.base_offset = record.offset;
                    }
                    writer.begin(spec);
                    begun = true;
                }
                Ok::<_, RebuildError>(writer.push_ref(record)?)
            };
            if entry.traits.has(Traits::LEGACY) {
                for (_, record) in self.decoder.records(bytes)?.enumerate().filter(|(at, _)| stays(*at)) {
                    push(&record?)?;
                }
            } else {
                self.decoder.visit_some(&header, bytes, stays, push)?;
            }
        }
        self.writer.finish(&mut piece.bytes)?;
        piece.changed = true;
        Ok(())
    }
}

/// Decides entry `i` from the marks of its records, and counts them.
fn fate(chunk: &Chunk, i: usize, entry: &Entry, piece: &mut Piece) -> Fate {
    let without_records = if entry.traits.has(Traits::KEEPS_EMPTY) { Fate::Emptied } else { Fate::Gone };
    match entry.verdict {
        Verdict::Drop => return without_records,
        Verdict::Keep | Verdict::Stamp => {
            // invariant: only control batches get these verdicts, and only with one record or more.
            piece.records += control_records(chunk, entry);
            return if entry.verdict == Verdict::Stamp { Fate::Rebuilt { stamp: true } } else { Fate::Whole };
        }
        Verdict::Judge => {}
    }
    let probes = chunk.probes_of(i);
    let (mut live, mut null) = (0, 0);
    for probe in probes {
        let lives = probe.marks.has(Marks::LIVE);
        live += usize::from(lives);
        null += usize::from(lives & probe.marks.has(Marks::NULL));
    }
    piece.records += live as u64;
    piece.tombstones += null as u64;
    let stamp = null > 0 && !entry.traits.has(Traits::HAS_HORIZON);
    match live {
        0 => without_records,
        _ if live == probes.len() && !stamp && !entry.traits.has(Traits::LEGACY) => Fate::Whole,
        _ => Fate::Rebuilt { stamp },
    }
}

fn control_records(chunk: &Chunk, entry: &Entry) -> u64 {
    BatchHeader::parse(chunk.entry_bytes(entry)).map_or(0, |header| header.count.max(0) as u64)
}

fn failed(cause: RebuildError, chunk: &Chunk, entry: &Entry, source: &dyn Source) -> Error {
    let position = chunk.position + entry.start;
    match cause {
        RebuildError::Decode(cause) => corrupt(source, position, cause),
        RebuildError::Encode(cause) => {
            let why = match cause {
                EncodeError::OffsetSpan { offset, base } => format!(
                    "its records have offsets from {base} to {offset}, and a batch of format v2, in which it would be written again, \
                     spans 2147483648 at most: this log can't be cleaned, unless its records are copied into a new one"
                ),
                other => format!("it does not fit the format when it is written again: {other}"),
            };
            Error::new(ErrorKind::TooLarge, OP, why).at(source.path()).position_at(u64::from(position)).caused_by(cause)
        }
    }
}
