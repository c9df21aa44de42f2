//! Memory for many entries. It comes from the system, and is not taken before it is written to.

use std::alloc::{Layout, handle_alloc_error};

#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::MmapMut;

use super::entry::Entry;

const PAGE_BYTES: usize = 4 << 10;
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// See above.
pub(super) struct Piece {
    memory: MmapMut,
    /// What is taken at a time.
    page_bytes: usize,
}

impl Piece {
    /// Room for `len` entries.
    pub(super) fn small(len: usize) -> Self {
        let bytes = len * size_of::<Entry>();
        // As with any memory that there is not.
        let memory = MmapMut::map_anon(bytes).unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; LARGE_PAGE_BYTES]>()));
        Self { memory, page_bytes: PAGE_BYTES }
    }

    /// The same in large pages, for one that is likely to be filled.
    pub(super) fn large(len: usize) -> Self {
        let mut piece = Self::small(len);
        piece.page_bytes = LARGE_PAGE_BYTES;
        piece.use_large_pages();
        piece
    }

    /// Lets the system put it in large pages where it has them, now that none of them would be for nothing: look-ups go to
    /// random places, and of these the processor finds most pages itself.
    pub(super) fn use_large_pages(&self) {
        #[cfg(target_os = "linux")]
        let _ = self.memory.advise(Advice::HugePage);
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len() / size_of::<Entry>()
    }

    #[inline]
    pub(super) fn entries(&self) -> &[Entry] {
        bytemuck::cast_slice(&self.memory)
    }

    #[inline]
    pub(super) fn entries_mut(&mut self) -> &mut [Entry] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }

    /// One entry: less to do than [`Piece::entries`], whose length has to be divided first.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> &Entry {
        bytemuck::from_bytes(&self.memory[at * size_of::<Entry>()..][..size_of::<Entry>()])
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, at: usize) -> &mut Entry {
        bytemuck::from_bytes_mut(&mut self.memory[at * size_of::<Entry>()..][..size_of::<Entry>()])
    }

    /// Where it begins.
    #[inline]
    pub(super) fn address(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    /// Bytes taken, if the first `used` entries have been written to.
    pub(super) fn memory_bytes(&self, used: usize) -> usize {
        (used * size_of::<Entry>()).min(self.memory.len()).next_multiple_of(self.page_bytes)
    }
}
