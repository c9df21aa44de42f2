//! The `N.snapshot` file: the state of all producers below offset N.
//!
//! ```text
//! 0 version i16 = 1 | 2 crc u32: CRC-32C of byte 6 to the end | 6 count i32 | 10 entries of 46 bytes:
//! producerId i64, producerEpoch i16, lastSequence i32, lastOffset i64, offsetDelta i32, timestamp i64,
//! coordinatorEpoch i32, currentTxnFirstOffset i64
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{ActiveProducer, ProducerEntry, ProducerStates, RememberedBatch};

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 10;
const CRC_START: usize = 6;
const ENTRY_BYTES: usize = 46;

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Neither a header nor a whole number of entries.
    #[error("{bytes} bytes are no header and {count} whole entries")]
    Length {
        /// Size of the file.
        bytes: usize,
        /// Entries that its header promises.
        count: i32,
    },
    /// Written by another version of the format.
    #[error("version {0} is unknown")]
    Version(i16),
    /// The checksum does not match.
    #[error("checksum is {computed:#010x}, stored is {stored:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// Over the bytes as they are.
        computed: u32,
    },
    /// A field is out of its range.
    #[error("entry {entry} has an impossible {field}")]
    Field {
        /// Which entry, from 0.
        entry: usize,
        /// Which field of it.
        field: &'static str,
    },
}

/// Reads a whole snapshot file for a tool.
pub fn parse(bytes: &[u8]) -> Result<Vec<ActiveProducer>, SnapshotError> {
    ProducerStates::decode(bytes).map(|states| states.active())
}

impl ProducerStates {
    /// The bytes of a snapshot file with this state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        let mut ids: Vec<_> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let entry = &self.entries[&id];
            let last = entry.batches.back();
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&entry.epoch.to_be_bytes());
            out.extend_from_slice(&last.map_or(-1, |b| b.last_sequence).to_be_bytes());
            out.extend_from_slice(&last.map_or(-1, |b| b.last_offset as i64).to_be_bytes());
            out.extend_from_slice(&last.map_or(0, |b| b.offset_delta).to_be_bytes());
            out.extend_from_slice(&entry.last_timestamp.to_be_bytes());
            out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
            out.extend_from_slice(&entry.open_txn_first_offset.map_or(-1, |o| o as i64).to_be_bytes());
        }
        let crc = crc32c::crc32c(&out[CRC_START..]);
        out[2..CRC_START].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a whole snapshot file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(SnapshotError::Length { bytes: bytes.len(), count: 0 });
        };
        let version = i16::from_be_bytes([header[0], header[1]]);
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let stored = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
        let computed = crc32c::crc32c(&bytes[CRC_START..]);
        if stored != computed {
            return Err(SnapshotError::Checksum { stored, computed });
        }
        let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
        if i64::from(count) * ENTRY_BYTES as i64 != body.len() as i64 {
            return Err(SnapshotError::Length { bytes: bytes.len(), count });
        }
        let mut entries = HashMap::with_capacity(body.len() / ENTRY_BYTES);
        let mut open = BTreeMap::new();
        for (number, raw) in body.chunks_exact(ENTRY_BYTES).enumerate() {
            let (id, entry) = decode_entry(number, raw)?;
            if let Some(first) = entry.open_txn_first_offset {
                open.insert(first, id);
            }
            entries.insert(id, entry);
        }
        Ok(Self { entries, open })
    }
}

fn decode_entry(entry: usize, raw: &[u8]) -> Result<(i64, ProducerEntry), SnapshotError> {
    let i64_at = |at: usize| raw[at..at + 8].iter().fold(0_i64, |v, &b| v << 8 | i64::from(b));
    let i32_at = |at: usize| raw[at..at + 4].iter().fold(0_i32, |v, &b| v << 8 | i32::from(b));
    let bad = |field| SnapshotError::Field { entry, field };
    let optional = |value: i64, field| match value {
        -1 => Ok(None),
        v => u64::try_from(v).map(Some).map_err(|_| bad(field)),
    };
    let id = i64_at(0);
    if id < 0 {
        return Err(bad("producerId"));
    }
    let timestamp = i64_at(26);
    let mut batches = VecDeque::new();
    if let Some(last_offset) = optional(i64_at(14), "lastOffset")? {
        let offset_delta = u32::try_from(i32_at(22)).map_err(|_| bad("offsetDelta"))?;
        if u64::from(offset_delta) > last_offset {
            return Err(bad("offsetDelta"));
        }
        batches.push_back(RememberedBatch { last_sequence: i32_at(10), last_offset, offset_delta, timestamp });
    }
    let state = ProducerEntry {
        epoch: i16::from_be_bytes([raw[8], raw[9]]),
        coordinator_epoch: i32_at(34),
        last_timestamp: timestamp,
        open_txn_first_offset: optional(i64_at(38), "currentTxnFirstOffset")?,
        batches,
    };
    Ok((id, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = &[
        0x00, 0x01, 0x2d, 0x86, 0xc1, 0x8e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0,
        2, 0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];

    #[test]
    fn the_golden_snapshot_reads_and_writes_back() {
        let states = ProducerStates::decode(GOLDEN).unwrap();
        assert_eq!(states.encode(), GOLDEN);
        let all = states.active();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].id, all[0].epoch, all[0].last_sequence, all[0].last_data_offset), (4000, 1, 9, Some(12)));
        assert_eq!((all[0].coordinator_epoch, all[0].open_txn_first_offset), (9, None));
    }

    #[test]
    fn an_empty_state_is_ten_bytes() {
        assert_eq!(ProducerStates::default().encode(), [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        for at in 0..GOLDEN.len() {
            assert!(ProducerStates::decode(&GOLDEN[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = GOLDEN.to_vec();
                bytes[at] ^= 1 << bit;
                assert!(ProducerStates::decode(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}
