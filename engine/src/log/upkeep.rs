//! What is due in a log that nobody writes to: when its active segment is to be closed, and when to look again.

use super::{Inner, Log, Writer};
use crate::Result;

impl Log {
    /// Closes the active segment if its first record is older than `segment_ms` or, of a compacted log, than
    /// `max_compaction_lag_ms`, and starts a new one; whether it did. An append does the same, but to a log at rest there
    /// comes none, and what is active can't be cleaned.
    ///
    /// # Errors
    /// As [`Log::roll`].
    pub fn roll_if_due(&self) -> Result<bool> {
        let inner = &*self.inner;
        let mut writer = inner.writer();
        inner.check_writable("roll")?;
        if inner.roll_due_ms(&writer).is_none_or(|due| due > inner.place.storage.now_ms()) {
            return Ok(false);
        }
        let base_offset = writer.next_offset;
        inner.roll_to(&mut writer, base_offset).map_err(|e| inner.fail(e))?;
        inner.sync_if_crowded(writer);
        Ok(true)
    }

    /// When [`Log::roll_if_due`] closes the active segment, if nothing is appended until then, ms since the Unix epoch; `None`
    /// if it has no record.
    #[must_use]
    pub fn roll_due_ms(&self) -> Option<i64> {
        self.inner.roll_due_ms(&self.inner.writer())
    }

    /// When [`Log::apply_retention`] next has something to do because time passes, ms since the Unix epoch; `None` if
    /// never. What else gives it something to do is a change in the sense of [`DataDir::note_change`](crate::DataDir::note_change),
    /// and, where `retention_bytes` is set, an append.
    ///
    /// # Errors
    /// `Io` if the age of a segment without timestamps can't be read.
    pub fn retention_due_ms(&self) -> Result<Option<i64>> {
        let inner = &*self.inner;
        let (set, options) = (inner.segments.snapshot(), inner.live.options());
        // Those behind the oldest can't go before it does.
        let oldest = &set.all()[0];
        let retention_ms = options.retention_ms.filter(|_| options.cleanup_policy.deletes() && oldest.size_bytes() > 0);
        let Some(retention_ms) = retention_ms else { return Ok(None) };
        let too_old = |stamp: i64| stamp.saturating_add(retention_ms).checked_add(1);
        let stamp = oldest.age_timestamp()?;
        if stamp <= inner.place.storage.now_ms() {
            return Ok(too_old(stamp));
        }
        // Until then the time of its file counts.
        Ok(Some(too_old(oldest.modified_ms()?).map_or(stamp, |due| due.min(stamp))))
    }
}

impl Inner {
    /// When the active segment has been open for too long; `None` for an empty one, and for one that may stay open for ever.
    fn roll_due_ms(&self, writer: &Writer) -> Option<i64> {
        if writer.position == 0 {
            return None;
        }
        let now_ms = self.place.storage.now_ms();
        // A record from the future must not keep it open for ever.
        let since = writer.first_timestamp.filter(|first| (0..=now_ms).contains(first)).unwrap_or(writer.created_ms);
        since.checked_add(self.live.roll_ms())?.checked_add(1)
    }
}
