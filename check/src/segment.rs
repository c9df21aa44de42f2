//! The data of the segments, batch by batch: what a reader relies on.

use std::collections::HashMap;
use std::path::Path;

use keeplog_engine::record::{BatchHeader, ControlType, DecodeError, Decoder, RecordRef, TimestampType};
use keeplog_engine::scan::{Entry, EntryScanner, SCAN_BUFFER_BYTES, ScanCause, ScanError};
use keeplog_engine::storage::{File, OpenMode, Storage};
use keeplog_engine::{Error, ErrorKind};

use crate::DECODED_BYTES_MAX;
use crate::codes;
use crate::finding::{Findings, Place};
use crate::indexes::{self, Aborted, Extent, IndexFiles, Owner, Watches};

/// Positions in a segment have 31 bits.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// The walk over a log: what is known of it so far.
pub(crate) struct Walk<'s> {
    storage: &'s dyn Storage,
    decoder: Decoder,
    /// Last offset of the last batch, in whatever segment.
    last_offset: Option<u64>,
    /// Open transactions: whether they have records in the log.
    open: HashMap<i64, bool>,
    pub(crate) has_producers: bool,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(storage: &'s dyn Storage) -> Self {
        Self {
            storage,
            decoder: Decoder::new(DECODED_BYTES_MAX),
            last_offset: None,
            open: HashMap::new(),
            has_producers: false,
            batches: 0,
            records: 0,
            bytes: 0,
        }
    }

    /// Offset after the last batch so far.
    pub(crate) fn next_offset(&self) -> Option<u64> {
        self.last_offset.map(|last| last + 1)
    }

    /// Checks a segment and its indexes.
    pub(crate) fn segment(
        &mut self,
        owner: Owner<'_>,
        files: &IndexFiles,
        progress: &mut dyn FnMut(u64),
        findings: &mut Findings,
    ) -> Result<Extent, Error> {
        let path = owner.dir.join(owner.log);
        let mut watches = Watches::open(self.storage, owner, files, findings)?;
        // Measured after its indexes were read: in a log that is being written, they must not seem ahead of it.
        let file = self.storage.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
        let owner = Owner { log_bytes: file.len().map_err(|e| Error::io("read the size of", &path, e))?, ..owner };
        self.bytes += owner.log_bytes;
        if owner.log_bytes > SEGMENT_BYTES_MAX {
            findings.add(codes::SEGMENT_TOO_LARGE, Place::file(owner.log), format!("it has {} bytes", owner.log_bytes));
        }
        let mut extent = Extent { complete: true, next_offset: owner.base, largest_timestamp: -1 };
        let mut aborted = Vec::new();
        let mut scanner = EntryScanner::new(&*file, 0, owner.log_bytes, SCAN_BUFFER_BYTES);
        while let Some(next) = scanner.next() {
            match next {
                Ok(entry) => {
                    progress(u64::from(entry.header.size));
                    watches.batch(entry.position, &entry.header);
                    aborted.extend(self.batch(&path, owner, &entry, findings)?);
                    extent.next_offset = extent.next_offset.max(entry.header.next_offset());
                    extent.largest_timestamp = extent.largest_timestamp.max(entry.header.max_timestamp);
                }
                Err(end) => {
                    progress(owner.log_bytes - end.position);
                    extent.complete = false;
                    report_end(owner, &*file, end, findings)?;
                }
            }
        }
        watches.finish(owner.log_bytes, extent, findings);
        indexes::check_txn_index(self.storage, owner, files, extent, &aborted, findings)?;
        Ok(extent)
    }

    /// Checks one batch; gives back the transaction that it aborts.
    fn batch(&mut self, path: &Path, owner: Owner<'_>, entry: &Entry<'_>, findings: &mut Findings) -> Result<Option<Aborted>, Error> {
        let header = &entry.header;
        let place = Place::file(owner.log).at(entry.position).offset(header.base_offset);
        self.batches += 1;
        self.has_producers |= header.has_producer();
        if let Err(e) = header.verify_crc(entry.bytes) {
            findings.add(
                codes::CHECKSUM,
                place,
                format!("{e} (batch of offsets {}..={}, {} bytes)", header.base_offset, header.last_offset, header.size),
            );
            // What its fields say is not to be trusted, but for the place of the next batch.
            return Ok(None);
        }
        let first = match self.decode(entry) {
            Ok(facts) => {
                self.records += facts.records;
                if let Some(message) = facts.timestamp_problem(header) {
                    findings.add(codes::MAX_TIMESTAMP, place, message);
                }
                facts.first_offset.unwrap_or(header.base_offset)
            }
            // Nothing is known of it then.
            Err(e @ DecodeError::OutOfMemory { .. }) => {
                return Err(Error::new(ErrorKind::OutOfMemory, "check", e.to_string()).at(path).position_at(entry.position));
            }
            Err(e) => {
                findings.add(codes::RECORDS, place, e.to_string());
                header.base_offset
            }
        };
        if let Some(last) = self.last_offset.filter(|last| first.min(header.base_offset) <= *last) {
            findings.add(codes::OFFSETS_NOT_RISING, place, format!("offsets {first}..={} follow {last}", header.last_offset));
        }
        if first < owner.base || header.last_offset.saturating_sub(owner.base) > i32::MAX as u64 {
            let message = format!("offsets {first}..={} in the segment that starts at {}", header.last_offset, owner.base);
            findings.add(codes::OFFSET_OUTSIDE_SEGMENT, place, message);
        }
        self.last_offset = self.last_offset.max(Some(header.last_offset));
        Ok(self.transaction(entry))
    }

    fn decode(&mut self, entry: &Entry<'_>) -> Result<RecordFacts, DecodeError> {
        let mut facts = RecordFacts { records: 0, first_offset: None, largest_timestamp: -1 };
        for record in self.decoder.records(entry.bytes)? {
            let record = record?;
            if entry.header.is_control() {
                check_control(&record)?;
            }
            facts.records += 1;
            facts.first_offset.get_or_insert(record.offset);
            facts.largest_timestamp = facts.largest_timestamp.max(record.timestamp);
        }
        Ok(facts)
    }

    /// Follows the transactions of the log.
    fn transaction(&mut self, entry: &Entry<'_>) -> Option<Aborted> {
        let header = &entry.header;
        if !header.is_transactional() {
            return None;
        }
        let producer_id = header.producer_id;
        if !header.is_control() {
            *self.open.entry(producer_id).or_insert(false) |= header.count > 0;
            return None;
        }
        if header.count == 0 {
            return None;
        }
        let has_records = self.open.remove(&producer_id).unwrap_or(false);
        let key = self.decoder.records(entry.bytes).ok()?.next()?.ok()?.key.and_then(|key| ControlType::of_key(key).ok());
        (key == Some(ControlType::Abort)).then_some(Aborted { producer_id, marker_offset: header.base_offset, has_records })
    }
}

struct RecordFacts {
    records: u64,
    first_offset: Option<u64>,
    largest_timestamp: i64,
}

impl RecordFacts {
    /// Whether the header's largest timestamp is that of the records. Batches of append time have it by definition,
    /// emptied ones keep what they had, and v0 has none.
    fn timestamp_problem(&self, header: &BatchHeader) -> Option<String> {
        let comparable = header.magic == 2 && header.timestamp_type() == TimestampType::Create && self.records > 0;
        (comparable && header.max_timestamp != self.largest_timestamp).then(|| {
            format!("the header says {} is the largest timestamp, the records reach {}", header.max_timestamp, self.largest_timestamp)
        })
    }
}

fn check_control(record: &RecordRef<'_>) -> Result<(), DecodeError> {
    let key = record.key.ok_or(DecodeError::Record { index: 0, reason: "a control record without a key" })?;
    ControlType::of_key(key).map(drop)
}

/// Says why a scan did not come to the end of the file.
fn report_end(owner: Owner<'_>, file: &dyn File, end: ScanError, findings: &mut Findings) -> Result<(), Error> {
    let path = owner.dir.join(owner.log);
    let place = Place::file(owner.log).at(end.position);
    let left = owner.log_bytes - end.position;
    match end.cause {
        ScanCause::Decode(DecodeError::Truncated { needed, available }) => {
            let code = if owner.active { codes::TORN_TAIL } else { codes::SEALED_CUT };
            findings.add(code, place, format!("the file ends inside a batch: {needed} bytes needed, {available} there"));
        }
        ScanCause::Decode(cause) => {
            if indexes::rest_is_zero(file, end.position, owner.log_bytes).map_err(|e| Error::io("read", &path, e))? {
                findings.add(codes::ZERO_TAIL, place, format!("{left} zero bytes follow the last batch"));
            } else {
                findings.add(codes::NOT_A_BATCH, place, format!("{cause}; {left} bytes from here to the end of the file were not checked"));
            }
        }
        ScanCause::Io(_) => return Err(end.in_file("read", &path)),
    }
    Ok(())
}
