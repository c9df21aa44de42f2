//! Memory asked for before it is needed: the one thing about caches that safe Rust has no words for.
#![allow(unsafe_code)] // one exception: an instruction that cannot be used wrongly

/// Begins to load the cache line at `address`, so that many waits for memory overlap. Changes nothing that a program can
/// see, whatever is there.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is part of every processor of this architecture, reads nothing into the program, and does not
    // fault whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) }
}

/// Where stable Rust has no such instruction, whoever needs the memory waits for it.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch(_: usize) {}
