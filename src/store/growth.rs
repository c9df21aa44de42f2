//! How much a log has grown since its pass began.

use keeplog_engine::Log;

/// A pass hurries once its log has grown by this part of what it was.
const PART_MAX: u64 = 8;

/// A log as it was when its pass began.
pub(super) struct Growth {
    /// The active segment and its bytes.
    active: (u64, u64),
    bytes_max: u64,
}

impl Growth {
    pub(super) fn since_now(log: &Log) -> Self {
        let segments = log.segments();
        let bytes: u64 = segments.all().iter().map(|segment| segment.size_bytes()).sum();
        let active = segments.active();
        Self { active: (active.base_offset(), active.size_bytes()), bytes_max: bytes / PART_MAX }
    }

    /// Whether it is so much that the pass must come to its end: what it leaves of the log would soon be a small part of it.
    pub(super) fn is_too_much(&self, log: &Log) -> bool {
        let (base_offset, bytes) = self.active;
        let segments = log.segments();
        let newer = segments.all().iter().rev().take_while(|segment| segment.base_offset() >= base_offset);
        newer.map(|segment| segment.size_bytes()).sum::<u64>().saturating_sub(bytes) > self.bytes_max
    }
}
