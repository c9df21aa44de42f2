//! CRC-32C, the checksum of v2 batches, by what is fastest for the size and the processor at hand (`benches/benches/crc.rs`):
//!
//! - small batches, of which logs of committed offsets are made: a loop of the processor's own instruction;
//! - larger ones, where the processor has AVX-512: crc-fast;
//! - larger ones elsewhere: crc32c, which works on three streams at a time.
#![allow(unsafe_code)] // one exception: an instruction that not every processor has

/// Below this many bytes one stream is faster than three and what it takes to join them.
#[cfg(target_arch = "x86_64")]
const SMALL_BYTES: usize = 400;

/// CRC-32C of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < SMALL_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the one thing that the function asks for is the feature, which has just been found.
        return unsafe { one_stream(bytes) };
    }
    large(bytes)
}

#[inline(never)]
fn large(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("vpclmulqdq") {
        return crc_fast::crc32_iscsi(bytes);
    }
    crc32c::crc32c(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn one_stream(bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    let word = |crc, word: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    // Four words a step: the loop around a single one is longer than what is in it.
    let (steps, rest) = bytes.as_chunks::<32>();
    let crc = steps.iter().fold(u64::from(u32::MAX), |crc, step| step.as_chunks::<8>().0.iter().fold(crc, word));
    let (words, rest) = rest.as_chunks::<8>();
    let crc = words.iter().fold(crc, word);
    let (halves, rest) = rest.as_chunks::<4>();
    let crc = halves.iter().fold(crc as u32, |crc, half| _mm_crc32_u32(crc, u32::from_le_bytes(*half)));
    !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_checksum_of_the_standard_at_every_size_and_place() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let bytes: Vec<u8> = (0..1200_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                let bytes = &bytes[start..end];
                let expected = crc32c::crc32c(bytes);
                assert_eq!((crc32c(bytes), large(bytes)), (expected, expected), "{start}..{end}");
            }
        }
    }
}
