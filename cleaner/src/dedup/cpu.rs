//! What safe Rust has no words for: many comparisons at once. The only unsafe code of this crate.
#![allow(unsafe_code)]

use super::table::BUCKET_WORDS;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm_and_si128, _mm_castsi128_pd, _mm_cmpeq_epi32, _mm_movemask_pd, _mm_set_epi64x, _mm_set1_epi64x, _mm_shuffle_epi32,
};

/// One bit for each of `words` that is `wanted`, the first the lowest. Which of them it is that is looked for nobody can
/// foresee: a branch for each would be taken wrongly at every search.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn equal(words: &[[u8; 8]; BUCKET_WORDS], wanted: u64) -> u32 {
    let pairs = words.as_chunks::<2>().0;
    // SAFETY: these are SSE2, which every processor of this architecture has; they work on values, not on memory.
    unsafe {
        let wanted = _mm_set1_epi64x(wanted.cast_signed());
        (0..BUCKET_WORDS / 2).fold(0, |equal, i| {
            let [low, high] = pairs[i].map(i64::from_ne_bytes);
            // It compares 32 bits: a word is equal if both halves are.
            let halves = _mm_cmpeq_epi32(_mm_set_epi64x(high, low), wanted);
            let both = _mm_and_si128(halves, _mm_shuffle_epi32::<0b10_11_00_01>(halves));
            equal | _mm_movemask_pd(_mm_castsi128_pd(both)).cast_unsigned() << (2 * i)
        })
    }
}

/// One bit for each of `words` that is `wanted`, the first the lowest.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn equal(words: &[[u8; 8]; BUCKET_WORDS], wanted: u64) -> u32 {
    words.iter().enumerate().fold(0, |equal, (i, word)| equal | u32::from(u64::from_ne_bytes(*word) == wanted) << i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_by_every_bit() {
        for place in 0..BUCKET_WORDS {
            for bit in 0..64 {
                let mut words = [[0xff; 8]; BUCKET_WORDS];
                words[place] = (1_u64 << bit).to_ne_bytes();
                assert_eq!(equal(&words, 1 << bit), 1 << place);
                assert_eq!(equal(&words, u64::MAX), 0xff ^ (1 << place));
                assert_eq!(equal(&words, 0), 0);
                assert_eq!(equal(&words, u64::MAX ^ (1 << bit)), 0);
            }
        }
        assert_eq!(equal(&[[0; 8]; BUCKET_WORDS], 0), 0xff);
    }
}
