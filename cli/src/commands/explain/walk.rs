//! Reads every record of a log and notes which key takes how much.

use std::path::Path;

use crate::door::check::DECODED_BYTES_MAX;
use crate::door::record::{DecodeError, Decoder};
use crate::door::scan::{Entry, EntryScanner, SCAN_BUFFER_BYTES};
use crate::door::storage::OpenMode;
use crate::door::{Error, Storage};
use crate::key_shares::KeyShares;
use crate::progress::Progress;

/// What a record takes beside its key, value and headers, roughly.
const RECORD_OVERHEAD_BYTES: u64 = 8;

/// Some records and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Sum {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// What was read so far. All bytes of all batches are in exactly one of the sums.
pub(crate) struct Walk<'s> {
    storage: &'s dyn Storage,
    decoder: Decoder,
    pub(crate) shares: KeyShares,
    /// Records with a key.
    pub(crate) keyed: Sum,
    pub(crate) keyless: Sum,
    /// Control batches, and those that compaction has emptied.
    pub(crate) others: Sum,
    /// Bytes that could not be read, and so are in none of them.
    pub(crate) unread_bytes: u64,
    /// Scratch: the weights of the records of a batch, and where their keys end in `keys`; none for a record without a key.
    weights: Vec<(u64, Option<usize>)>,
    keys: Vec<u8>,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(storage: &'s dyn Storage) -> Self {
        Self {
            storage,
            decoder: Decoder::new(DECODED_BYTES_MAX),
            shares: KeyShares::new(),
            keyed: Sum::default(),
            keyless: Sum::default(),
            others: Sum::default(),
            unread_bytes: 0,
            weights: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Records so far.
    pub(crate) fn records(&self) -> u64 {
        self.keyed.records + self.keyless.records + self.others.records
    }

    /// Reads the segment in the file `path`. What is damaged there is left out.
    pub(crate) fn segment(&mut self, path: &Path, progress: &mut Progress<'_>) -> Result<(), Error> {
        let file = self.storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
        let mut scanner = EntryScanner::new(&*file, 0, len, SCAN_BUFFER_BYTES);
        while let Some(next) = scanner.next() {
            match next {
                Ok(entry) => {
                    progress.add(u64::from(entry.header.size));
                    if self.batch(&entry).is_err() {
                        self.unread_bytes += u64::from(entry.header.size);
                    }
                }
                Err(end) => {
                    progress.add(len - end.position);
                    self.unread_bytes += len - end.position;
                }
            }
        }
        Ok(())
    }

    /// Takes in a batch, or nothing of it.
    fn batch(&mut self, entry: &Entry<'_>) -> Result<(), DecodeError> {
        let Self { decoder, weights, keys, .. } = self;
        let header = &entry.header;
        header.verify_crc(entry.bytes)?;
        weights.clear();
        keys.clear();
        for record in decoder.records(entry.bytes)? {
            let record = record?;
            let lengths = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            let headers: usize = record.headers.iter().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum();
            keys.extend_from_slice(record.key.unwrap_or_default());
            weights.push(((lengths + headers) as u64 + RECORD_OVERHEAD_BYTES, record.key.map(|_| keys.len())));
        }
        let size = u64::from(header.size);
        if header.is_control() || weights.is_empty() {
            self.others.records += weights.len() as u64;
            self.others.bytes += size;
        } else {
            self.share_out(size);
        }
        Ok(())
    }

    /// Shares the `size` bytes of a batch out among its records, by their weights and to the last byte.
    fn share_out(&mut self, size: u64) {
        let total: u64 = self.weights.iter().map(|(weight, _)| weight).sum();
        let (mut weighed, mut given, mut key_start) = (0, 0, 0);
        for (weight, key_end) in &self.weights {
            weighed += weight;
            let up_to = (u128::from(size) * u128::from(weighed) / u128::from(total)) as u64;
            let bytes = up_to - given;
            given = up_to;
            let sum = if let Some(end) = *key_end {
                self.shares.add(&self.keys[key_start..end], bytes);
                key_start = end;
                &mut self.keyed
            } else {
                &mut self.keyless
            };
            sum.records += 1;
            sum.bytes += bytes;
        }
    }
}
