//! Room that removed and moved entries have left is given back.

use super::block::{Block, NONE, Shape};
use super::blocks::{Blocks, bits};
use super::runs::{Runs, run_of};

/// Below this it is not worth a look.
const ENTRIES_MIN: usize = 1 << 10;
/// More than this is unused: compact.
const UNUSED_PERCENT: usize = 15;

impl Blocks {
    /// Room for entries that holds none.
    pub(super) fn unused_entries(&self) -> usize {
        self.runs.len() - self.len
    }

    /// Whether more than 15 % of the room is unused, and noticeably more than the last compaction had to leave: so what a
    /// compaction costs is spread over many changes.
    pub(super) fn is_loose(&self) -> bool {
        let (room, unused) = (self.runs.len(), self.unused_entries());
        let entries = room >= ENTRIES_MIN && unused * 100 > room * UNUSED_PERCENT && unused > self.left_unused + self.left_unused / 2;
        let headers = self.headers.len();
        entries || (headers >= ENTRIES_MIN && self.unused_len * 100 > headers * UNUSED_PERCENT)
    }

    /// Moves everything together. Takes a copy of one piece of entries at a time.
    pub(super) fn compact(&mut self) {
        self.close_headers();
        self.close_runs();
        if self.table.capacity() > self.table.len() * 3 {
            self.rebuild_table(self.table.len());
        }
        self.left_unused = self.unused_entries();
        self.moves += 1;
    }

    /// Headers from the end fill those that are not in use.
    fn close_headers(&mut self) {
        let used = self.headers.len() - self.unused_len;
        let mut holes = (0..used as u32).filter(|id| !self.headers.get(*id).is_used()).collect::<Vec<_>>();
        while self.headers.len() > used {
            let last = self.headers.len() as u32 - 1;
            let block = *self.headers.get(last);
            if block.is_used()
                && let Some(hole) = holes.pop()
            {
                self.move_header(last, hole, block);
            }
            self.headers.pop();
        }
        (self.unused, self.unused_len) = (None, 0);
    }

    fn move_header(&mut self, from: u32, to: u32, block: Block) {
        *self.headers.get_mut(to) = block;
        let hash = self.hash_of(&block);
        if let Some(id) = self.table.find_mut(hash, |id| *id == from) {
            *id = to;
        }
        match block.previous {
            NONE => self.groups[block.group as usize] = to,
            previous => self.headers.get_mut(previous).next = to,
        }
        if block.next != NONE {
            self.headers.get_mut(block.next).previous = to;
        }
    }

    /// Every array anew, piece by piece, so that each can be freed before the next is looked at.
    fn close_runs(&mut self) {
        let mut by_piece = vec![Vec::new(); self.runs.pieces()];
        for (id, block) in (0_u32..).zip(self.headers.iter()).filter(|(_, block)| block.shape().len() > 0) {
            by_piece[Runs::piece_of(block.start)].push(id);
        }
        let old = std::mem::take(&mut self.runs);
        for (piece, ids) in old.into_pieces().zip(by_piece) {
            for id in ids {
                let block = *self.headers.get(id);
                let shape = fitting(&block);
                let mut closed = block;
                let start = self.runs.take(shape.len());
                closed.set_array(start, shape);
                let from = run_of(&piece, block.start, block.shape().len());
                let to = self.runs.run_mut(start, shape.len());
                bits(block.present).for_each(|bit| to[closed.index(bit)] = from[block.index(bit)]);
                *self.headers.get_mut(id) = closed;
            }
        }
    }
}

/// Dense, unless that would leave a fifth of the array empty.
pub(super) fn fitting(block: &Block) -> Shape {
    let (packed, dense) = (Shape::packed(block.count()), Shape::dense(block.width()));
    if block.count() > 4 && dense.len() * 4 <= packed.len() * 5 { dense } else { packed }
}
