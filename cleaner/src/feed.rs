//! Which chunk comes next: the segments from the newest to the oldest, and their chunks likewise.

use std::sync::Arc;

use keeplog_engine::Result;
use keeplog_engine::storage::File;

use crate::pass::{Halt, Pass};
use crate::source::Source;

/// One chunk to be worked on.
pub(crate) struct Task<'a> {
    /// How many come before it: when its turn is.
    pub(crate) number: usize,
    /// How many of its segment come before it.
    pub(crate) place: usize,
    /// The place of its segment in the log.
    pub(crate) at: usize,
    pub(crate) source: &'a dyn Source,
    pub(crate) file: Arc<dyn File>,
    /// Its first byte, and the one after its last.
    pub(crate) bounds: (u32, u32),
    /// Where the next segment begins.
    pub(crate) next_base: u64,
}

/// What is to be done next.
pub(crate) enum Step<'a> {
    Chunk(Task<'a>),
    /// All chunks of segment `at`, so many, were given out, the last of them before chunk `number`.
    SourceEnd {
        number: usize,
        at: usize,
        parts: usize,
    },
    /// What would be chunk `number` can't be had.
    Failed {
        number: usize,
        halt: Halt,
    },
    /// Nothing is left.
    Done,
}

/// Gives out the chunks of a pass, one after the other.
pub(crate) struct Feed {
    /// Segments that are not begun.
    sources: usize,
    /// The one at hand.
    at_hand: Option<AtHand>,
    number: usize,
}

struct AtHand {
    at: usize,
    file: Arc<dyn File>,
    /// Where its chunks that are left begin and end, ascending.
    cuts: Vec<u32>,
    /// Chunks given out.
    place: usize,
}

impl Feed {
    /// Of the first `sources` segments of a log.
    pub(crate) fn new(sources: usize) -> Self {
        Self { sources, at_hand: None, number: 0 }
    }

    /// The next step. After a failure there is none.
    pub(crate) fn next<'a>(&mut self, pass: &'a Pass<'a>) -> Step<'a> {
        let mut hand = match self.at_hand.take().map_or_else(|| self.begin(pass), |hand| Ok(Some(hand))) {
            Ok(Some(hand)) => hand,
            Ok(None) => return Step::Done,
            Err(error) => {
                self.sources = 0;
                return Step::Failed { number: self.number, halt: error.into() };
            }
        };
        let [.., start, end] = hand.cuts[..] else {
            return Step::SourceEnd { number: self.number, at: hand.at, parts: hand.place };
        };
        hand.cuts.pop();
        let task = Task {
            number: self.number,
            place: hand.place,
            at: hand.at,
            source: &*pass.log.sources[hand.at],
            file: Arc::clone(&hand.file),
            bounds: (start, end),
            next_base: pass.log.next_base(hand.at),
        };
        self.number += 1;
        hand.place += 1;
        self.at_hand = Some(hand);
        Step::Chunk(task)
    }

    /// Takes up the next segment, if there is one.
    fn begin(&mut self, pass: &Pass<'_>) -> Result<Option<AtHand>> {
        let Some(at) = self.sources.checked_sub(1) else { return Ok(None) };
        self.sources = at;
        let source = &*pass.log.sources[at];
        let file = source.file()?;
        let cuts = pass.cutter.cut(source, &*file)?;
        Ok(Some(AtHand { at, file, cuts, place: 0 }))
    }
}
