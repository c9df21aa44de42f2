//! The identity of a key during one pass: a 128-bit hash under a secret that nobody outside the pass knows.

use std::hash::{BuildHasher, RandomState};

use keeplog_engine::planted::{Defect, is_planted};

use xxhash_rust::xxh3::xxh3_128_with_secret;

/// The size that XXH3 itself uses; it takes 136 bytes or more.
const SECRET_BYTES: usize = 192;

/// Hashes the keys of one pass.
///
/// The secret is drawn anew for every pass, so that nobody can prepare keys that collide, and two keys that did
/// collide once do not do so again in the next pass.
#[derive(Clone)]
pub struct KeyHasher {
    secret: [u8; SECRET_BYTES],
}

impl KeyHasher {
    /// A hasher with a secret from the randomness that the standard library draws from the system.
    pub fn random() -> Self {
        let state = RandomState::new();
        Self::from_words(|i| state.hash_one(i))
    }

    /// The hasher of `seed`: for runs that must repeat exactly.
    pub fn from_seed(seed: u64) -> Self {
        let mut word = seed;
        Self::from_words(|_| {
            // SplitMix64: one bijective step and a mix per word.
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = word;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        })
    }

    fn from_words(mut next: impl FnMut(usize) -> u64) -> Self {
        let mut secret = [0; SECRET_BYTES];
        let (words, _) = secret.as_chunks_mut::<8>();
        for (i, word) in words.iter_mut().enumerate() {
            *word = next(i).to_le_bytes();
        }
        Self { secret }
    }

    /// The identity of `key` in this pass.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u128 {
        let hash = xxh3_128_with_secret(key, &self.secret);
        if is_planted(Defect::HashEightBits) { hash & 0xFF } else { hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn one_seed_one_hash_and_other_seeds_other_hashes() {
        let hash = KeyHasher::from_seed(7).hash(b"key");
        assert_eq!(KeyHasher::from_seed(7).hash(b"key"), hash);
        assert_ne!(KeyHasher::from_seed(8).hash(b"key"), hash);
        assert_ne!(KeyHasher::from_seed(7).hash(b"kez"), hash);
    }

    #[test]
    fn two_passes_draw_two_secrets() {
        assert_ne!(KeyHasher::random().secret, KeyHasher::random().secret);
        assert!(KeyHasher::random().secret.iter().collect::<HashSet<_>>().len() > 64);
    }

    /// A weak hash loses keys while everything else looks fine: every byte of either half must depend on every
    /// byte of keys of all the lengths that XXH3 treats differently.
    #[test]
    fn both_halves_spread_over_keys_of_every_length() {
        for secret in 0..8 {
            let hasher = KeyHasher::from_seed(secret);
            for length in [1, 3, 4, 8, 9, 16, 17, 64, 128, 129, 240, 241, 300] {
                let mut low = HashSet::new();
                let mut high = HashSet::new();
                let mut key = vec![0; length];
                for at in 0..length {
                    for byte in 1..=255 {
                        key[at] = byte;
                        let hash = hasher.hash(&key);
                        low.insert(hash as u64);
                        high.insert((hash >> 64) as u64);
                        key[at] = 0;
                    }
                }
                assert_eq!(low.len(), length * 255, "low half, length {length}");
                assert_eq!(high.len(), length * 255, "high half, length {length}");
            }
        }
    }
}
