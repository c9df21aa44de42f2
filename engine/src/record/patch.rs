//! Changing fields of a v2 batch in place.
//!
//! Base offset and leader epoch are outside the checksum, so that a log can assign them without reading the
//! records.

use super::write::write_crc;
use super::{Attributes, HEADER_V2_BYTES, MAGIC_POSITION};

/// Sets the base offset of a v2 batch. All its offsets move with it.
///
/// # Panics
/// If `entry` is shorter than a v2 header or of another format: it must have been parsed before.
pub fn set_base_offset(entry: &mut [u8], base_offset: u64) {
    assert_v2(entry);
    entry[..8].copy_from_slice(&base_offset.to_be_bytes());
}

/// Sets the leader epoch of a v2 batch.
///
/// # Panics
/// If `entry` is shorter than a v2 header or of another format: it must have been parsed before.
pub fn set_leader_epoch(entry: &mut [u8], leader_epoch: i32) {
    assert_v2(entry);
    entry[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Makes `timestamp` (ms) the append time of a v2 batch, which stands for the times of all its records, and
/// renews the checksum. `entry` is the whole batch.
///
/// # Panics
/// If `entry` is shorter than a v2 header or of another format: it must have been parsed before.
pub fn set_append_time(entry: &mut [u8], timestamp: i64) {
    assert_v2(entry);
    // As in Kafka, bits without a meaning are lost when a header is rewritten.
    let kept = entry[22] & 0x7f;
    entry[21..23].copy_from_slice(&(u16::from(kept) | Attributes::LOG_APPEND_TIME).to_be_bytes());
    entry[35..43].copy_from_slice(&timestamp.to_be_bytes());
    write_crc(entry);
}

fn assert_v2(entry: &[u8]) {
    assert!(entry.len() >= HEADER_V2_BYTES && entry[MAGIC_POSITION] == 2, "only v2 batches are changed in place");
}
