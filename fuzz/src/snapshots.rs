//! Producer snapshots, against a slow reading of their layout.

use std::collections::BTreeMap;

use keeplog_engine::{ActiveProducer, snapshot as engine};

const HEADER: usize = 10;
const ENTRY: usize = 46;

/// Any `.snapshot`: the bytes as they are, and once more with the checksum and count that get them past the door.
pub fn snapshot(data: &[u8]) {
    check(data);
    if data.len() >= HEADER {
        let mut bytes = data.to_vec();
        let count = ((bytes.len() - HEADER) / ENTRY) as u32;
        bytes.truncate(HEADER + count as usize * ENTRY);
        bytes[..2].copy_from_slice(&1_i16.to_be_bytes());
        bytes[6..HEADER].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        check(&bytes);
    }
}

fn check(bytes: &[u8]) {
    let parsed = engine::parse(bytes);
    assert_eq!(parsed.as_ref().ok(), slow(bytes).as_ref(), "{parsed:?}");
}

/// The producers, by id; `None` if anything is wrong.
fn slow(bytes: &[u8]) -> Option<Vec<ActiveProducer>> {
    let int = |at: usize, bytes: &[u8], size: usize| -> Option<i64> {
        let negative = bytes.get(at)? & 0x80 != 0;
        let start = if negative { -1_i64 } else { 0 };
        Some(bytes.get(at..at + size)?.iter().fold(start, |value, &byte| value << 8 | i64::from(byte)))
    };
    let optional = |value: i64| match value {
        -1 => Some(None),
        value => u64::try_from(value).ok().map(Some),
    };
    let entries = bytes.get(HEADER..)?;
    let crc = crc32c::crc32c(bytes.get(6..)?);
    let count = usize::try_from(int(6, bytes, 4)?).ok()?;
    if int(0, bytes, 2)? != 1 || bytes[2..6] != crc.to_be_bytes() || entries.len() != count * ENTRY {
        return None;
    }
    let mut producers = BTreeMap::new();
    for e in entries.chunks_exact(ENTRY) {
        let id = int(0, e, 8).filter(|&id| id >= 0)?;
        let last_data_offset = optional(int(14, e, 8)?)?;
        let delta = int(22, e, 4)?;
        if last_data_offset.is_some_and(|last| u64::try_from(delta).map_or(true, |delta| delta > last)) {
            return None;
        }
        let producer = ActiveProducer {
            id,
            epoch: int(8, e, 2)? as i16,
            last_sequence: if last_data_offset.is_some() { int(10, e, 4)? as i32 } else { -1 },
            last_data_offset,
            open_txn_first_offset: optional(int(38, e, 8)?)?,
            last_timestamp: int(26, e, 8)?,
            coordinator_epoch: int(34, e, 4)? as i32,
        };
        producers.insert(id, producer);
    }
    Some(producers.into_values().collect())
}
