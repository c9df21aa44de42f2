//! The segments of a log at one moment: immutable, swapped as a whole, held by readers for as long as they read.

use crate::segment::Segment;
use crate::sync::{Arc, PoisonError, RwLock};

/// The segments of a log, ascending. The last one is active. There is always at least one.
#[derive(Clone, Debug)]
pub struct SegmentSet {
    segments: Vec<Arc<Segment>>,
}

impl SegmentSet {
    pub(crate) fn new(segments: Vec<Arc<Segment>>) -> Self {
        assert!(!segments.is_empty(), "a log has at least one segment");
        assert!(segments.is_sorted_by(|a, b| a.base_offset() < b.base_offset()), "segments ascend");
        Self { segments }
    }

    /// All segments, ascending.
    #[must_use]
    pub fn all(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// All but the active segment, ascending.
    #[must_use]
    pub fn sealed(&self) -> &[Arc<Segment>] {
        &self.segments[..self.segments.len() - 1]
    }

    /// The segment that is appended to.
    #[must_use]
    pub fn active(&self) -> &Arc<Segment> {
        &self.segments[self.segments.len() - 1]
    }

    /// Place in [`SegmentSet::all`] of the segment that may hold `offset`: the last with a base at or below it, else the first.
    #[must_use]
    pub fn position_of(&self, offset: u64) -> usize {
        self.segments.partition_point(|s| s.base_offset() <= offset).saturating_sub(1)
    }
}

/// Holds the current set. Readers take a snapshot; a change puts a new set in its place.
#[derive(Debug)]
pub(crate) struct CurrentSet(RwLock<Arc<SegmentSet>>);

impl CurrentSet {
    pub(crate) fn new(set: SegmentSet) -> Self {
        Self(RwLock::new(Arc::new(set)))
    }

    /// The set as it is now. Waits for nothing longer than a pointer swap.
    pub(crate) fn snapshot(&self) -> Arc<SegmentSet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts in place what `change` makes of the current segments. Changes are made one after the other.
    pub(crate) fn replace(&self, change: impl FnOnce(&[Arc<Segment>]) -> Vec<Arc<Segment>>) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(SegmentSet::new(change(current.all())));
        let old = std::mem::replace(&mut *current, next);
        drop(current);
        drop(old); // may unlink files: not under the lock
    }
}
