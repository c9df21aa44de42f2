//! Which segments become one: from chunks, in whatever order they are finished, to groups.
//!
//! Chunks come newest first, files are written oldest first: until a group is through, what stays of it is held. There is a
//! limit to that, for all groups together. Of chunks beyond it only one bit a record is held; when their group is written
//! they are read again.

use std::collections::BTreeMap;
use std::ops::Range;

use keeplog_engine::sync::Mutex;
use keeplog_engine::sync::atomic::{AtomicU64, Ordering};

use crate::chunk::Chunk;
use crate::emit::Piece;
use crate::feed::Task;
use crate::pass::Pass;
use crate::plan::Joints;
use crate::work::lock;

/// What stays of one chunk.
pub(crate) struct Part {
    /// The place of its segment in the log.
    pub(crate) at: usize,
    pub(crate) bounds: (u32, u32),
    /// Bytes that stay.
    pub(crate) bytes: u64,
    /// Whether they differ from what was read.
    pub(crate) changed: bool,
    /// Whether tombstones went because their time was over.
    pub(crate) lost_tombstones: bool,
    pub(crate) kept: Kept,
}

/// What is held of it.
pub(crate) enum Kept {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Which of its records are live.
    Bits(Vec<u64>),
}

impl Part {
    /// What stays of `task`'s chunk, `piece`, held as there is room for it.
    pub(crate) fn new(task: &Task<'_>, piece: Piece, chunk: &Chunk, held: &Held) -> Self {
        let Piece { bytes: mut kept, changed, .. } = piece;
        // It was made for the case that most stays.
        kept.shrink_to_fit();
        let bytes = kept.len() as u64;
        let kept = if held.take(bytes) { Kept::Bytes(kept) } else { Kept::Bits(chunk.live_bits()) };
        Self { at: task.at, bounds: task.bounds, bytes, changed, lost_tombstones: chunk.loses_tombstones(), kept }
    }

    /// Bytes that are held of it.
    pub(crate) fn held(&self) -> u64 {
        if let Kept::Bytes(bytes) = &self.kept { bytes.len() as u64 } else { 0 }
    }
}

/// How much is held, against what may be.
pub(crate) struct Held {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Held {
    /// Nothing; at most `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max }
    }

    /// Whether `bytes` more may be held; then they are counted.
    fn take(&self, bytes: u64) -> bool {
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = held.saturating_add(bytes) <= self.bytes_max;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// So many bytes are held no more.
    pub(crate) fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// All that stays of adjacent segments that become one.
pub(crate) struct Group {
    /// The places of the segments in the log.
    pub(crate) sources: Range<usize>,
    /// The newest first.
    pub(crate) parts: Vec<Part>,
    /// Bytes that stay.
    pub(crate) bytes: u64,
    /// Whether they differ from what was read.
    pub(crate) changed: bool,
    /// Whether tombstones went because their time was over.
    pub(crate) lost_tombstones: bool,
    /// What retention judges the age of the newest segment by of which anything stays, ms.
    pub(crate) age_ms: Option<i64>,
}

/// Puts the chunks of a pass together.
pub(crate) struct Assembly {
    joints: Joints,
    state: Mutex<State>,
}

struct State {
    /// Segments of which some chunk, or the number of chunks, is missing, by their place in the log.
    begun: BTreeMap<usize, Begun>,
    /// Segments that wait for newer ones.
    waiting: BTreeMap<usize, Group>,
    /// All segments from this place on are through.
    next: usize,
    /// What older segments may still join.
    open: Option<Group>,
}

#[derive(Default)]
struct Begun {
    /// By their place, the newest first; none for those that are still worked on.
    parts: Vec<Option<Part>>,
    done: usize,
    /// How many there are, once that is known.
    of: Option<usize>,
}

impl Assembly {
    /// Of the first `sources` segments of a log, which join as `joints` say.
    pub(crate) fn new(sources: usize, joints: Joints) -> Self {
        let state = State { begun: BTreeMap::new(), waiting: BTreeMap::new(), next: sources, open: None };
        Self { joints, state: Mutex::new(state) }
    }

    /// Adds the part at `place` of segment `at`; gives the groups that are complete with it.
    pub(crate) fn add(&self, pass: &Pass<'_>, at: usize, place: usize, part: Part) -> Vec<Group> {
        self.change(pass, at, |begun| {
            if begun.parts.len() <= place {
                begun.parts.resize_with(place + 1, || None);
            }
            begun.parts[place] = Some(part);
            begun.done += 1;
        })
    }

    /// Notes that segment `at` has so many parts; gives the groups that are complete with that.
    pub(crate) fn end(&self, pass: &Pass<'_>, at: usize, parts: usize) -> Vec<Group> {
        self.change(pass, at, |begun| begun.of = Some(parts))
    }

    fn change(&self, pass: &Pass<'_>, at: usize, change: impl FnOnce(&mut Begun)) -> Vec<Group> {
        let mut state = lock(&self.state);
        let begun = state.begun.entry(at).or_default();
        change(begun);
        if begun.of != Some(begun.done) {
            return Vec::new();
        }
        let parts: Vec<Part> = state.begun.remove(&at).unwrap_or_default().parts.into_iter().flatten().collect();
        let (bytes, changed) = (parts.iter().map(|part| part.bytes).sum(), parts.iter().any(|part| part.changed));
        let lost_tombstones = parts.iter().any(|part| part.lost_tombstones);
        let age_ms = (bytes > 0).then(|| pass.log.sources[at].age_ms());
        state.waiting.insert(at, Group { sources: at..at + 1, parts, bytes, changed, lost_tombstones, age_ms });
        state.join(&self.joints, pass)
    }
}

impl State {
    /// Joins what waits, from the newest segment down.
    fn join(&mut self, joints: &Joints, pass: &Pass<'_>) -> Vec<Group> {
        let mut complete = Vec::new();
        while let Some(older) = self.next.checked_sub(1).and_then(|at| self.waiting.remove(&at)) {
            self.next -= 1;
            match &mut self.open {
                Some(open) if joints.join(pass.log, &older, open) => {
                    open.sources.start = older.sources.start;
                    open.parts.extend(older.parts);
                    open.bytes += older.bytes;
                    open.changed |= older.changed;
                    open.lost_tombstones |= older.lost_tombstones;
                    open.age_ms = open.age_ms.or(older.age_ms);
                }
                open => complete.extend(open.replace(older)),
            }
        }
        if self.next == 0 {
            complete.extend(self.open.take());
        }
        complete
    }
}
