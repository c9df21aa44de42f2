//! Short arrays of entries, many of them in a piece of memory. Pieces have one size, so that growing copies nothing; the
//! first alone begins small.

use super::entry::Entry;

/// Entries of a piece: 384 KiB.
const PIECE_LEN: usize = 1 << 14;
const PIECE_BITS: u32 = PIECE_LEN.trailing_zeros();
const FIRST_LEN: usize = 1 << 6;
/// The longest array.
pub(super) const RUN_LEN_MAX: usize = 64;
/// No array.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Arrays of up to [`RUN_LEN_MAX`] entries, by the number of their first one.
pub(super) struct Runs {
    pieces: Vec<Vec<Entry>>,
    /// Entries of the last piece that were given out at some time.
    used: usize,
    /// For each length, the first of the arrays that were given back; each names the next in its first word.
    free: [u32; RUN_LEN_MAX + 1],
}

impl Default for Runs {
    fn default() -> Self {
        Self { pieces: Vec::new(), used: 0, free: [NOWHERE; RUN_LEN_MAX + 1] }
    }
}

impl Runs {
    /// An array of `len` entries, which hold whatever was there before.
    pub(super) fn take(&mut self, len: usize) -> u32 {
        let free = self.free[len];
        if free != NOWHERE {
            // A number of 32 bits was put there.
            self.free[len] = self.run(free, 1)[0][0] as u32;
            return free;
        }
        let room = self.pieces.last().map_or(0, Vec::len) - self.used;
        if room < len {
            self.grow(len);
        }
        let start = (self.pieces.len() - 1) * PIECE_LEN + self.used;
        self.used += len;
        // invariant: 2^32 entries take 96 GiB, of which an array of 64 cannot be the last.
        u32::try_from(start).ok().filter(|start| *start != NOWHERE).expect("fewer than 2^32 entries")
    }

    fn grow(&mut self, len: usize) {
        match &mut self.pieces[..] {
            [first] if first.len() < PIECE_LEN => {
                let longer = (first.len() * 2).max(self.used + len).min(PIECE_LEN);
                first.resize(longer, Entry::default());
                if longer - self.used >= len {
                    return;
                }
            }
            [] => {
                self.pieces.push(vec![Entry::default(); FIRST_LEN]);
                self.used = 0;
                return;
            }
            _ => {}
        }
        self.pieces.push(vec![Entry::default(); PIECE_LEN]);
        self.used = 0;
    }

    /// Gives an array back.
    pub(super) fn give_back(&mut self, start: u32, len: usize) {
        let next = self.free[len];
        self.run_mut(start, 1)[0][0] = next.into();
        self.free[len] = start;
    }

    /// One entry of an array.
    #[inline]
    pub(super) fn entry(&self, at: u32) -> &Entry {
        &self.pieces[(at >> PIECE_BITS) as usize][at as usize % PIECE_LEN]
    }

    /// One entry of an array.
    #[inline]
    pub(super) fn entry_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.pieces[(at >> PIECE_BITS) as usize][at as usize % PIECE_LEN]
    }

    /// An array. It lies in one piece.
    #[inline]
    pub(super) fn run(&self, start: u32, len: usize) -> &[Entry] {
        &self.pieces[(start >> PIECE_BITS) as usize][start as usize % PIECE_LEN..][..len]
    }

    /// An array. It lies in one piece.
    #[inline]
    pub(super) fn run_mut(&mut self, start: u32, len: usize) -> &mut [Entry] {
        &mut self.pieces[(start >> PIECE_BITS) as usize][start as usize % PIECE_LEN..][..len]
    }

    /// Entries given out at some time, whether they were given back or not.
    pub(super) fn len(&self) -> usize {
        self.pieces.len().saturating_sub(1) * PIECE_LEN + self.used
    }

    /// Which piece an array lies in.
    pub(super) fn piece_of(start: u32) -> usize {
        (start >> PIECE_BITS) as usize
    }

    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Frees the memory of a piece, which nobody may look into any more.
    pub(super) fn drop_piece(&mut self, piece: usize) {
        self.pieces[piece] = Vec::new();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let entries: usize = self.pieces.iter().map(Vec::capacity).sum();
        entries * size_of::<Entry>() + self.pieces.capacity() * size_of::<Vec<Entry>>()
    }
}
