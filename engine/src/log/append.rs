//! Appending: batches are built and checked before any lock, then placed at the end of the active segment.

use super::commit::Synced;
use super::{Inner, Log, Unsynced, Writer};
use crate::config::Durability;
use crate::names::{FileKind, FileState};
use crate::planted::{Defect, is_planted};
use crate::producers::{Marker, SequenceCheck, Sequences};
use crate::record::{self, BatchHeader, BatchSpec, BatchWriter, ControlType, Decoder, EndMarker, Record, TimestampType, TxnResult};
use crate::segment::{BatchPlace, IndexBuilder, SEGMENT_FILES, Segment};
use crate::storage::{OpenMode, write_all_at};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, MutexGuard, PoisonError};
use crate::{Error, ErrorKind, Result};

/// Closed segments that may wait for a sync, each with its file open: whoever never asks for one must not run out of files.
/// Few for models and the simulator, so that they get there.
const UNSYNCED_MAX: usize = if cfg!(any(feature = "planted", feature = "shuttle")) { 3 } else { 32 };

/// Where an append ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: u64,
    /// Offset of its last record.
    pub last_offset: u64,
    /// Largest timestamp of the batch, ms.
    pub timestamp_ms: i64,
    /// The producer had sent this batch before; these are its offsets from then, and nothing was appended now.
    pub duplicate: bool,
}

/// How a transaction ends, for [`Log::end_transaction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionEnd {
    /// Whose transaction ends.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// Whether its records hold.
    pub result: TxnResult,
    /// Epoch of the transaction coordinator.
    pub coordinator_epoch: i32,
}

/// A whole batch with what the log must know of it before it is placed.
struct Incoming<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
    marker: Option<Marker>,
}

impl Log {
    /// Appends `records` as one batch, all or none; offsets and missing timestamps are assigned here. Returns once
    /// the acknowledgement that `durability` names is due.
    ///
    /// # Errors
    /// `InvalidInput` for no records, a keyless record in a compacted log, a negative timestamp, or a batch above
    /// `max_message_bytes` or `segment_bytes`; `OutOfRange` if the log was truncated below the batch while it waited to be
    /// synced; `StorageFull` and `Io` stop all later writes (`Poisoned`) until the log is reopened.
    pub fn append(&self, records: &[Record], durability: Durability) -> Result<Appended> {
        self.append_records(records, BatchSpec::default(), durability)
    }

    /// As [`Log::append`], in the transaction of a producer, which this opens if none is open: a batch that a coordinator
    /// writes in the producer's name. As in Kafka its sequence numbers start at 0 and are not checked, so that each counts.
    /// [`Log::end_transaction`] ends the transaction.
    ///
    /// # Errors
    /// As [`Log::append`]; `InvalidInput` for a negative producer id or epoch, `ProducerFenced` for an epoch below the
    /// producer's.
    pub fn append_in_transaction(
        &self,
        producer_id: i64,
        producer_epoch: i16,
        records: &[Record],
        durability: Durability,
    ) -> Result<Appended> {
        if producer_id < 0 || producer_epoch < 0 {
            let detail = format!("a transaction needs a producer id and an epoch of 0 or more, not {producer_id} and {producer_epoch}");
            return Err(self.inner.refuse(detail));
        }
        self.append_records(
            records,
            BatchSpec { producer_id, producer_epoch, base_sequence: 0, transactional: true, ..BatchSpec::default() },
            durability,
        )
    }

    fn append_records(&self, records: &[Record], spec: BatchSpec, durability: Durability) -> Result<Appended> {
        let inner = &*self.inner;
        inner.check_writable("append to")?;
        let now_ms = inner.place.storage.now_ms();
        inner.check_records(records)?;
        let mut batch = Vec::new();
        let mut batch_writer = inner.take_batch_writer();
        let built = inner.build(&mut batch_writer, spec, records, now_ms, &mut batch);
        inner.batch_writers.lock().unwrap_or_else(PoisonError::into_inner).push(batch_writer);
        built?;
        inner.append_leader(&mut batch, Sequences::Ignored, durability)
    }

    /// Appends one v2 batch that a producer built: its base offset is 0 and is assigned here, as is the leader
    /// epoch. Sequence numbers are checked where the batch has a producer id; a batch that is there already is
    /// acknowledged with its old offsets.
    ///
    /// # Errors
    /// As [`Log::append`]; `InvalidInput` if the batch is malformed or its checksum is wrong; `OutOfOrderSequence` and `ProducerFenced`.
    pub fn append_batch(&self, mut batch: Vec<u8>, durability: Durability) -> Result<Appended> {
        let inner = &*self.inner;
        inner.check_writable("append to")?;
        inner.check_produced(&batch)?;
        inner.append_leader(&mut batch, Sequences::Checked, durability)
    }

    /// Ends the open transaction of a producer by a marker.
    ///
    /// # Errors
    /// `ProducerFenced` for an epoch below the producer's, or a coordinator epoch below the one that wrote the last marker.
    pub fn end_transaction(&self, end: &TransactionEnd, durability: Durability) -> Result<Appended> {
        let inner = &*self.inner;
        inner.check_writable("end a transaction in")?;
        let now_ms = inner.place.storage.now_ms();
        let mut batch = Vec::new();
        let TransactionEnd { producer_id, producer_epoch, result, coordinator_epoch } = *end;
        let marker = EndMarker { offset: 0, leader_epoch: 0, timestamp: now_ms, producer_id, producer_epoch, result, coordinator_epoch };
        record::write_end_marker(&marker, &mut batch).map_err(|e| inner.refuse(e.to_string()))?;
        let mut writer = inner.writer();
        writer.producers.check_marker(producer_id, producer_epoch, coordinator_epoch).map_err(|e| e.at(&inner.place.dir))?;
        let placed = inner.place_leader_batch(&mut writer, &mut batch, Sequences::Ignored)?;
        inner.acknowledge(writer, placed, durability)
    }

    /// Appends whole entries of another log as they are, offsets and leader epochs kept. Offsets must rise, and start
    /// at or above the end of this log; gaps are fine. All of `entries` is checked before any is written.
    ///
    /// # Errors
    /// `InvalidInput` for offsets that do not rise, a malformed entry or a wrong checksum.
    pub fn append_as_follower(&self, entries: &[u8], durability: Durability) -> Result<Appended> {
        let inner = &*self.inner;
        inner.check_writable("append to")?;
        let incoming = inner.split_entries(entries)?;
        let (Some(first), Some(last)) = (incoming.first(), incoming.last()) else {
            return Err(Error::invalid("append to", "there is no entry to append").at(&inner.place.dir));
        };
        let placed = Appended {
            base_offset: first.header.base_offset,
            last_offset: last.header.last_offset,
            timestamp_ms: incoming.iter().map(|i| i.header.max_timestamp).max().unwrap_or(-1),
            duplicate: false,
        };
        let mut writer = inner.writer();
        if placed.base_offset < writer.next_offset {
            let detail = format!("the first entry has offset {}, the log ends at {}", placed.base_offset, writer.next_offset);
            return Err(Error::invalid("append to", detail).at(&inner.place.dir));
        }
        for batch in &incoming {
            inner.place_batch(&mut writer, batch)?;
        }
        inner.acknowledge(writer, placed, durability)
    }

    /// Closes the active segment and starts a new one at the end offset; nothing happens if the active one is empty.
    pub fn roll(&self) -> Result<()> {
        let inner = &*self.inner;
        let mut writer = inner.writer();
        inner.check_writable("roll")?;
        if writer.position == 0 {
            return Ok(());
        }
        let base_offset = writer.next_offset;
        inner.roll_to(&mut writer, base_offset).map_err(|e| inner.fail(e))?;
        inner.sync_if_crowded(writer);
        Ok(())
    }
}

impl Inner {
    fn refuse(&self, detail: impl Into<String>) -> Error {
        Error::invalid("append to", detail).at(&self.place.dir)
    }

    fn check_records(&self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Err(self.refuse("there is no record to append"));
        }
        if records.len() > i32::MAX as usize {
            return Err(self.refuse("a batch holds at most 2147483647 records"));
        }
        if self.options.cleanup_policy.compacts() && records.iter().any(|r| r.key.is_none()) {
            return Err(self.refuse("a compacted log takes no record without a key"));
        }
        if records.iter().any(|r| r.timestamp_ms.is_some_and(|t| t < 0)) {
            return Err(self.refuse("a timestamp must not be negative"));
        }
        Ok(())
    }

    fn build(&self, writer: &mut BatchWriter, spec: BatchSpec, records: &[Record], now_ms: i64, out: &mut Vec<u8>) -> Result<()> {
        let timestamp_type = self.options.message_timestamp_type;
        let spec = BatchSpec {
            codec: self.options.compression,
            level: self.options.compression_level(self.options.compression),
            timestamp_type,
            max_timestamp: (timestamp_type == TimestampType::LogAppend).then_some(now_ms),
            ..spec
        };
        writer.begin(spec);
        for (offset, record) in records.iter().enumerate() {
            let timestamp = record.timestamp_ms.unwrap_or(now_ms);
            writer
                .push(offset as u64, timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers)
                .map_err(|e| self.refuse(e.to_string()))?;
        }
        writer.finish(out).map_err(|e| self.refuse(e.to_string()))?;
        self.check_size(out.len())
    }

    fn check_size(&self, bytes: usize) -> Result<()> {
        let limit = self.options.max_message_bytes.min(self.options.segment_bytes);
        if bytes > limit as usize {
            return Err(self.refuse(format!("the batch has {bytes} bytes, max_message_bytes and segment_bytes allow {limit}")));
        }
        Ok(())
    }

    /// What a leader checks of a batch that a producer built.
    fn check_produced(&self, batch: &[u8]) -> Result<()> {
        let malformed =
            |e: record::DecodeError| Error::invalid("append to", format!("the batch is malformed: {e}")).at(&self.place.dir).caused_by(e);
        let header = BatchHeader::parse(batch).map_err(malformed)?;
        header.verify_crc(batch).map_err(malformed)?;
        self.check_size(batch.len())?;
        if header.magic != 2 || header.base_offset != 0 || header.is_control() {
            return Err(self.refuse("a producer's batch is of format v2, has base offset 0 and no control bit"));
        }
        if header.count < 1 || header.last_offset != (header.count - 1) as u64 {
            return Err(self.refuse("a producer's batch holds at least one record, and its last offset delta is their number less one"));
        }
        if header.is_transactional() && !header.has_producer() {
            return Err(self.refuse("a transactional batch needs a producer id"));
        }
        if header.has_producer() && (header.producer_epoch < 0 || header.base_sequence < 0) {
            return Err(self.refuse("a batch with a producer id needs a producer epoch and a sequence number"));
        }
        let mut decoder = Decoder::new(self.options.decompressed_bytes_max);
        let mut max_timestamp = -1;
        for record in decoder.records(batch).map_err(malformed)? {
            let record = record.map_err(malformed)?;
            if record.key.is_none() && self.options.cleanup_policy.compacts() {
                return Err(self.refuse("a compacted log takes no record without a key"));
            }
            if record.timestamp < -1 {
                return Err(self.refuse(format!("a timestamp is -1 for none, or not negative: {}", record.timestamp)));
            }
            max_timestamp = max_timestamp.max(record.timestamp);
        }
        // Retention and lookups by time go by it, and no one looks into the records again.
        if header.max_timestamp != max_timestamp {
            let stored = header.max_timestamp;
            return Err(self.refuse(format!("the largest timestamp of the batch is {stored}, of its records {max_timestamp}")));
        }
        Ok(())
    }

    fn split_entries<'a>(&self, entries: &'a [u8]) -> Result<Vec<Incoming<'a>>> {
        let mut decoder = Decoder::new(self.options.decompressed_bytes_max);
        let mut incoming: Vec<Incoming<'a>> = Vec::new();
        let mut position = 0;
        while position < entries.len() {
            let malformed = |e: record::DecodeError| {
                Error::invalid("append to", format!("entry at byte {position} of the input: {e}")).at(&self.place.dir).caused_by(e)
            };
            let rest = &entries[position..];
            let header = BatchHeader::parse(rest).map_err(malformed)?;
            let bytes = rest.get(..header.size as usize).ok_or_else(|| {
                malformed(record::DecodeError::Truncated { needed: u64::from(header.size), available: rest.len() as u64 })
            })?;
            header.verify_crc(bytes).map_err(malformed)?;
            // What was cleaned has fewer records than offsets, nothing has more.
            if i64::from(header.count) > (header.last_offset - header.base_offset) as i64 + 1 {
                return Err(self.refuse(format!("entry at byte {position} of the input: it has more records than offsets")));
            }
            if incoming.last().is_some_and(|last| header.base_offset <= last.header.last_offset) {
                return Err(self.refuse(format!("offset {} does not rise above the entry before it", header.base_offset)));
            }
            let marker = marker_of(&header, bytes, &mut decoder).map_err(malformed)?;
            incoming.push(Incoming { header, bytes, marker });
            position += bytes.len();
        }
        Ok(incoming)
    }

    fn take_batch_writer(&self) -> BatchWriter {
        self.batch_writers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn append_leader(&self, batch: &mut [u8], sequences: Sequences, durability: Durability) -> Result<Appended> {
        let (latency, clock) = (self.data_dir.append_latency(), &*self.place.storage);
        let started = latency.start(self.end_offset.load(Ordering::Relaxed), clock);
        let mut writer = self.writer();
        let placed = self.place_leader_batch(&mut writer, batch, sequences)?;
        let placed = self.acknowledge(writer, placed, durability)?;
        if let Some(started) = started {
            latency.finish(started, durability, clock);
        }
        Ok(placed)
    }

    /// Waits as `durability` asks for. `writer` is the guard under which the batch was placed.
    fn acknowledge(&self, writer: MutexGuard<'_, Writer>, placed: Appended, durability: Durability) -> Result<Appended> {
        if durability == Durability::Buffered {
            self.sync_if_crowded(writer);
            return Ok(placed);
        }
        let truncations = self.sync.truncations();
        drop(writer);
        let end = placed.last_offset + 1;
        if is_planted(Defect::AcknowledgeBeforeSync) {
            return Ok(placed);
        }
        if self.sync_up_to(end, truncations)? == Synced::Overtaken {
            let detail = "the log was truncated before this was synced, and it is gone or cut short";
            return Err(Error::new(ErrorKind::OutOfRange, "append to", detail).at(&self.place.dir).offset_at(placed.base_offset));
        }
        Ok(placed)
    }

    /// Syncs the oldest segments that wait for it, where they are too many. Outside of the writer's lock: other appends go on
    /// meanwhile.
    pub(super) fn sync_if_crowded(&self, writer: MutexGuard<'_, Writer>) {
        let is_crowded = writer.unsynced.len() > UNSYNCED_MAX;
        drop(writer);
        // What was appended is where `Buffered` has it; a failure stops the log, and the next call tells.
        if is_crowded && let Err(error) = self.sync_oldest(UNSYNCED_MAX) {
            tracing::warn!(%error, "closed segments could not be synced");
        }
    }

    /// Assigns offset and leader epoch and places the batch. The leader epoch never goes back below what the log holds.
    fn place_leader_batch(&self, writer: &mut Writer, batch: &mut [u8], sequences: Sequences) -> Result<Appended> {
        record::set_base_offset(batch, writer.next_offset);
        record::set_leader_epoch(batch, writer.epochs.latest().map_or(0, |e| e.epoch.cast_signed()));
        let malformed = |e: record::DecodeError| self.refuse(e.to_string());
        let header = BatchHeader::parse(batch).map_err(malformed)?;
        if header.has_producer() && !header.is_control() {
            match writer.producers.check(&header, sequences).map_err(|e| e.at(&self.place.dir))? {
                SequenceCheck::Next => {}
                SequenceCheck::Duplicate { .. } if is_planted(Defect::SkipSequences) => {}
                SequenceCheck::Duplicate { base_offset, last_offset, timestamp } => {
                    return Ok(Appended { base_offset, last_offset, timestamp_ms: timestamp, duplicate: true });
                }
            }
        }
        let marker = marker_of(&header, batch, &mut Decoder::new(batch.len())).map_err(malformed)?;
        self.place_batch(writer, &Incoming { header, bytes: batch, marker })?;
        Ok(Appended {
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            timestamp_ms: header.max_timestamp,
            duplicate: false,
        })
    }

    /// Writes one batch at the end of the log and publishes it. A failure leaves the file at its last good end
    /// (as far as the disk lets us) and stops all later writes.
    fn place_batch(&self, writer: &mut Writer, batch: &Incoming<'_>) -> Result<()> {
        self.check_writable("append to")?;
        let header = &batch.header;
        if self.must_roll(writer, header) {
            let base_offset = roll_base(writer.next_offset, header);
            self.roll_to(writer, base_offset).map_err(|e| self.fail(e))?;
        }
        if let Err(cause) = write_all_at(&*writer.file, batch.bytes, writer.position) {
            if is_planted(Defect::GoOnAfterFailedAppend) {
                writer.position = writer.file.len().unwrap_or(writer.position);
                return Err(Error::io("append to", &writer.active.path(), cause));
            }
            let _ = writer.file.set_len(writer.position);
            return Err(self.fail(Error::io("append to", &writer.active.path(), cause)));
        }
        self.assign_epoch(writer, header).map_err(|e| self.fail(e))?;
        let place = BatchPlace { header: *header, position: writer.position as u32 };
        let aborted = writer.producers.apply(header, batch.marker);
        writer.position += u64::from(header.size);
        writer.next_offset = header.next_offset();
        writer.data_end = writer.next_offset;
        writer.first_timestamp.get_or_insert(header.max_timestamp);
        writer.active.publish(&[(place, aborted)], writer.position).map_err(|e| self.fail(e))?;
        self.publish_end(writer);
        if place.position == 0 {
            self.note_change(); // from now on the active segment has an age
        }
        Ok(())
    }

    fn assign_epoch(&self, writer: &mut Writer, header: &BatchHeader) -> Result<()> {
        let epoch = if header.magic < 2 { return Ok(()) } else { header.leader_epoch };
        if epoch >= 0 && writer.epochs.assign(epoch, header.base_offset) {
            writer.epochs.write(&*self.place.storage, &self.place.dir)?;
        }
        Ok(())
    }

    /// Whether a batch needs a new segment: by size, by time, by index capacity, by the span of offsets.
    fn must_roll(&self, writer: &Writer, header: &BatchHeader) -> bool {
        let base = writer.active.base_offset();
        if header.last_offset.saturating_sub(base) > keeplog_index::RELATIVE_OFFSET_MAX {
            return true;
        }
        if writer.position == 0 {
            return false;
        }
        let size = writer.position + u64::from(header.size);
        size > u64::from(self.options.segment_bytes)
            || writer.active.index_is_full()
            || self.waited_ms(writer, header) > self.live.roll_ms()
    }

    fn waited_ms(&self, writer: &Writer, header: &BatchHeader) -> i64 {
        match writer.first_timestamp {
            Some(first) if first >= 0 && header.max_timestamp >= 0 => header.max_timestamp.saturating_sub(first),
            _ => self.place.storage.now_ms().saturating_sub(writer.created_ms),
        }
    }

    /// Seals the active segment and goes on in a new one. Nothing is synced: the next sync does that.
    pub(super) fn roll_to(&self, writer: &mut Writer, base_offset: u64) -> Result<()> {
        let is_empty = writer.position == 0;
        if is_empty && writer.active.base_offset() == base_offset {
            return Ok(());
        }
        // Nothing was ever written to an empty one: it gives way to the new one.
        self.go_on_at(writer, base_offset, is_empty)
    }

    /// Goes on in a new segment; the active one is sealed, or goes.
    pub(super) fn go_on_at(&self, writer: &mut Writer, base_offset: u64, replaces: bool) -> Result<()> {
        let old = Arc::clone(&writer.active);
        let active = self.create_segment(base_offset)?;
        let sealed = if replaces {
            old.hold_open()?;
            old.retire()?;
            None
        } else {
            Some(Arc::new(old.seal()?))
        };
        if let Some(sealed) = sealed.as_ref().filter(|_| !is_planted(Defect::ForgetSealedSegments)) {
            writer.unsynced.push(Unsynced { base_offset: sealed.base_offset(), file: Some(Arc::clone(&writer.file)) });
            writer.rolls += 1;
        }
        self.segments.replace(|now| {
            let before = now.iter().filter(|s| s.base_offset() != old.base_offset()).cloned();
            before.chain(sealed).chain([Arc::clone(&active)]).collect()
        });
        writer.file = active.file()?;
        writer.active = active;
        writer.position = 0;
        writer.first_timestamp = None;
        writer.created_ms = self.place.storage.now_ms();
        writer.names_changed = true;
        writer.next_offset = writer.next_offset.max(base_offset);
        writer.data_end = writer.next_offset;
        self.write_snapshot(writer)?;
        self.note_change();
        Ok(())
    }

    /// A new, empty active segment. Files that a crash left under its names are in nobody's use.
    pub(super) fn create_segment(&self, base_offset: u64) -> Result<Arc<Segment>> {
        for kind in SEGMENT_FILES {
            self.place.remove(&self.place.path(base_offset, kind, FileState::Live))?;
        }
        let path = self.place.path(base_offset, FileKind::Log, FileState::Live);
        let file = self.place.storage.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
        let indexes = IndexBuilder::new(base_offset, self.options.index_interval_bytes, self.options.segment_index_bytes);
        Ok(Arc::new(Segment::active(self.place.clone(), base_offset, file, 0, indexes)))
    }
}

/// Base of the segment that a batch opens: its first offset where the format tells, else as low as the span allows.
fn roll_base(next_offset: u64, header: &BatchHeader) -> u64 {
    let first = if header.magic == 2 { header.base_offset } else { header.last_offset.saturating_sub(keeplog_index::RELATIVE_OFFSET_MAX) };
    next_offset.max(first)
}

/// What a control batch says; `None` for data, for emptied control batches, and for control types that end no transaction.
pub(crate) fn marker_of(header: &BatchHeader, entry: &[u8], decoder: &mut Decoder) -> Result<Option<Marker>, record::DecodeError> {
    if !header.is_control() || header.count == 0 {
        return Ok(None);
    }
    let Some(first) = decoder.records(entry)?.next() else { return Ok(None) };
    let first = first?;
    let kind = ControlType::of_key(first.key.unwrap_or_default())?;
    let coordinator_epoch = match kind {
        ControlType::Abort | ControlType::Commit => record::coordinator_epoch_of(first.value.unwrap_or_default())?,
        _ => -1,
    };
    Ok(Some(Marker { kind, coordinator_epoch, timestamp: first.timestamp }))
}
