//! The keys seen so far in one pass, newest first: a flat table of tags, all of its memory taken beforehand.
//!
//! A key is known by a 128-bit hash. The high half chooses a *bucket*, eight words of 8 bytes that fill one cache
//! line; the low half is the *tag* that stands in it, 0 meaning "free". A bucket that is full continues in the
//! next one. Nothing is ever removed, so a free word ends every search. At most [`KEYS_PER_BUCKET`] of 8 words
//! are used on average: 10.7 bytes a key.
//!
//! **Two keys that look alike.** Keys are not stored. A key is taken for a duplicate wrongly if its tag equals
//! that of another key in the buckets that it is searched in. Tags are 64 bits of a hash under a secret, so each
//! comparison with a foreign tag errs with probability 2^-64 (2^-63 for tags 0 and 1, which share a value). A
//! search compares with the tags of one bucket, and of the following ones while buckets are full: 3.2 on average
//! while a table fills, less than 9 at the end. So `n` different keys make fewer than `9 n` comparisons:
//! `9 * 5e7 / 2^64 = 2.4e-11` for a pass over 50 million keys, below the 1e-10 that a pass may risk, and linear
//! in `n`, not quadratic: for a key to be lost it must share the bucket as well. A test measures this with
//! shorter tags.

use std::ops::Range;

/// Words of a bucket: one cache line.
const BUCKET_WORDS: usize = 8;
/// Keys that a bucket takes on average when the table is at its capacity.
pub(crate) const KEYS_PER_BUCKET: u64 = 6;
/// Bytes of a bucket.
pub(crate) const BUCKET_BYTES: u64 = 64;
/// How many searches are begun before the first is finished, so that their cache misses overlap.
pub const SEARCHES_AT_ONCE: usize = 32;

/// A key's place in a [`DedupSet`]: where to look, and what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    tag: u64,
    bucket: u32,
}

/// The set holds as many keys as it was made for, and was given another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The set of keys seen so far.
#[derive(Debug)]
pub struct DedupSet {
    words: Vec<u64>,
    /// The part of `words` that starts at a cache line.
    used: Range<usize>,
    buckets: u32,
    len: u64,
    capacity: u64,
}

impl DedupSet {
    /// A set for at most `capacity` keys. Takes its memory now.
    pub fn with_capacity(capacity: u64) -> Self {
        // invariant: a table beyond 2^32 buckets is 256 GiB; the options refuse it long before.
        let buckets = u32::try_from(Self::buckets_for(capacity)).expect("the capacity of a dedup set is limited by the options");
        let words = vec![0; buckets as usize * BUCKET_WORDS + BUCKET_WORDS - 1];
        let start = words.as_ptr().align_offset(BUCKET_BYTES as usize).min(BUCKET_WORDS - 1);
        let used = start..start + buckets as usize * BUCKET_WORDS;
        Self { words, used, buckets, len: 0, capacity }
    }

    fn buckets_for(capacity: u64) -> u64 {
        capacity.div_ceil(KEYS_PER_BUCKET).max(1)
    }

    /// Keys that a set of at most this many bytes can take.
    pub(crate) fn capacity_of(bytes: u64) -> u64 {
        (bytes / BUCKET_BYTES).min(u64::from(u32::MAX)) * KEYS_PER_BUCKET
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.buckets) * BUCKET_BYTES
    }

    /// Keys in the set.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds as many keys as it was made for.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// Forgets all keys; keeps the memory.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }

    /// The number of buckets: all that [`Place::new`] must know of a set.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Adds the key at `place`; returns whether it is new, or [`Full`] if it is and the set holds its capacity.
    #[inline]
    pub fn insert(&mut self, place: Place) -> Result<bool, Full> {
        let mut bucket = place.bucket;
        let is_full = self.is_full();
        for _ in 0..self.buckets {
            let words = self.bucket_mut(bucket);
            if words.contains(&place.tag) {
                return Ok(false);
            }
            // Words are taken from the left: the first free one is where this bucket goes on.
            if let Some(free) = words.iter().position(|&word| word == 0) {
                if is_full {
                    return Err(Full);
                }
                words[free] = place.tag;
                self.len += 1;
                return Ok(true);
            }
            bucket = self.after(bucket);
        }
        Err(Full)
    }

    /// Whether the key at `place` is in the set.
    #[inline]
    pub fn contains(&self, place: Place) -> bool {
        let mut bucket = place.bucket;
        for _ in 0..self.buckets {
            let words = self.bucket(bucket);
            if words.contains(&place.tag) {
                return true;
            }
            if words[BUCKET_WORDS - 1] == 0 {
                return false;
            }
            bucket = self.after(bucket);
        }
        false
    }

    /// Begins to load the bucket of `place`; the returned word must be used by nobody but the optimizer.
    #[inline]
    pub fn touch(&self, place: Place) -> u64 {
        self.bucket(place.bucket)[0]
    }

    fn after(&self, bucket: u32) -> u32 {
        if bucket + 1 == self.buckets { 0 } else { bucket + 1 }
    }

    #[inline]
    fn bucket(&self, bucket: u32) -> &[u64; BUCKET_WORDS] {
        &self.words[self.used.clone()].as_chunks().0[bucket as usize]
    }

    #[inline]
    fn bucket_mut(&mut self, bucket: u32) -> &mut [u64; BUCKET_WORDS] {
        &mut self.words[self.used.clone()].as_chunks_mut().0[bucket as usize]
    }
}

impl Place {
    /// The place of a key's hash in a set of `buckets` buckets.
    #[inline]
    pub fn new(hash: u128, buckets: u32) -> Self {
        let high = (hash >> 64) as u64;
        // Multiplying and shifting maps the high half evenly onto 0..buckets, whatever their number.
        let bucket = ((u128::from(high) * u128::from(buckets)) >> 64) as u32;
        Self { tag: (hash as u64).max(1), bucket }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn place(set: &DedupSet, hash: u128) -> Place {
        Place::new(hash, set.buckets())
    }

    #[test]
    fn a_key_is_new_once() {
        let hasher = KeyHasher::from_seed(1);
        let mut set = DedupSet::with_capacity(1000);
        for i in 0..1000_u32 {
            let at = place(&set, hasher.hash(&i.to_be_bytes()));
            assert!(!set.contains(at));
            assert_eq!(set.insert(at), Ok(true));
            assert_eq!(set.insert(at), Ok(false));
            assert!(set.contains(at));
        }
        assert_eq!(set.len(), 1000);
        assert!(set.is_full());
        assert_eq!(set.insert(place(&set, hasher.hash(b"one more"))), Err(Full));
        set.clear();
        assert_eq!(set.len(), 0);
        assert!(!set.contains(place(&set, hasher.hash(&7_u32.to_be_bytes()))));
    }

    #[test]
    fn buckets_start_at_a_cache_line() {
        for capacity in [0, 1, 6, 7, 1000, 1 << 20] {
            let set = DedupSet::with_capacity(capacity);
            assert_eq!(std::ptr::from_ref(set.bucket(0)).addr() % 64, 0, "capacity {capacity}");
            assert_eq!(set.used.len(), set.buckets as usize * BUCKET_WORDS);
            assert!(DedupSet::capacity_of(set.bytes()) >= capacity);
            assert!(set.bytes() <= 64 + capacity * 64 / 6);
        }
    }

    /// B07: with every word taken, the search for a missing key visits each bucket once and ends.
    #[test]
    fn b07_a_search_in_a_completely_full_table_ends() {
        let mut set = DedupSet::with_capacity(60);
        let words = u64::from(set.buckets) * BUCKET_WORDS as u64;
        set.capacity = words;
        let hasher = KeyHasher::from_seed(2);
        let mut key = 0_u64;
        while set.len() < words {
            set.insert(place(&set, hasher.hash(&key.to_be_bytes()))).unwrap();
            key += 1;
        }
        assert!(set.words[set.used.clone()].iter().all(|&word| word != 0));
        for missing in key..key + 1000 {
            assert!(!set.contains(place(&set, hasher.hash(&missing.to_be_bytes()))));
        }
        for bucket in [0, set.buckets - 1] {
            assert!(!set.contains(Place { tag: u64::MAX, bucket }));
            assert_eq!(set.insert(Place { tag: u64::MAX, bucket }), Err(Full));
        }
    }

    #[test]
    fn the_zero_tag_is_a_key_like_any_other() {
        let mut set = DedupSet::with_capacity(10);
        let at = place(&set, 1_u128 << 127);
        assert!(!set.contains(at));
        assert_eq!(set.insert(at), Ok(true));
        assert_eq!(set.insert(at), Ok(false));
    }

    /// A23: the chance of a mix-up, measured. With tags of `bits` bits the keys taken for duplicates wrongly are
    /// as many as the arithmetic at the head of this file says, and each bit more halves them.
    #[test]
    fn a23_false_duplicates_are_as_rare_as_the_arithmetic_says() {
        const KEYS: u64 = 60_000;
        for bits in [12, 14, 16, 18] {
            let mut lost = 0;
            let mut set = DedupSet::with_capacity(KEYS);
            for secret in 0..4 {
                let hasher = KeyHasher::from_seed(secret);
                set.clear();
                for i in 0..KEYS {
                    let hash = hasher.hash(&i.to_be_bytes());
                    let shortened = (hash >> 64 << 64) | (hash & ((1 << bits) - 1));
                    lost += u64::from(!set.insert(place(&set, shortened)).unwrap());
                }
            }
            let chance = f64::from(bits).exp2().recip();
            let (expected, most) = (4.0 * KEYS as f64 * 3.2 * chance, 4.0 * KEYS as f64 * 9.0 * chance);
            let lost = lost as f64;
            assert!((lost - expected).abs() < 0.15 * expected + 4.0 * expected.sqrt(), "{bits} bits: {lost} lost, {expected:.1} expected");
            assert!(lost < most, "{bits} bits: {lost} lost, {most:.1} allowed");
        }
        let at_64_bits = 9.0 * 5e7 * (-64_f64).exp2();
        assert!(at_64_bits < 1e-10, "{at_64_bits:e}");
    }

    /// Buckets that the search for `place` looks into.
    fn probes(set: &DedupSet, place: Place) -> u64 {
        let mut bucket = place.bucket;
        for probes in 1..=u64::from(set.buckets) {
            let words = set.bucket(bucket);
            if words.contains(&place.tag) || words[BUCKET_WORDS - 1] == 0 {
                return probes;
            }
            bucket = set.after(bucket);
        }
        u64::from(set.buckets)
    }

    /// Adds all keys, and counts the buckets that this looks into.
    fn probes_of(keys: &[u64], hash: impl Fn(&[u8]) -> u128) -> u64 {
        let mut set = DedupSet::with_capacity(keys.len() as u64);
        let mut sum = 0;
        for key in keys {
            let at = place(&set, hash(&key.to_be_bytes()));
            sum += probes(&set, at);
            assert_eq!(set.insert(at), Ok(true));
        }
        sum
    }

    /// Keys that all fall into a 64th of the table under a hash without a secret are spread by one that nobody knows.
    #[test]
    fn keys_chosen_against_the_hash_cost_no_more_than_others() {
        let unseeded = |key: &[u8]| xxhash_rust::xxh3::xxh3_128(key);
        let crafted: Vec<u64> = (0..).filter(|key: &u64| unseeded(&key.to_be_bytes()) >> 122 == 0).take(200_000).collect();
        let others: Vec<u64> = (0..200_000).collect();
        for _ in 0..2 {
            let hasher = KeyHasher::random();
            let [chosen, usual] = [&crafted, &others].map(|keys| probes_of(keys, |key| hasher.hash(key)));
            assert!(chosen * 10 <= usual * 12, "{chosen} probes, {usual} of other keys");
        }
        let [chosen, usual] = [&crafted, &others].map(|keys| probes_of(&keys[..5000], unseeded));
        assert!(chosen > usual * 20, "the keys are well chosen: {chosen} probes without a secret, {usual} of other keys");
    }

    /// No key is lost over many secrets: what the timing of a weak hash would hide.
    #[test]
    fn no_key_is_lost_over_many_secrets() {
        let mut set = DedupSet::with_capacity(20_000);
        for secret in 0..50 {
            let hasher = KeyHasher::from_seed(secret);
            set.clear();
            for i in 0..20_000_u32 {
                let key = format!("group-{} topic {} {}", i % 100, i / 100 % 20, i / 2000);
                assert_eq!(set.insert(place(&set, hasher.hash(key.as_bytes()))), Ok(true));
            }
        }
    }

    proptest! {
        #[test]
        fn a_set_is_a_set(keys in prop::collection::vec((any::<bool>(), 0..200_u32), 0..600)) {
            let hasher = KeyHasher::from_seed(3);
            let mut set = DedupSet::with_capacity(200);
            let mut model = HashSet::new();
            for (add, key) in keys {
                let at = place(&set, hasher.hash(&key.to_le_bytes()));
                if add {
                    prop_assert_eq!(set.insert(at), Ok(model.insert(key)));
                } else {
                    prop_assert_eq!(set.contains(at), model.contains(&key));
                }
                prop_assert_eq!(set.len(), model.len() as u64);
            }
        }
    }
}
