//! Iterators over batches and records of a snapshot of the log. Fused: after an error they end; of damage, it says where
//! another one can go on.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use keeplog_index::AbortedTxn;

use super::append::marker_of;
use crate::record::{BatchHeader, ControlType, DecodeError, Decoder, HEADER_V2_BYTES, OwnedRecords, StoredRecord};
use crate::room;
use crate::segment::Segment;
use crate::segment_set::SegmentSet;
use crate::storage::read_full_at;
use crate::{Error, ErrorKind, Result};

/// Bytes of the active segment that are read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// One batch of the log.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    /// Its bytes, header included.
    pub bytes: Bytes,
    /// Its header. The checksum was verified.
    pub header: BatchHeader,
    /// Base offset of the segment that holds it.
    pub segment: u64,
    /// Its byte position there.
    pub position: u64,
}

/// The batches of a log from some offset on, in order, control batches included. Made by [`Log::batches_from`](crate::Log::batches_from).
/// Ends after an error.
#[derive(Debug)]
pub struct Batches {
    set: Arc<SegmentSet>,
    /// Place of the current segment in `set`.
    at: usize,
    /// Position of the next entry in the current segment.
    position: u64,
    /// Bytes of the current segment from `window_start` on: all of a sealed one (mapped), a part of the active one.
    window: Bytes,
    window_start: u64,
    from: u64,
    limit: u64,
    /// One past the last batch: offsets only ever rise.
    next_offset: u64,
    done: bool,
}

impl Batches {
    pub(super) fn new(set: Arc<SegmentSet>, from: u64, limit: u64) -> Result<Self> {
        let at = set.position_of(from);
        let position = u64::from(set.all()[at].position_for(from)?);
        Ok(Self { set, at, position, window: Bytes::new(), window_start: 0, from, limit, next_offset: 0, done: false })
    }

    fn step(&mut self) -> Result<Option<StoredBatch>> {
        loop {
            let Some(segment) = self.set.all().get(self.at).cloned() else { return Ok(None) };
            if self.position >= segment.size_bytes() {
                self.at += 1;
                self.position = 0;
                self.window = Bytes::new();
                continue;
            }
            let batch = self.entry(&segment)?;
            let next = self.set.all().get(self.at + 1).map(|next| next.base_offset());
            check_inside(&self.set, &segment, next, (&batch.header, &batch.bytes), batch.position)?;
            // A limit inside a batch is that of a start offset inside a transaction that is still open.
            if batch.header.last_offset >= self.limit {
                return Ok(None);
            }
            self.position += batch.bytes.len() as u64;
            let is_asked_for = batch.header.last_offset >= self.from;
            if is_asked_for {
                batch.header.verify_crc(&batch.bytes).map_err(|e| damage(&self.set, &segment, batch.position, e))?;
            }
            // Also of what lies below: a batch that only seems to would be passed over.
            self.check_rises(&segment, &batch)?;
            if is_asked_for {
                return Ok(Some(batch));
            }
        }
    }

    /// Refuses a batch that goes back: two segments that overlap, or batches that were written twice.
    fn check_rises(&mut self, segment: &Segment, batch: &StoredBatch) -> Result<()> {
        if batch.header.base_offset < self.next_offset {
            return Err(goes_back(segment, batch.position, batch.header.base_offset, self.next_offset));
        }
        self.next_offset = batch.header.next_offset();
        Ok(())
    }

    fn entry(&mut self, segment: &Segment) -> Result<StoredBatch> {
        let position = self.position;
        let head = self.bytes_at(segment, HEADER_V2_BYTES as u64)?;
        let header = match BatchHeader::parse(&head) {
            Ok(header) => header,
            Err(cause) => {
                let is_newer = matches!(cause, DecodeError::Magic(_)) && self.is_sound_but_for_magic(segment, &head)?;
                let error = damage(&self.set, segment, position, cause);
                return Err(if is_newer { error.of_kind(ErrorKind::Unsupported) } else { error });
            }
        };
        let needed = u64::from(header.size);
        let bytes = self.bytes_at(segment, needed)?;
        if (bytes.len() as u64) < needed {
            return Err(damage(&self.set, segment, position, DecodeError::Truncated { needed, available: bytes.len() as u64 }));
        }
        Ok(StoredBatch { bytes, header, segment: segment.base_offset(), position })
    }

    fn is_sound_but_for_magic(&mut self, segment: &Segment, head: &[u8]) -> Result<bool> {
        let Ok(header) = BatchHeader::parse_as_v2(head) else { return Ok(false) };
        Ok(header.verify_crc(&self.bytes_at(segment, u64::from(header.size))?).is_ok())
    }

    /// Up to `wanted` bytes at the current position; fewer only where the segment ends.
    fn bytes_at(&mut self, segment: &Segment, wanted: u64) -> Result<Bytes> {
        let end = (self.position + wanted).min(segment.size_bytes());
        let held = self.window_start..self.window_start + self.window.len() as u64;
        if self.position < held.start || end > held.end {
            self.load(segment, end - self.position)?;
        }
        let start = (self.position - self.window_start) as usize;
        let stop = ((end - self.window_start) as usize).min(self.window.len());
        Ok(self.window.slice(start..stop.max(start)))
    }

    fn load(&mut self, segment: &Segment, at_least: u64) -> Result<()> {
        if let Some(mapped) = segment.bytes()? {
            self.window = mapped;
            self.window_start = 0;
            return Ok(());
        }
        let take = WINDOW_BYTES.max(at_least).min(segment.size_bytes() - self.position);
        let io = |e| Error::io("read", &segment.path(), e).position_at(self.position);
        let mut buffer = room::zeroed(take as usize).map_err(io)?;
        let read = read_full_at(&*segment.file()?, &mut buffer, self.position).map_err(io)?;
        buffer.truncate(read);
        self.window = buffer.into();
        self.window_start = self.position;
        Ok(())
    }
}

impl Iterator for Batches {
    type Item = Result<StoredBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let result = self.step().transpose();
        self.done = !matches!(result, Some(Ok(_)));
        result
    }
}

/// Refuses a batch outside of its segment, which ends where the `next` begins. No checksum covers a batch's offset, and readers
/// stop at the first that is not below the end of the log.
pub(super) fn check_inside(
    set: &SegmentSet,
    segment: &Segment,
    next: Option<u64>,
    (header, bytes): (&BatchHeader, &[u8]),
    position: u64,
) -> Result<()> {
    let base = segment.base_offset();
    if header.base_offset >= base && next.is_none_or(|next| header.last_offset < next) {
        return Ok(());
    }
    header.verify_crc(bytes).map_err(|cause| damage(set, segment, position, cause))?;
    let up_to = next.map_or_else(String::new, |next| format!(" to {}", next - 1));
    let detail = format!(
        "its offsets {} to {} are not of this segment, which holds those from {base}{up_to}; run `keeplog verify` on its directory",
        header.base_offset, header.last_offset
    );
    Err(Error::corrupt("read", &segment.path(), position, detail).offset_at(header.base_offset).resume_at(next))
}

/// A batch of offsets that were there before.
pub(super) fn goes_back(segment: &Segment, position: u64, base_offset: u64, expected: u64) -> Error {
    let detail = format!("its offset {base_offset} was there before; run `keeplog verify` on its directory");
    Error::corrupt("read", &segment.path(), position, detail).offset_at(expected)
}

pub(super) fn damage(set: &SegmentSet, segment: &Segment, position: u64, cause: DecodeError) -> Error {
    if let DecodeError::OutOfMemory { .. } = cause {
        return Error::new(ErrorKind::OutOfMemory, "read", cause.to_string()).at(&segment.path()).position_at(position).caused_by(cause);
    }
    let detail = format!("{cause}; run `keeplog verify` on its directory");
    let next = set.all().iter().map(|s| s.base_offset()).find(|base| *base > segment.base_offset());
    let error = Error::corrupt("read", &segment.path(), position, detail).resume_at(next);
    // The checksum covers the codec: nothing is damaged.
    let error = if matches!(cause, DecodeError::UnknownCodec(_)) { error.of_kind(ErrorKind::Unsupported) } else { error };
    error.caused_by(cause)
}

/// The records of a log from some offset on, in order, without control records. Made by [`Log::read_from`](crate::Log::read_from)
/// and [`Log::read_committed_from`](crate::Log::read_committed_from). Ends after an error; of damage,
/// [`Error::resume_offset`](crate::Error::resume_offset) says where the next one can begin.
#[derive(Debug)]
pub struct Records {
    batches: Batches,
    current: Option<(OwnedRecords, Arc<Segment>, u64)>,
    from: u64,
    aborted: Option<AbortedFilter>,
    decoder: Decoder,
    done: bool,
}

impl Records {
    pub(super) fn new(batches: Batches, from: u64, decompressed_bytes_max: usize, aborted: Option<Vec<AbortedTxn>>) -> Self {
        let aborted = aborted.map(AbortedFilter::new);
        Self { batches, current: None, from, aborted, decoder: Decoder::new(decompressed_bytes_max), done: false }
    }

    fn step(&mut self) -> Result<Option<StoredRecord>> {
        loop {
            if let Some((records, segment, position)) = &mut self.current {
                match records.next() {
                    Some(Ok(record)) if record.offset() < self.from => continue,
                    Some(record) => return record.map(Some).map_err(|e| damage(&self.batches.set, segment, *position, e)),
                    None => self.current = None,
                }
            }
            let Some(batch) = self.batches.next().transpose()? else { return Ok(None) };
            let segment = Arc::clone(&self.batches.set.all()[self.batches.set.position_of(batch.segment)]);
            let skip = match &mut self.aborted {
                Some(filter) => {
                    filter.skips(&batch, &mut self.decoder).map_err(|e| damage(&self.batches.set, &segment, batch.position, e))?
                }
                None => false,
            };
            if skip || batch.header.is_control() {
                continue;
            }
            let records = self.decoder.decode_owned(batch.bytes).map_err(|e| damage(&self.batches.set, &segment, batch.position, e))?;
            self.current = Some((records, segment, batch.position));
        }
    }
}

impl Iterator for Records {
    type Item = Result<StoredRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let result = self.step().transpose();
        self.done = !matches!(result, Some(Ok(_)));
        result
    }
}

/// Leaves out the data of aborted transactions: from the first offset of one to its abort marker.
#[derive(Debug)]
struct AbortedFilter {
    /// By first offset, descending: the next to begin is last.
    waiting: Vec<AbortedTxn>,
    open: HashSet<i64>,
}

impl AbortedFilter {
    fn new(mut aborted: Vec<AbortedTxn>) -> Self {
        aborted.sort_unstable_by_key(|t| std::cmp::Reverse(t.first_offset));
        Self { waiting: aborted, open: HashSet::new() }
    }

    fn skips(&mut self, batch: &StoredBatch, decoder: &mut Decoder) -> Result<bool, DecodeError> {
        let header = &batch.header;
        if !header.has_producer() {
            return Ok(false);
        }
        while self.waiting.last().is_some_and(|t| t.first_offset <= header.last_offset) {
            if let Some(txn) = self.waiting.pop() {
                self.open.insert(txn.producer_id);
            }
        }
        if header.is_control() {
            if marker_of(header, &batch.bytes, decoder)?.is_some_and(|m| m.kind == ControlType::Abort) {
                self.open.remove(&header.producer_id);
            }
            return Ok(true);
        }
        Ok(header.is_transactional() && self.open.contains(&header.producer_id))
    }
}
