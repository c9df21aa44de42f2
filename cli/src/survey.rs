//! Reads a whole partition and says what is in it, and how much of it is live.
//!
//! Segments are read from the newest to the oldest, so that one set of the keys seen so far tells whether a record
//! is the newest of its key. A record is dead when a newer one has its key, or when its transaction was aborted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::path::Path;

use serde::Serialize;

use crate::door::check::DECODED_BYTES_MAX;
use crate::door::record::{BatchHeader, ControlType, DecodeError, Decoder};
use crate::door::scan::{Entry, EntryScanner, SCAN_BUFFER_BYTES};
use crate::door::storage::{File, OpenMode};
use crate::door::{Error, Storage};
use crate::failure;
use crate::progress::Progress;

/// Keys that are remembered at most (about 1 GiB). With more, older records of further keys count as live.
const KEYS_MAX: usize = 1 << 26;
/// What a record takes beside its key, value and headers, roughly.
const RECORD_OVERHEAD_BYTES: u64 = 8;

/// What one segment holds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SegmentSurvey {
    pub(crate) base: u64,
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// Last offset of the last batch.
    pub(crate) last_offset: Option<u64>,
    /// Smallest and largest timestamp of its records, ms.
    pub(crate) min_timestamp: Option<i64>,
    pub(crate) max_timestamp: Option<i64>,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// Of `records`, those that compacting everything would keep.
    pub(crate) live_records: u64,
    /// Of `bytes`, about those that it would keep.
    pub(crate) live_bytes: u64,
    /// Why the rest of the segment could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) damage: Option<String>,
}

/// A producer as the log shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    /// Sequence number of its last record; -1 if the log has no data of it.
    pub(crate) last_sequence: i32,
    /// Offset of its last record.
    pub(crate) last_offset: Option<u64>,
    pub(crate) last_timestamp: i64,
    /// First offset of its open transaction.
    pub(crate) open_txn_first_offset: Option<u64>,
}

/// Sums over all segments.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) tombstones: u64,
    pub(crate) keyless: u64,
    pub(crate) headers: u64,
    pub(crate) control_batches: u64,
    pub(crate) transactional_batches: u64,
    /// Records of aborted transactions.
    pub(crate) aborted_records: u64,
    /// Batches that compaction has emptied.
    pub(crate) empty_batches: u64,
    /// Distinct keys among the records that count.
    pub(crate) keys: u64,
    /// There were more keys than could be remembered: the dead share is at least what is said.
    pub(crate) keys_incomplete: bool,
    /// Batches by format.
    pub(crate) formats: BTreeMap<u8, u64>,
    /// Batches by codec.
    pub(crate) codecs: BTreeMap<&'static str, u64>,
}

/// Takes segments newest first.
pub(crate) struct Surveyor<'s> {
    storage: &'s dyn Storage,
    decoder: Decoder,
    secret: RandomState,
    keys: HashSet<u64, BuildHasherDefault<Identity>>,
    /// How the transaction ended that a producer's older records belong to, as far as seen.
    outcomes: HashMap<i64, Outcome>,
    producers: BTreeMap<i64, Producer>,
    totals: Totals,
    /// Of the segment at hand.
    records: Vec<Mark>,
    batches: Vec<BatchMark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed,
    Aborted,
}

/// A record: what deciding about it needs.
#[derive(Clone, Copy, Debug)]
struct Mark {
    key: Option<u64>,
    weight: u32,
}

#[derive(Clone, Copy, Debug)]
struct BatchMark {
    header: BatchHeader,
    /// Its records in `Surveyor::records`.
    from: usize,
    to: usize,
    /// What an end marker says.
    marker: Option<Outcome>,
}

impl<'s> Surveyor<'s> {
    pub(crate) fn new(storage: &'s dyn Storage) -> Self {
        Self {
            storage,
            decoder: Decoder::new(DECODED_BYTES_MAX),
            secret: RandomState::new(),
            keys: HashSet::default(),
            outcomes: HashMap::new(),
            producers: BTreeMap::new(),
            totals: Totals::default(),
            records: Vec::new(),
            batches: Vec::new(),
        }
    }

    /// Reads the segment in the file `path`; every newer one must have been read before.
    pub(crate) fn segment(&mut self, path: &Path, file: &str, base: u64, progress: &mut Progress<'_>) -> Result<SegmentSurvey, Error> {
        let opened = self.storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let bytes = opened.len().map_err(|e| Error::io("read the size of", path, e))?;
        let mut survey = SegmentSurvey { base, file: file.to_owned(), bytes, ..SegmentSurvey::default() };
        self.records.clear();
        self.batches.clear();
        self.scan(&*opened, path, &mut survey, progress);
        for i in (0..self.batches.len()).rev() {
            self.decide(self.batches[i], &mut survey);
        }
        let sound: u64 = self.batches.iter().map(|batch| u64::from(batch.header.size)).sum();
        // What could not be read would not be removed either.
        survey.live_bytes += bytes - sound.min(bytes);
        Ok(survey)
    }

    /// All producers, and the sums.
    pub(crate) fn finish(mut self) -> (Vec<Producer>, Totals) {
        self.totals.keys = self.keys.len() as u64;
        (self.producers.into_values().collect(), self.totals)
    }

    fn scan(&mut self, file: &dyn File, path: &Path, survey: &mut SegmentSurvey, progress: &mut Progress<'_>) {
        let mut scanner = EntryScanner::new(file, 0, survey.bytes, SCAN_BUFFER_BYTES);
        while let Some(next) = scanner.next() {
            match next {
                Ok(entry) => {
                    progress.add(u64::from(entry.header.size));
                    if let Err(cause) = self.entry(&entry, survey) {
                        let error = Error::corrupt("decode the records of the batch in", path, entry.position, cause.to_string());
                        survey.damage.get_or_insert_with(|| failure::one_line(&error));
                    }
                }
                Err(end) => {
                    progress.add(survey.bytes - end.position);
                    survey.damage.get_or_insert(failure::one_line(&end.in_file("read on in", path)));
                }
            }
        }
    }

    fn entry(&mut self, entry: &Entry<'_>, survey: &mut SegmentSurvey) -> Result<(), DecodeError> {
        let header = entry.header;
        let from = self.records.len();
        *self.totals.formats.entry(header.magic).or_default() += 1;
        *self.totals.codecs.entry(header.codec().map_or("unknown", |codec| codec.name())).or_default() += 1;
        self.totals.control_batches += u64::from(header.is_control());
        self.totals.transactional_batches += u64::from(header.is_transactional() && !header.is_control());
        self.totals.empty_batches += u64::from(header.count == 0);
        survey.batches += 1;
        survey.last_offset = survey.last_offset.max(Some(header.last_offset));
        let marker = self.decode(entry, survey);
        let to = self.records.len();
        survey.records += (to - from) as u64;
        self.batches.push(BatchMark { header, from, to, marker: marker.unwrap_or_default() });
        marker.map(drop)
    }

    fn decode(&mut self, entry: &Entry<'_>, survey: &mut SegmentSurvey) -> Result<Option<Outcome>, DecodeError> {
        let is_control = entry.header.is_control();
        let mut marker = None;
        entry.header.verify_crc(entry.bytes)?;
        for record in self.decoder.records(entry.bytes)? {
            let record = record?;
            if record.timestamp >= 0 {
                survey.min_timestamp = Some(survey.min_timestamp.map_or(record.timestamp, |least| least.min(record.timestamp)));
                survey.max_timestamp = survey.max_timestamp.max(Some(record.timestamp));
            }
            let lengths = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            let headers: usize = record.headers.iter().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum();
            let weight = (lengths + headers) as u64 + RECORD_OVERHEAD_BYTES;
            let mut key = record.key.map(|key| self.secret.hash_one(key));
            if is_control {
                marker = record.key.and_then(outcome_of);
                key = None;
            } else {
                self.totals.tombstones += u64::from(record.value.is_none());
                self.totals.keyless += u64::from(record.key.is_none());
                self.totals.headers += record.headers.len() as u64;
            }
            self.records.push(Mark { key, weight: u32::try_from(weight).unwrap_or(u32::MAX) });
        }
        Ok(marker)
    }

    /// Decides about a batch, all newer ones being decided.
    fn decide(&mut self, batch: BatchMark, survey: &mut SegmentSurvey) {
        let header = &batch.header;
        let records = &self.records[batch.from..batch.to];
        let outcome = self.outcomes.get(&header.producer_id).copied();
        let of_txn = header.is_transactional() && !header.is_control();
        let (mut live, mut live_weight, mut weight) = (0, 0, 0);
        for record in records.iter().rev() {
            let is_live = match (record.key, of_txn, outcome) {
                (_, true, Some(Outcome::Aborted)) => false,
                // Nobody knows yet how the transaction ends.
                (_, true, None) | (None, ..) => true,
                (Some(key), ..) if self.keys.len() < KEYS_MAX => self.keys.insert(key),
                (Some(key), ..) => {
                    self.totals.keys_incomplete = true;
                    !self.keys.contains(&key)
                }
            };
            weight += u64::from(record.weight);
            live_weight += if is_live { u64::from(record.weight) } else { 0 };
            live += u64::from(is_live);
        }
        if of_txn && outcome == Some(Outcome::Aborted) {
            self.totals.aborted_records += records.len() as u64;
        }
        let bytes = u64::from(header.size);
        survey.live_records += live;
        survey.live_bytes += if weight == 0 { bytes } else { (u128::from(bytes) * u128::from(live_weight) / u128::from(weight)) as u64 };
        if header.has_producer() {
            self.producer(header);
            if let Some(marker) = batch.marker {
                self.outcomes.insert(header.producer_id, marker);
            }
        }
    }

    /// Notes what the newest batches say about their producer.
    fn producer(&mut self, header: &BatchHeader) {
        let producer = self.producers.entry(header.producer_id).or_insert(Producer {
            id: header.producer_id,
            epoch: header.producer_epoch,
            last_sequence: -1,
            last_offset: None,
            last_timestamp: header.max_timestamp,
            open_txn_first_offset: None,
        });
        if header.is_control() {
            return;
        }
        if producer.last_offset.is_none() && producer.epoch == header.producer_epoch {
            producer.last_sequence = header.last_sequence();
            producer.last_offset = Some(header.last_offset);
        }
        if header.is_transactional() && !self.outcomes.contains_key(&header.producer_id) {
            producer.open_txn_first_offset = Some(header.base_offset);
        }
    }
}

fn outcome_of(key: &[u8]) -> Option<Outcome> {
    match ControlType::of_key(key) {
        Ok(ControlType::Commit) => Some(Outcome::Committed),
        Ok(ControlType::Abort) => Some(Outcome::Aborted),
        _ => None,
    }
}

/// Takes keys that are hashes already as they are.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
