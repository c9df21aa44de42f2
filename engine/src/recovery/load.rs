//! Finds the segments of a log and judges their indexes, without reading what the logs hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::indexes::check_indexes;
use super::leftovers;
use super::open::{Loaded, OP, Recovery};
use super::report::Damage;
use crate::config::RecoveryMode;
use crate::names::{FileKind, FileName, FileState, file_name};
use crate::segment::{SEGMENT_FILES, SealedFacts, Segment};
use crate::{Error, Result};

impl Recovery<'_> {
    /// Finds the segments, and judges their indexes without reading the logs.
    pub(super) fn load(&mut self) -> Result<()> {
        let files = leftovers::list(self.place)?;
        let logs: BTreeSet<u64> =
            files.iter().filter(|f| f.kind == FileKind::Log && f.state == FileState::Live).map(|f| f.number).collect();
        let (mut missing, mut orphans) = (BTreeSet::new(), Vec::new());
        for file in files.iter().filter(|f| f.state == FileState::Live && SEGMENT_FILES[1..].contains(&f.kind)) {
            if !logs.contains(&file.number) {
                // Behind the last log, an index is what a crash leaves of a segment that was just begun.
                if logs.last().is_none_or(|&last| file.number < last) {
                    missing.insert(file.number);
                }
                orphans.push(*file);
            }
        }
        for base in missing {
            // Of what an interrupted swap or retention was removing, an index may go last.
            let cleaned_into = logs.range(..base).next_back().is_some_and(|below| self.report.swaps_completed.contains(below));
            if base < self.input.start_offset || cleaned_into || self.was_retired(base) {
                continue;
            }
            if self.options.recovery_mode == RecoveryMode::Strict {
                let path = self.place.path(base, FileKind::Log, FileState::Live);
                return Err(Error::corrupt(OP, &path, 0, "the log of this segment is missing, its indexes are there").offset_at(base));
            }
            let unless =
                if logs.first().is_some_and(|&first| first < base) { ", unless it was cleaned into an earlier segment" } else { "" };
            let what = format!("the log of this segment is missing, its indexes were there; what it held is gone{unless}");
            self.report.damage.push(Damage { file: file_name(base, FileKind::Log), position: 0, offset: base, what, in_place: false });
        }
        for file in orphans {
            self.report.removed.push(file.to_string());
            self.place.remove(&self.place.path(file.number, file.kind, file.state))?;
        }
        let bases: Vec<u64> = logs.into_iter().collect();
        for (at, &base) in bases.iter().enumerate() {
            let limit = bases.get(at + 1).copied().unwrap_or(u64::MAX);
            let loaded = self.load_segment(base, limit)?;
            self.segments.push(loaded);
        }
        Ok(())
    }

    /// Whether the segment was being removed: its log, the first to get this name with a broker, was there under it.
    fn was_retired(&self, base: u64) -> bool {
        let retired = FileName { number: base, kind: FileKind::Log, state: FileState::Deleted }.to_string();
        self.report.removed.contains(&retired)
    }

    fn load_segment(&self, base: u64, limit: u64) -> Result<Loaded> {
        let path = self.place.path(base, FileKind::Log, FileState::Live);
        let len = self.place.storage.metadata(&path).map_err(|e| Error::io(OP, &path, e))?.len;
        if len > i32::MAX as u64 {
            return Err(Error::corrupt(OP, &path, i32::MAX as u64, format!("{len} bytes, a segment holds at most 2147483647")));
        }
        let (facts, distrust) = match check_indexes(self.place, self.options, base, len, limit) {
            Ok(facts) => (facts, None),
            Err(why) => (SealedFacts { size: len, offset_bytes: 0, time_bytes: 0, largest_timestamp: -1 }, Some(why)),
        };
        Ok(Loaded { segment: Arc::new(Segment::sealed(self.place.clone(), base, facts)), distrust })
    }
}
