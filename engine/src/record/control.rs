//! Control records: what they say, and the markers that end transactions.

use super::varint::Reader;
use super::{BatchHeader, BatchSpec, BatchWriter, DecodeError, EncodeError};

/// What a control record says, from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlType {
    /// Ends a transaction: it never happened.
    Abort,
    /// Ends a transaction: it holds.
    Commit,
    /// A Raft leader took over.
    LeaderChange,
    /// First record of a Raft snapshot.
    SnapshotHeader,
    /// Last record of a Raft snapshot.
    SnapshotFooter,
    /// Version of the Raft protocol.
    KRaftVersion,
    /// Voters of the Raft quorum.
    KRaftVoters,
    /// Anything newer; to be ignored.
    Unknown(i16),
}

impl ControlType {
    /// From the key of a control record. Versions above 0 are read as 0, as Kafka reads them.
    pub fn of_key(key: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(key);
        let (Some(version), Some(code)) = (reader.array(), reader.array()) else {
            return Err(DecodeError::Control("key is shorter than 4 bytes"));
        };
        if i16::from_be_bytes(version) < 0 {
            return Err(DecodeError::Control("key version is negative"));
        }
        Ok(match i16::from_be_bytes(code) {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KRaftVersion,
            6 => Self::KRaftVoters,
            other => Self::Unknown(other),
        })
    }

    /// Its number in a key.
    #[must_use]
    pub fn code(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::LeaderChange => 2,
            Self::SnapshotHeader => 3,
            Self::SnapshotFooter => 4,
            Self::KRaftVersion => 5,
            Self::KRaftVoters => 6,
            Self::Unknown(code) => code,
        }
    }
}

/// The coordinator's epoch in the value of an abort or commit marker. Versions above 0 are read as 0.
pub fn coordinator_epoch_of(value: &[u8]) -> Result<i32, DecodeError> {
    let mut reader = Reader::new(value);
    let (Some(version), Some(epoch)) = (reader.array(), reader.array()) else {
        return Err(DecodeError::Control("value is shorter than 6 bytes"));
    };
    if i16::from_be_bytes(version) < 0 {
        return Err(DecodeError::Control("value version is negative"));
    }
    Ok(i32::from_be_bytes(epoch))
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxnResult {
    /// Readers of committed data skip it.
    Aborted,
    /// It holds.
    Committed,
}

/// A batch with the one control record that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Its offset.
    pub offset: u64,
    /// Epoch of the leader that writes it; -1 unknown.
    pub leader_epoch: i32,
    /// Its time, ms.
    pub timestamp: i64,
    /// Whose transaction ends.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// How it ends.
    pub result: TxnResult,
    /// Epoch of the transaction coordinator.
    pub coordinator_epoch: i32,
}

/// Appends the batch of `marker` to `out`.
pub fn write_end_marker(marker: &EndMarker, out: &mut Vec<u8>) -> Result<BatchHeader, EncodeError> {
    let control = match marker.result {
        TxnResult::Aborted => ControlType::Abort,
        TxnResult::Committed => ControlType::Commit,
    };
    let mut key = [0; 4]; // version 0, type
    key[2..].copy_from_slice(&control.code().to_be_bytes());
    let mut value = [0; 6]; // version 0, epoch
    value[2..].copy_from_slice(&marker.coordinator_epoch.to_be_bytes());

    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec {
        base_offset: marker.offset,
        leader_epoch: marker.leader_epoch,
        producer_id: marker.producer_id,
        producer_epoch: marker.producer_epoch,
        transactional: true,
        control: true,
        ..BatchSpec::default()
    });
    writer.push(marker.offset, marker.timestamp, Some(&key), Some(&value), &[])?;
    writer.finish(out)
}
