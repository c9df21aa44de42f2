//! Which chunk comes next: the groups from the newest to the oldest, their segments and the chunks of these likewise.

use std::ops::Range;
use std::sync::Arc;

use keeplog_engine::Result;
use keeplog_engine::storage::File;

use crate::pass::{Halt, Pass};
use crate::source::Source;

/// One chunk to be worked on.
pub(crate) struct Task<'a> {
    /// How many come before it: when its turn is.
    pub(crate) number: usize,
    /// Its group, the oldest is 0.
    pub(crate) group: usize,
    /// How many of its group come before it.
    pub(crate) place: usize,
    /// The place of its segment in the log.
    pub(crate) at: usize,
    pub(crate) source: &'a dyn Source,
    pub(crate) file: Arc<dyn File>,
    /// Its first byte, and the one after its last.
    pub(crate) bounds: (u32, u32),
    /// Where the next segment begins.
    pub(crate) next_base: u64,
    /// Whether it is the newest of its segment.
    pub(crate) is_first_of_source: bool,
}

/// What is to be done next.
pub(crate) enum Step<'a> {
    Chunk(Task<'a>),
    /// All chunks of a group, so many, were given out, the last of them before chunk `number`.
    GroupEnd {
        number: usize,
        group: usize,
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
    /// Groups that are not begun, the newest last.
    groups: Vec<Range<usize>>,
    /// Segments of the group at hand that are not begun.
    sources: Range<usize>,
    is_in_group: bool,
    /// The segment at hand, and the ends of its chunks that are left, ascending.
    file: Option<Arc<dyn File>>,
    cuts: Vec<u32>,
    is_first_of_source: bool,
    number: usize,
    place: usize,
}

impl Feed {
    /// Of `groups`, ascending.
    pub(crate) fn new(groups: Vec<Range<usize>>) -> Self {
        Self { groups, sources: 0..0, is_in_group: false, file: None, cuts: Vec::new(), is_first_of_source: false, number: 0, place: 0 }
    }

    /// The next step. After a failure there is none.
    pub(crate) fn next<'a>(&mut self, pass: &'a Pass<'a>) -> Step<'a> {
        loop {
            if let [.., start, end] = self.cuts[..] {
                self.cuts.pop();
                return Step::Chunk(self.task(pass, (start, end)));
            }
            if let Some(at) = self.sources.next_back() {
                match self.begin_source(pass, at) {
                    Ok(()) => continue,
                    Err(error) => {
                        *self = Self { number: self.number, ..Self::new(Vec::new()) };
                        return Step::Failed { number: self.number, halt: error.into() };
                    }
                }
            }
            if std::mem::take(&mut self.is_in_group) {
                return Step::GroupEnd { number: self.number, group: self.groups.len(), parts: std::mem::take(&mut self.place) };
            }
            let Some(group) = self.groups.pop() else { return Step::Done };
            self.sources = group;
            self.is_in_group = true;
        }
    }

    fn begin_source(&mut self, pass: &Pass<'_>, at: usize) -> Result<()> {
        let source = &*pass.log.sources[at];
        let file = source.file()?;
        self.cuts = pass.cutter.cut(source, &*file)?;
        self.file = Some(file);
        self.is_first_of_source = true;
        Ok(())
    }

    fn task<'a>(&mut self, pass: &'a Pass<'a>, bounds: (u32, u32)) -> Task<'a> {
        let at = self.sources.end;
        // invariant: a segment's file is opened before its chunks are cut.
        let file = Arc::clone(self.file.as_ref().expect("the segment at hand is open"));
        let task = Task {
            number: self.number,
            group: self.groups.len(),
            place: self.place,
            at,
            source: &*pass.log.sources[at],
            file,
            bounds,
            next_base: pass.log.next_base(at),
            is_first_of_source: std::mem::take(&mut self.is_first_of_source),
        };
        self.number += 1;
        self.place += 1;
        task
    }
}
