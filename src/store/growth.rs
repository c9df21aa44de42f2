//! How much a log has grown since its pass began.

use keeplog_engine::Log;

/// A pass hurries once its log has grown by this part of what it was.
const HURRY_PART: u64 = 8;
/// A pass swaps what it has finished once its log has grown by this part of what it was.
const ROOM_PART: u64 = 64;

/// A log as it was when its pass began.
pub(super) struct Growth {
    /// The active segment and its bytes.
    active: (u64, u64),
    bytes: u64,
}

impl Growth {
    pub(super) fn since_now(log: &Log) -> Self {
        let segments = log.segments();
        let bytes: u64 = segments.all().iter().map(|segment| segment.size_bytes()).sum();
        let active = segments.active();
        Self { active: (active.base_offset(), active.size_bytes()), bytes }
    }

    /// Whether it is so much that the pass must come to its end: what it leaves of the log would soon be a small part of it.
    pub(super) fn asks_for_haste(&self, log: &Log) -> bool {
        self.now(log) > self.bytes / HURRY_PART
    }

    /// Whether it is so much that what comes meanwhile and the outputs of the pass, beside all that they replace, would be more
    /// than the device is meant to hold.
    pub(super) fn asks_for_room(&self, log: &Log) -> bool {
        self.now(log) > self.bytes / ROOM_PART
    }

    /// Bytes that have come since.
    fn now(&self, log: &Log) -> u64 {
        let (base_offset, bytes) = self.active;
        let segments = log.segments();
        let newer = segments.all().iter().rev().take_while(|segment| segment.base_offset() >= base_offset);
        newer.map(|segment| segment.size_bytes()).sum::<u64>().saturating_sub(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use keeplog_engine::record::Record;
    use keeplog_engine::storage::{MemoryStorage, Storage};
    use keeplog_engine::{Durability, LogOptions};

    use super::*;

    #[test]
    fn what_came_before_the_pass_is_not_growth_and_a_new_segment_is() {
        let storage = MemoryStorage::new();
        storage.create_dir(Path::new("/data")).unwrap();
        let log = Log::open_with(Arc::new(storage), Path::new("/data/t-0"), LogOptions::new()).unwrap();
        let append = |bytes: usize| {
            log.append(&[Record::new("key", vec![0; bytes])], Durability::Buffered).unwrap();
        };
        append(64_000);
        let growth = Growth::since_now(&log);
        let asks = || (growth.asks_for_room(&log), growth.asks_for_haste(&log));
        append(500);
        assert_eq!(asks(), (false, false));
        log.roll().unwrap();
        append(1_000);
        assert_eq!(asks(), (true, false));
        log.roll().unwrap();
        append(10_000);
        assert_eq!(asks(), (true, true));
    }
}
