//! Aborted-transaction index (`.txnindex`): one entry per aborted transaction, in the segment that received its
//! abort marker, in order of the markers.

use crate::IndexError;
use crate::search::field;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbortedTxn {
    /// The producer.
    pub producer_id: i64,
    /// First record offset of the transaction.
    pub first_offset: u64,
    /// Offset of the abort marker.
    pub last_offset: u64,
    /// When it was aborted: the first offset of the oldest other open transaction, or one past the marker.
    pub last_stable_offset: u64,
}

/// Aborted-transaction index of one segment. A fragment of an entry at the end, as a crash leaves it, is not read.
#[derive(Clone, Debug)]
pub struct TxnIndex<B> {
    bytes: B,
}

impl<B: AsRef<[u8]>> TxnIndex<B> {
    /// Bytes of one entry.
    pub const ENTRY_BYTES: usize = 34;

    /// An index over `bytes`.
    pub fn new(bytes: B) -> Self {
        Self { bytes }
    }

    /// The bytes as given and appended, a fragment included.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Gives the bytes back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    /// Number of whole entries.
    pub fn len(&self) -> usize {
        self.as_bytes().len() / Self::ENTRY_BYTES
    }

    /// Whether there is no whole entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of an incomplete entry at the end; 0 in a sound index. A file with such a fragment must be cut to
    /// `len()` entries before anything is written behind it.
    pub fn fragment_bytes(&self) -> usize {
        self.as_bytes().len() % Self::ENTRY_BYTES
    }

    /// Entry `i`, counted from 0; `None` past the end.
    pub fn entry(&self, i: usize) -> Option<Result<AbortedTxn, IndexError>> {
        let [version] = self.field(i, 0)?;
        let producer_id = i64::from_be_bytes(self.field(i, 2)?);
        let offsets = [self.field(i, 10)?, self.field(i, 18)?, self.field(i, 26)?].map(i64::from_be_bytes);
        Some(decode(i, i8::from_be_bytes([version]), producer_id, offsets))
    }

    /// All entries, in order of their markers.
    pub fn iter(&self) -> impl Iterator<Item = Result<AbortedTxn, IndexError>> {
        (0..self.len()).map_while(|i| self.entry(i))
    }

    /// Adds to `out` the transactions that may concern a read of `fetch_offset..upper_bound`. Returns whether the
    /// answer is complete; if not, go on with the next segment.
    pub fn collect(&self, fetch_offset: u64, upper_bound: u64, out: &mut Vec<AbortedTxn>) -> Result<bool, IndexError> {
        for txn in self.iter() {
            let txn = txn?;
            if txn.last_offset >= fetch_offset && txn.first_offset < upper_bound {
                out.push(txn);
            }
            if txn.last_stable_offset >= upper_bound {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks every entry against a segment of `base..next_offset`: markers strictly rise and lie in the segment,
    /// each transaction starts before its marker, and nothing incomplete is left at the end.
    pub fn check(&self, base: u64, next_offset: u64) -> Result<(), IndexError> {
        let mut previous = None;
        for (entry, txn) in self.iter().enumerate() {
            let txn = txn?;
            follows(entry, previous, txn)?;
            if !(base..next_offset).contains(&txn.last_offset) {
                return Err(IndexError::OffsetOutside { entry, offset: txn.last_offset, base, next: next_offset });
            }
            previous = Some(txn.last_offset);
        }
        match self.fragment_bytes() {
            0 => Ok(()),
            bytes => Err(IndexError::Fragment { entries: self.len(), bytes }),
        }
    }

    fn field<const N: usize>(&self, entry: usize, at: usize) -> Option<[u8; N]> {
        field(self.as_bytes(), entry, Self::ENTRY_BYTES, at)
    }
}

impl TxnIndex<Vec<u8>> {
    /// An index with no entry.
    #[must_use]
    pub fn empty() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Adds an entry, in place of a fragment if there is one. Its marker must be above the last entry's.
    pub fn append(&mut self, txn: AbortedTxn) -> Result<(), IndexError> {
        let entry = self.len();
        let previous = match entry.checked_sub(1).and_then(|i| self.entry(i)) {
            Some(last) => Some(last?.last_offset),
            None => None,
        };
        follows(entry, previous, txn)?;
        self.bytes.truncate(entry * Self::ENTRY_BYTES);
        self.bytes.extend_from_slice(&0_i16.to_be_bytes());
        self.bytes.extend_from_slice(&txn.producer_id.to_be_bytes());
        for offset in [txn.first_offset, txn.last_offset, txn.last_stable_offset] {
            self.bytes.extend_from_slice(&offset.to_be_bytes());
        }
        Ok(())
    }

    /// Drops the first entry whose marker is at `offset` or above, and all after it; unreadable entries as well.
    pub fn truncate_to(&mut self, offset: u64) {
        let kept = self.iter().take_while(|txn| txn.is_ok_and(|t| t.last_offset < offset)).count();
        self.bytes.truncate(kept * Self::ENTRY_BYTES);
    }
}

fn decode(entry: usize, version: i8, producer_id: i64, offsets: [i64; 3]) -> Result<AbortedTxn, IndexError> {
    // Kafka, too, looks at the first of the two version bytes only.
    if version > 0 {
        return Err(IndexError::Version { entry, version });
    }
    let [first_offset, last_offset, last_stable_offset] = offsets;
    let unsigned = |offset: i64| u64::try_from(offset).map_err(|_| IndexError::OffsetNegative { entry, offset });
    Ok(AbortedTxn {
        producer_id,
        first_offset: unsigned(first_offset)?,
        last_offset: unsigned(last_offset)?,
        last_stable_offset: unsigned(last_stable_offset)?,
    })
}

fn follows(entry: usize, previous: Option<u64>, txn: AbortedTxn) -> Result<(), IndexError> {
    let AbortedTxn { first_offset: first, last_offset: last, last_stable_offset: stable, .. } = txn;
    if first >= last || last >= i64::MAX as u64 || stable > last + 1 {
        return Err(IndexError::Transaction { entry, first, last, stable });
    }
    if let Some(previous) = previous.filter(|&p| last <= p) {
        return Err(IndexError::OffsetNotRising { entry, offset: last, previous });
    }
    Ok(())
}
