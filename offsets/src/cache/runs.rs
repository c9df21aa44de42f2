//! Short arrays of entries, many of them in a piece of memory. Pieces have one size, so that growing copies nothing; the
//! first alone begins small.

use keeplog_engine::prefetch::prefetch;

use super::entry::Entry;
use super::piece::Piece;

/// Entries of a piece: 6 MiB, three large pages.
const PIECE_LEN: usize = 1 << 18;
const PIECE_BITS: u32 = PIECE_LEN.trailing_zeros();
const FIRST_LEN: usize = 1 << 6;
/// From so many pieces on one more is taken in large pages: of one that holds little, little is lost then.
const SMALL_PIECES: usize = 3;
/// The longest array.
pub(super) const RUN_LEN_MAX: usize = 64;
/// No array.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Arrays of up to [`RUN_LEN_MAX`] entries, by the number of their first one.
pub(super) struct Runs {
    pieces: Vec<Piece>,
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
        let room = self.pieces.last().map_or(0, Piece::len) - self.used;
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
                let mut grown = Piece::small(longer);
                grown.entries_mut()[..self.used].copy_from_slice(&first.entries()[..self.used]);
                *first = grown;
                if longer - self.used >= len {
                    return;
                }
            }
            [] => {
                self.pieces.push(Piece::small(FIRST_LEN));
                self.used = 0;
                return;
            }
            _ => {}
        }
        if let Some(last) = self.pieces.last() {
            last.use_large_pages();
        }
        let is_one_of_many = self.pieces.len() >= SMALL_PIECES;
        self.pieces.push(if is_one_of_many { Piece::large(PIECE_LEN) } else { Piece::small(PIECE_LEN) });
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
        self.pieces[(at >> PIECE_BITS) as usize].entry(at as usize % PIECE_LEN)
    }

    /// Begins to load an entry. It may lie across two cache lines.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        if let Some(piece) = self.pieces.get((at >> PIECE_BITS) as usize) {
            let address = piece.address() + at as usize % PIECE_LEN * size_of::<Entry>();
            prefetch(address);
            prefetch(address + size_of::<Entry>() - 1);
        }
    }

    /// One entry of an array.
    #[inline]
    pub(super) fn entry_mut(&mut self, at: u32) -> &mut Entry {
        self.pieces[(at >> PIECE_BITS) as usize].entry_mut(at as usize % PIECE_LEN)
    }

    /// An array. It lies in one piece.
    #[inline]
    pub(super) fn run(&self, start: u32, len: usize) -> &[Entry] {
        run_of(&self.pieces[(start >> PIECE_BITS) as usize], start, len)
    }

    /// An array. It lies in one piece.
    #[inline]
    pub(super) fn run_mut(&mut self, start: u32, len: usize) -> &mut [Entry] {
        &mut self.pieces[(start >> PIECE_BITS) as usize].entries_mut()[start as usize % PIECE_LEN..][..len]
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

    /// The pieces one by one, each of which is freed before the next: see [`run_of`].
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.pieces.into_iter()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let Some((last, others)) = self.pieces.split_last() else { return 0 };
        let full: usize = others.iter().map(|piece| piece.memory_bytes(piece.len())).sum();
        full + last.memory_bytes(self.used) + self.pieces.capacity() * size_of::<Piece>()
    }
}

/// An array in its piece.
#[inline]
pub(super) fn run_of(piece: &Piece, start: u32, len: usize) -> &[Entry] {
    &piece.entries()[start as usize % PIECE_LEN..][..len]
}
