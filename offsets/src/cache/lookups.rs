//! Many blocks looked for at once. Each look-up is three waits for memory that follow each other: for the table, the header
//! and the entry. One step of all of them at a time, the waits of each step overlap.

use super::block::{NONE, Place};
use super::blocks::Blocks;
use super::names::NameId;

/// Places to look for, and then the blocks there.
pub(crate) struct Lookups {
    places: [Place; Lookups::MAX],
    bits: [u32; Lookups::MAX],
    blocks: [u32; Lookups::MAX],
    len: usize,
}

impl Default for Lookups {
    fn default() -> Self {
        let nowhere = Place { group: NONE, topic: NONE, span: 0 };
        Self { places: [nowhere; Self::MAX], bits: [0; Self::MAX], blocks: [NONE; Self::MAX], len: 0 }
    }
}

impl Lookups {
    /// There is room for so many.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, group: NameId, topic: NameId, partition: i32) {
        self.places[self.len] = Place::of(group, topic, partition);
        self.bits[self.len] = Place::bit(partition);
        self.len += 1;
    }

    /// The blocks that were found, `NONE` where there is none, and which of their partitions it is.
    pub(super) fn found(&self) -> impl Iterator<Item = (u32, u32)> {
        self.blocks[..self.len].iter().copied().zip(self.bits[..self.len].iter().copied())
    }

    /// The block that was found for the last place, and which of its partitions it is.
    #[inline]
    pub(crate) fn pop(&mut self) -> (u32, u32) {
        self.len -= 1;
        (self.blocks[self.len], self.bits[self.len])
    }
}

impl Blocks {
    /// Finds the blocks of all places; makes those that there are none of. What will be put there is expected soon.
    pub(crate) fn find_or_make_all(&mut self, lookups: &mut Lookups) {
        self.guess_all(lookups);
        let Lookups { places, bits, blocks, len } = lookups;
        for ((block, place), bit) in blocks.iter_mut().zip(places).zip(bits).take(*len) {
            if !self.is_at(*block, *place) {
                *block = self.find_or_make(*place);
            }
            self.prefetch_room(*block, *bit);
        }
    }

    /// Finds the blocks of all places, as far as there are any. What is there is expected soon.
    pub(super) fn find_all(&self, lookups: &mut Lookups) {
        self.guess_all(lookups);
        let Lookups { places, bits, blocks, len } = lookups;
        for ((block, place), bit) in blocks.iter_mut().zip(places).zip(bits).take(*len) {
            if !self.is_at(*block, *place) {
                *block = self.find(*place).unwrap_or(NONE);
            }
            if *block != NONE {
                self.prefetch_entry(*block, *bit);
            }
        }
    }

    fn guess_all(&self, lookups: &mut Lookups) {
        for (block, place) in lookups.blocks.iter_mut().zip(lookups.places).take(lookups.len) {
            *block = self.guess(place);
            self.headers.prefetch(*block);
        }
    }
}
