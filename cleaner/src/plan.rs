//! All that must be known before the newest-first pass begins: its range, its outputs, and what must stay.

use std::collections::HashMap;
use std::ops::Range;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::BatchHeader;

use crate::assemble::Group;
use crate::options::{CleanOptions, Merge};
use crate::source::{LogView, ProducerEnd, Source};

/// Offsets that one output segment can span.
pub(crate) const OUTPUT_SPAN_MAX: u64 = i32::MAX as u64;

/// The offsets that may be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyRange {
    pub(crate) first_dirty: u64,
    /// A segment's base: everything from here on is left alone.
    pub(crate) first_uncleanable: u64,
}

impl DirtyRange {
    /// The range that `options` ask for, as far as the log allows it.
    pub(crate) fn of(log: &LogView<'_>, options: &CleanOptions) -> Self {
        let stable = if is_planted(Defect::CleanOpenTransactions) { u64::MAX } else { log.last_stable_offset };
        let bound = options.first_uncleanable.unwrap_or(u64::MAX).min(stable).min(log.active_base());
        // A bound inside a segment would leave half of it judged: the whole segment waits.
        let bases = log.sources.iter().map(|source| source.base_offset());
        let first_uncleanable = bases.take_while(|base| *base <= bound).last().unwrap_or(0);
        Self { first_dirty: options.first_dirty, first_uncleanable }
    }

    /// Whether there is nothing to clean.
    pub(crate) fn is_empty(self) -> bool {
        self.first_uncleanable <= self.first_dirty
    }
}

/// The rules of one pass: what a batch or record is judged by, besides newer records.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Time of the pass, ms.
    pub(crate) now_ms: i64,
    /// The delete horizon that this pass stamps, ms.
    pub(crate) new_horizon_ms: i64,
    /// Records below only ask whether they are replaced.
    pub(crate) first_dirty: u64,
    /// One past the last offset that the pass judges; what is above stays as it is.
    pub(crate) end: u64,
    /// Where the range ends, which is above `end` if the dedup set is too small for it.
    first_uncleanable: u64,
    /// Tombstones in v0 and v1 stay in segments modified after this, ms.
    pub(crate) legacy_horizon_ms: i64,
    producers: HashMap<i64, LastOfProducer>,
}

#[derive(Clone, Copy, Debug)]
struct LastOfProducer {
    epoch: i16,
    data_offset: Option<u64>,
}

impl Rules {
    /// The rules for cleaning `range` of `log`, to its end.
    pub(crate) fn new(log: &LogView<'_>, range: DirtyRange, options: &CleanOptions) -> Self {
        let clean = log.sources.iter().take_while(|source| source.base_offset() < range.first_dirty).last();
        let last = |end: &ProducerEnd| LastOfProducer { epoch: end.producer_epoch, data_offset: end.last_data_offset };
        Self {
            now_ms: options.now_ms,
            new_horizon_ms: options.now_ms.saturating_add(options.delete_retention_ms),
            first_dirty: range.first_dirty,
            end: range.first_uncleanable,
            first_uncleanable: range.first_uncleanable,
            legacy_horizon_ms: clean.map_or(0, |segment| segment.modified_ms().saturating_sub(options.delete_retention_ms)),
            producers: log.producers.iter().map(|end| (end.producer_id, last(end))).collect(),
        }
    }

    /// Whether the batch stays even when all its records are gone: it carries its producer's state, or the last
    /// offset of the range.
    #[inline]
    pub(crate) fn keeps_empty(&self, header: &BatchHeader) -> bool {
        if header.next_offset() == self.first_uncleanable {
            return true;
        }
        header.has_producer() && self.carries_producer(header)
    }

    fn carries_producer(&self, header: &BatchHeader) -> bool {
        self.producers.get(&header.producer_id).is_some_and(|last| match last.data_offset {
            Some(offset) => header.last_offset == offset,
            None => header.is_control() && header.producer_epoch == last.epoch,
        })
    }

    /// Whether tombstones of the old formats may still be needed in a segment modified at this time.
    pub(crate) fn keeps_legacy_tombstones(&self, modified_ms: i64) -> bool {
        modified_ms > self.legacy_horizon_ms
    }
}

/// Segments that become one at most: until they are swapped, each is held open for whoever reads it.
const SOURCES_MAX: usize = 64;

/// Which adjacent segments become one. An output that outgrows its file is still split.
pub(crate) enum Joints {
    /// By what stays of them.
    Kept { segment_bytes: u64, merge_window_ms: Option<i64>, first_uncleanable: u64 },
    /// As Kafka does it, settled beforehand: the places in the log where a group begins, ascending.
    Sources(Vec<usize>),
}

impl Joints {
    /// For the first `count` segments of `log`.
    pub(crate) fn new(log: &LogView<'_>, count: usize, range: DirtyRange, options: &CleanOptions) -> Self {
        match options.merge {
            Merge::Kept => Self::Kept {
                segment_bytes: options.segment_bytes.min(options.output_bytes_max).into(),
                merge_window_ms: options.merge_window_ms,
                first_uncleanable: range.first_uncleanable,
            },
            Merge::Sources => Self::Sources(group(&log.sources[..count], range, options).into_iter().map(|group| group.start).collect()),
        }
    }

    /// Whether the segment `older` joins the group `newer` behind it.
    pub(crate) fn join(&self, log: &LogView<'_>, older: &Group, newer: &Group) -> bool {
        match self {
            Self::Sources(starts) => starts.binary_search(&newer.sources.start).is_err(),
            Self::Kept { segment_bytes, merge_window_ms, first_uncleanable } => {
                let last_possible = log.next_base(newer.sources.end - 1).min(*first_uncleanable) - 1;
                let first = &log.sources[older.sources.start];
                // A segment that lost nothing is not written again only to become somewhat larger.
                let stays = |group: &Group| !group.changed && group.sources.len() == 1 && 2 * group.bytes > *segment_bytes;
                // Nothing in an empty one must be reached from the base.
                let in_span = newer.bytes == 0 || last_possible - first.base_offset() <= OUTPUT_SPAN_MAX;
                older.bytes + newer.bytes <= *segment_bytes
                    && in_span
                    && in_one_window(*merge_window_ms, older.age_ms, newer.age_ms)
                    // Half full is full enough, and is written while older segments are read.
                    && 2 * newer.bytes <= *segment_bytes
                    && newer.sources.len() < SOURCES_MAX
                    && !stays(older)
                    && !stays(newer)
            }
        }
    }
}

/// Whether retention may treat both alike, by their ages. What holds nothing has none.
fn in_one_window(merge_window_ms: Option<i64>, a: Option<i64>, b: Option<i64>) -> bool {
    let (Some(ms), Some(a), Some(b)) = (merge_window_ms, a, b) else { return true };
    a.div_euclid(ms) == b.div_euclid(ms)
}

/// Groups segments as Kafka does: each group becomes one segment, or more if it outgrows that. Ranges are places in
/// `sources`, ascending. Sizes are those before cleaning; what they shrink to is not known yet.
fn group(sources: &[Box<dyn Source + '_>], range: DirtyRange, options: &CleanOptions) -> Vec<Range<usize>> {
    let count = sources.len();
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut sum = [0; 3];
    // Of the first of the group that holds anything.
    let mut age = None;
    let limits = [options.segment_bytes, options.segment_index_bytes, options.segment_index_bytes].map(u64::from);
    for (i, source) in sources.iter().enumerate() {
        let sizes = [source.size_bytes(), source.offset_index_bytes(), source.time_index_bytes()].map(u64::from);
        let own_age = (source.size_bytes() > 0).then(|| source.age_ms());
        let fits = |group: &Range<usize>| {
            let last_possible = if i + 1 < count { sources[i + 1].base_offset() } else { range.first_uncleanable } - 1;
            // An empty segment adds no offset that must be reached from the base.
            let in_span = sizes[0] == 0 || last_possible - sources[group.start].base_offset() <= OUTPUT_SPAN_MAX;
            let in_window = in_one_window(options.merge_window_ms, age, own_age);
            in_span && in_window && (0..3).all(|k| sum[k] + sizes[k] <= limits[k])
        };
        match groups.last_mut() {
            Some(group) if fits(group) => {
                group.end = i + 1;
                for (total, size) in sum.iter_mut().zip(sizes) {
                    *total += size;
                }
                age = age.or(own_age);
            }
            _ => {
                groups.push(i..i + 1);
                (sum, age) = (sizes, own_age);
            }
        }
    }
    groups
}
