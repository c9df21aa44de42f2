//! One flat table of tags.

use std::io;

use keeplog_engine::prefetch::prefetch;
use memmap2::{Advice, MmapMut};

use super::{KEYS_PER_BUCKET, Place, cpu};

/// Words of a bucket: one cache line.
pub(super) const BUCKET_WORDS: usize = 8;
/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 64;

/// What came of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Find {
    /// It is there.
    Here,
    /// It is not there, and this word is where it would be.
    Free(usize),
    /// It is not there, and every word of the table is taken.
    Nowhere,
}

/// The size, and the alignment, of a large page.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// The bucket, of so many, where a search begins. Multiplying and shifting maps the hash evenly onto all of them, whatever
/// their number.
#[inline]
fn home(place: Place, buckets: u32) -> u32 {
    ((u64::from(place.high) * u64::from(buckets)) >> 32) as u32
}

/// Where a table is, for those who only ask for its memory ahead of a search that somebody else makes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shelf {
    address: usize,
    buckets: u32,
}

impl Shelf {
    /// Begins to load what a search for `place` will look at. That the table may be gone by now does no harm.
    #[inline]
    pub(crate) fn prefetch(self, place: Place) {
        prefetch(self.address.wrapping_add(home(place, self.buckets) as usize * BUCKET_BYTES));
    }
}

/// Tags in buckets, as many as the table was made for.
#[derive(Debug)]
pub(super) struct Table {
    memory: MmapMut,
    /// Where in `memory` it starts: at a large page, if it is larger than one, and in any case at a cache line.
    start: usize,
    buckets: u32,
    len: u64,
    capacity: u64,
}

impl Table {
    /// A table for `keys` keys, with all its memory.
    pub(super) fn new(keys: u64) -> io::Result<Self> {
        let buckets = keys.div_ceil(KEYS_PER_BUCKET).max(1);
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let buckets = u32::try_from(buckets).map_err(|_| too_large())?;
        let bytes = usize::try_from(u64::from(buckets) * BUCKET_BYTES as u64).map_err(|_| too_large())?;
        if bytes < LARGE_PAGE_BYTES {
            return Ok(Self { memory: MmapMut::map_anon(bytes)?, start: 0, buckets, len: 0, capacity: keys });
        }
        // Every search goes to another page: with large ones the processor finds most of them itself. Where the system has
        // none, small ones do. It gives large ones only where a whole one fits, so some addresses are left unused on both
        // sides; they take no memory.
        let room = bytes.checked_next_multiple_of(LARGE_PAGE_BYTES).and_then(|room| room.checked_add(LARGE_PAGE_BYTES));
        let memory = MmapMut::map_anon(room.ok_or_else(too_large)?)?;
        #[cfg(target_os = "linux")]
        let _ = memory.advise(Advice::HugePage);
        let start = memory.as_ptr().align_offset(LARGE_PAGE_BYTES);
        Ok(Self { memory, start, buckets, len: 0, capacity: keys })
    }

    pub(super) fn buckets(&self) -> u64 {
        u64::from(self.buckets)
    }

    /// Whether it holds as many keys as it was made for.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    #[inline]
    pub(super) fn find(&self, place: Place) -> Find {
        let mut bucket = self.home(place);
        for _ in 0..self.buckets {
            let words = self.words(bucket);
            if cpu::equal(words, place.tag) != 0 {
                return Find::Here;
            }
            // Words are taken from the left: the first free one is where this bucket goes on.
            let free = cpu::equal(words, 0);
            if free != 0 {
                return Find::Free(bucket as usize * BUCKET_WORDS + free.trailing_zeros() as usize);
            }
            bucket = if bucket + 1 == self.buckets { 0 } else { bucket + 1 };
        }
        Find::Nowhere
    }

    #[inline]
    pub(super) fn contains(&self, place: Place) -> bool {
        self.find(place) == Find::Here
    }

    /// Puts the key at `place` into the word that [`Table::find`] found for it.
    #[inline]
    pub(super) fn put(&mut self, at: usize, place: Place) {
        let start = self.start;
        self.memory[start..].as_chunks_mut().0[at] = place.tag.to_ne_bytes();
        self.len += 1;
    }

    /// Puts a key into it that is not there; there must be room.
    pub(super) fn add(&mut self, place: Place) {
        if let Find::Free(at) = self.find(place) {
            self.put(at, place);
        }
    }

    /// Its words, the free ones among them 0.
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        self.memory[self.start..].as_chunks().0.iter().take(self.words_len()).map(|word| u64::from_ne_bytes(*word))
    }

    pub(super) fn words_len(&self) -> usize {
        self.buckets as usize * BUCKET_WORDS
    }

    #[inline]
    pub(super) fn prefetch(&self, place: Place) {
        self.shelf().prefetch(place);
    }

    #[inline]
    pub(super) fn shelf(&self) -> Shelf {
        Shelf { address: self.memory[self.start..].as_ptr().addr(), buckets: self.buckets }
    }

    #[inline]
    pub(super) fn home(&self, place: Place) -> u32 {
        home(place, self.buckets)
    }

    /// The words of a bucket.
    #[inline]
    pub(super) fn words(&self, bucket: u32) -> &[[u8; 8]; BUCKET_WORDS] {
        &self.memory[self.start..].as_chunks().0.as_chunks().0[bucket as usize]
    }
}
