//! The leader epochs of one log: which offset was the first under each.

use std::path::Path;

use super::{Loaded, MalformedReason, format, loaded, number, parse, read_text, write_atomic};
use crate::Result;
use crate::names::LEADER_EPOCHS;
use crate::storage::Storage;

/// The first offset written under a leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochEntry {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Its first offset.
    pub start_offset: u64,
}

/// The leader epochs of a log, ascending in epoch and start offset. Changes are made in memory and return whether
/// there was one; [`LeaderEpochs::write`] makes them durable. Compaction never changes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// Reads `leader-epoch-checkpoint` in a partition directory. Entries out of order end as if they had been
    /// assigned one by one.
    pub fn read(storage: &dyn Storage, partition_dir: &Path) -> Result<Loaded<Self>> {
        let Some(text) = read_text(storage, &partition_dir.join(LEADER_EPOCHS))? else { return Ok(Loaded::Missing) };
        let mut epochs = Self::default();
        let outcome = text.and_then(|text| {
            parse(&text, |[epoch, start_offset]| {
                let epoch = epoch.parse::<i32>().ok().filter(|&e| e >= 0).ok_or(MalformedReason::Number)?;
                epochs.assign(epoch, number(start_offset)?);
                Ok(())
            })
        });
        Ok(loaded(outcome, epochs.entries.is_empty(), epochs))
    }

    /// Replaces `leader-epoch-checkpoint` in a partition directory, durably and at once.
    pub fn write(&self, storage: &dyn Storage, partition_dir: &Path) -> Result<()> {
        let entries = self.entries.iter().map(|e| format!("{} {}", e.epoch, e.start_offset));
        write_atomic(storage, &partition_dir.join(LEADER_EPOCHS), format(self.entries.len(), entries).as_bytes())
    }

    /// All entries, ascending.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest entry.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The entry that `offset` belongs to; `None` below the first one.
    #[must_use]
    pub fn of_offset(&self, offset: u64) -> Option<EpochEntry> {
        let not_above = self.entries.partition_point(|e| e.start_offset <= offset);
        self.entries.get(not_above.checked_sub(1)?).copied()
    }

    /// Notes that `epoch` starts at `start_offset`. Entries that contradict it go. An unknown epoch (below 0) and an
    /// epoch that is already the newest and started no later change nothing.
    pub fn assign(&mut self, epoch: i32, start_offset: u64) -> bool {
        let Ok(epoch) = u32::try_from(epoch) else { return false };
        if self.latest().is_some_and(|last| last.epoch == epoch && last.start_offset <= start_offset) {
            return false;
        }
        while self.entries.pop_if(|e| e.epoch >= epoch || e.start_offset >= start_offset).is_some() {}
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// The log was cut to end at `end_offset`: drops the entries that start there or later.
    pub fn truncate_tail(&mut self, end_offset: u64) -> bool {
        let kept = self.entries.partition_point(|e| e.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// The log now starts at `start_offset`: drops the entries that start there or earlier, but the last of them is
    /// kept and starts there.
    pub fn truncate_head(&mut self, start_offset: u64) -> bool {
        let below = self.entries.partition_point(|e| e.start_offset <= start_offset);
        let Some(last) = below.checked_sub(1) else { return false };
        if last == 0 && self.entries[0].start_offset == start_offset {
            return false;
        }
        self.entries.drain(..last);
        self.entries[0].start_offset = start_offset;
        true
    }

    /// Forgets everything, as after an append in a format without epochs.
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }
}
