//! Which chunks of a segment get an entry in the offset index.

/// Counts bytes between entries. One rule serves the live append, where a chunk is what one call appends, and
/// the rebuild of an index, where a chunk is a batch: a chunk gets an entry if *more* than the interval lies
/// between its start and the start of the last chunk that got one (or the start of the segment). So the first
/// chunk of a segment never gets one.
#[derive(Clone, Copy, Debug)]
pub struct IndexInterval {
    interval_bytes: u32,
    since_last: u64,
}

impl IndexInterval {
    /// A counter at the start of a segment, or after an open or a truncation, with an interval in bytes (Kafka's
    /// `index.interval.bytes`).
    #[must_use]
    pub fn new(interval_bytes: u32) -> Self {
        Self { interval_bytes, since_last: 0 }
    }

    /// Whether the next chunk gets an entry.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.since_last > u64::from(self.interval_bytes)
    }

    /// Counts a chunk of `chunk_bytes` and returns whether it gets an entry. Call it once per chunk that was written.
    pub fn admit(&mut self, chunk_bytes: u64) -> bool {
        let due = self.is_due();
        self.since_last = if due { chunk_bytes } else { self.since_last.saturating_add(chunk_bytes) };
        due
    }

    /// Starts over, as after a truncation.
    pub fn reset(&mut self) {
        self.since_last = 0;
    }
}
