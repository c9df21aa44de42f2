//! A log that ends below its start offset.

use super::*;

impl Recovery<'_> {
    /// The whole log lies below its start offset: it goes on at the start. What lies below can't be read any more, but
    /// goes with retention only: a start offset that a damaged checkpoint made up must not take a log away.
    pub(super) fn restart_at(&mut self, start: u64) -> Result<()> {
        if self.options.recovery_mode == RecoveryMode::Strict {
            let detail = format!("the log ends at {}, below its start offset {start}", self.next_offset);
            return Err(Error::new(ErrorKind::Corrupt, OP, detail).at(&self.place.dir));
        }
        self.report.ended_below_start = Some(self.next_offset);
        if let (Some(last), Some(indexes)) = (self.segments.pop(), self.indexed.take()) {
            let path = last.segment.path();
            let len = self.place.storage.metadata(&path).map_err(|e| Error::io(OP, &path, e))?.len;
            if len == 0 {
                for kind in SEGMENT_FILES {
                    self.place.remove(&self.place.path(last.segment.base_offset(), kind, FileState::Live))?;
                }
            } else {
                let segment = self.seal(&last.segment, last.segment.size_bytes(), indexes)?;
                self.segments.push(Loaded { segment, distrust: None });
            }
        }
        let path = self.place.path(start, FileKind::Log, FileState::Live);
        self.place.storage.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
        let facts = SealedFacts { size: 0, offset_bytes: 0, time_bytes: 0, largest_timestamp: -1 };
        self.segments.push(Loaded { segment: Arc::new(Segment::sealed(self.place.clone(), start, facts)), distrust: None });
        self.indexed = Some(IndexBuilder::new(start, self.options.index_interval_bytes, self.options.segment_index_bytes));
        self.next_offset = start;
        self.first_timestamp = None;
        self.report.read_only = false;
        self.place.sync_dir()
    }
}
