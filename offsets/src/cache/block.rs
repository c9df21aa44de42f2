//! The header of a block: 64 neighbouring partitions of a topic, as far as a group has committed for them.

use keeplog_engine::prefetch::prefetch;

use super::names::NameId;
use super::runs::NOWHERE;

/// No block, and no name.
pub(crate) const NONE: u32 = u32::MAX;

/// Partitions of a block.
pub(super) const SPAN: i32 = 64;
const SHAPE_BITS: u32 = 6;

/// Which block: a group, a topic, and which of its spans of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) group: NameId,
    pub(crate) topic: NameId,
    /// The partition divided by [`SPAN`], rounded down: of negative partitions, which other writers may have left, it is
    /// negative.
    pub(crate) span: i32,
}

impl Place {
    /// The block of `partition`.
    #[inline]
    pub(crate) fn of(group: NameId, topic: NameId, partition: i32) -> Self {
        Self { group, topic, span: partition.div_euclid(SPAN) }
    }

    /// Which partition of its block `partition` is.
    #[inline]
    pub(crate) fn bit(partition: i32) -> u32 {
        partition.rem_euclid(SPAN).unsigned_abs()
    }
}

/// How the entries of a block lie in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One after the other, without gaps, by partition.
    Packed(usize),
    /// Each at the place of its partition.
    Dense(usize),
}

/// Lengths of packed arrays.
const PACKED: [usize; 12] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];
const DENSE_FROM: u32 = 16;

impl Shape {
    /// The shortest packed array for `count` entries; of more than fit one, the dense one of all.
    pub(super) fn packed(count: usize) -> Self {
        PACKED.iter().find(|len| **len >= count).map_or(Self::Dense(SPAN as usize), |len| Self::Packed(*len))
    }

    /// The shortest dense array for `width` partitions from the first.
    pub(super) fn dense(width: usize) -> Self {
        Self::Dense(width.next_multiple_of(2))
    }

    /// Entries of the array.
    #[inline]
    pub(super) fn len(self) -> usize {
        match self {
            Self::Packed(len) | Self::Dense(len) => len,
        }
    }

    fn code(self) -> u32 {
        match self {
            Self::Packed(len) => PACKED.iter().position(|packed| *packed == len).unwrap_or_default() as u32,
            Self::Dense(len) => DENSE_FROM + len as u32 / 2 - 1,
        }
    }

    #[inline]
    fn of_code(code: u32) -> Self {
        if code >= DENSE_FROM { Self::Dense((code - DENSE_FROM + 1) as usize * 2) } else { Self::Packed(PACKED[code as usize]) }
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// A bit for each partition that has an entry.
    pub(super) present: u64,
    pub(super) group: NameId,
    pub(super) topic: NameId,
    /// Neighbours among the blocks of the group. Of a header not in use, the next such one.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Where its array starts.
    pub(super) start: u32,
    /// The span, and in the low bits the shape.
    layout: i32,
}

const _: () = assert!(size_of::<Block>() == 32);

impl Block {
    /// A block without entries.
    pub(super) fn new(place: Place, next: u32) -> Self {
        let Place { group, topic, span } = place;
        Self { present: 0, group, topic, next, previous: NONE, start: NOWHERE, layout: span << SHAPE_BITS }
    }

    /// A header that is not in use.
    pub(super) fn unused(next: u32) -> Self {
        Self::new(Place { group: NONE, topic: NONE, span: 0 }, next)
    }

    pub(super) fn is_used(&self) -> bool {
        self.group != NONE
    }

    #[inline]
    pub(super) fn place(&self) -> Place {
        Place { group: self.group, topic: self.topic, span: self.span() }
    }

    #[inline]
    pub(super) fn span(&self) -> i32 {
        self.layout >> SHAPE_BITS
    }

    #[inline]
    pub(super) fn partition(&self, bit: u32) -> i32 {
        self.span() * SPAN + bit.cast_signed()
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        Shape::of_code((self.layout & ((1 << SHAPE_BITS) - 1)).cast_unsigned())
    }

    /// Entries of its array, if that is dense; else 0.
    #[inline]
    pub(super) fn dense_len(&self) -> u32 {
        let code = (self.layout & ((1 << SHAPE_BITS) - 1)).cast_unsigned();
        code.saturating_sub(DENSE_FROM - 1) * 2
    }

    pub(super) fn set_array(&mut self, start: u32, shape: Shape) {
        self.start = start;
        self.layout = (self.span() << SHAPE_BITS) | shape.code().cast_signed();
    }

    #[inline]
    pub(super) fn has(&self, bit: u32) -> bool {
        self.present >> bit & 1 == 1
    }

    pub(super) fn count(&self) -> usize {
        self.present.count_ones() as usize
    }

    /// Entries of lower partitions.
    #[inline]
    pub(super) fn rank(&self, bit: u32) -> usize {
        (self.present & ((1 << bit) - 1)).count_ones() as usize
    }

    /// Where in the array the entry of a partition is, or would be.
    #[inline]
    pub(super) fn index(&self, bit: u32) -> usize {
        match self.shape() {
            Shape::Packed(_) => self.rank(bit),
            Shape::Dense(_) => bit as usize,
        }
    }

    /// One past the highest partition with an entry.
    pub(super) fn width(&self) -> usize {
        (u64::BITS - self.present.leading_zeros()) as usize
    }
}

/// Headers by number, in pieces of one size, so that growing copies nothing.
#[derive(Default)]
pub(super) struct Headers {
    pieces: Vec<Vec<Block>>,
}

const PIECE_LEN: usize = 1 << 13;
const PIECE_BITS: u32 = PIECE_LEN.trailing_zeros();

impl Headers {
    pub(super) fn len(&self) -> usize {
        self.pieces.len().saturating_sub(1) * PIECE_LEN + self.pieces.last().map_or(0, Vec::len)
    }

    pub(super) fn push(&mut self, block: Block) -> u32 {
        // invariant: 2^32 headers take 128 GiB.
        let id = u32::try_from(self.len()).ok().filter(|id| *id != NONE).expect("fewer than 2^32 - 1 blocks");
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE_LEN => last.push(block),
            Some(_) => {
                let mut piece = Vec::with_capacity(PIECE_LEN);
                piece.push(block);
                self.pieces.push(piece);
            }
            None => self.pieces.push(vec![block]),
        }
        id
    }

    /// Takes off the last one.
    pub(super) fn pop(&mut self) {
        if let Some(last) = self.pieces.last_mut() {
            last.pop();
            if last.is_empty() {
                self.pieces.pop();
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &Block {
        &self.pieces[(id >> PIECE_BITS) as usize][id as usize % PIECE_LEN]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> &mut Block {
        &mut self.pieces[(id >> PIECE_BITS) as usize][id as usize % PIECE_LEN]
    }

    /// Begins to load one, if there is one with this number.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        if let Some(piece) = self.pieces.get((id >> PIECE_BITS) as usize) {
            prefetch(piece.as_ptr().addr() + id as usize % PIECE_LEN * size_of::<Block>());
        }
    }

    /// All of them, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.pieces.iter().flatten()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let headers: usize = self.pieces.iter().map(Vec::capacity).sum();
        headers * size_of::<Block>() + self.pieces.capacity() * size_of::<Vec<Block>>()
    }
}
