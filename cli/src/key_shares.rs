//! Which keys take the most space, in bounded memory however many there are.
//!
//! As long as all keys fit, everything is exact. When they do not, the lighter half is let go: every key's rank comes down by
//! the median rank, and those that come down to nothing leave (Anderson et al., "A High-Performance Algorithm for
//! Identifying Frequent Items in Data Streams", 2017). A key that is not there (any more) has at most `purged` bytes in all;
//! one that came in later has missed at most what had been purged by then.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Keys at most.
const KEYS_MAX: usize = 1 << 18;
/// Bytes of all keys at most.
const KEY_BYTES_MAX: usize = 64 << 20;
/// Of a longer key only this much is kept; its length and a hash tell it from others.
const HEAD_BYTES: usize = 1024;

/// Counts what each key takes.
pub(crate) struct KeyShares {
    shares: HashMap<Box<[u8]>, Share>,
    keys_max: usize,
    key_bytes_max: usize,
    key_bytes: usize,
    /// What was taken from every rank so far.
    purged: u64,
    secret: RandomState,
    /// Scratch: the key at hand as `shares` has it.
    id: Vec<u8>,
}

/// What one key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// So many bytes may be missing at most; 0 if the counts are exact.
    pub(crate) bytes_missed_max: u64,
    /// `bytes`, less what was purged since it came in.
    rank: u64,
    key_bytes: u64,
}

/// One of the heaviest keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heavy {
    /// Its first [`HEAD_BYTES`].
    pub(crate) head: Vec<u8>,
    /// Its length.
    pub(crate) key_bytes: u64,
    pub(crate) share: Share,
}

impl KeyShares {
    pub(crate) fn new() -> Self {
        Self::bounded(KEYS_MAX, KEY_BYTES_MAX)
    }

    fn bounded(keys_max: usize, key_bytes_max: usize) -> Self {
        let (shares, secret) = (HashMap::new(), RandomState::new());
        Self { shares, keys_max, key_bytes_max, key_bytes: 0, purged: 0, secret, id: Vec::new() }
    }

    /// A record with `key` takes `bytes`.
    pub(crate) fn add(&mut self, key: &[u8], bytes: u64) {
        self.id.clear();
        self.id.extend_from_slice(&key[..key.len().min(HEAD_BYTES)]);
        if key.len() > HEAD_BYTES {
            // No shorter key looks like this: it would be a longer one itself.
            self.id.extend_from_slice(&(key.len() as u64).to_be_bytes());
            self.id.extend_from_slice(&self.secret.hash_one(key).to_be_bytes());
        }
        if let Some(share) = self.shares.get_mut(self.id.as_slice()) {
            share.records += 1;
            share.bytes += bytes;
            share.rank += bytes;
            return;
        }
        let share = Share { records: 1, bytes, bytes_missed_max: self.purged, rank: bytes, key_bytes: key.len() as u64 };
        self.shares.insert(self.id.as_slice().into(), share);
        self.key_bytes += self.id.len();
        while self.shares.len() > self.keys_max || self.key_bytes > self.key_bytes_max {
            self.purge();
        }
    }

    /// Lets at least one key go, and usually half of them.
    fn purge(&mut self) {
        let mut ranks: Vec<u64> = self.shares.values().map(|share| share.rank).collect();
        let middle = ranks.len() / 2;
        let median = *ranks.select_nth_unstable(middle).1;
        self.purged += median;
        let key_bytes = &mut self.key_bytes;
        self.shares.retain(|id, share| {
            share.rank = share.rank.saturating_sub(median);
            if share.rank == 0 {
                *key_bytes -= id.len();
            }
            share.rank > 0
        });
    }

    /// Whether every key is there, with all its bytes.
    pub(crate) fn is_exact(&self) -> bool {
        self.purged == 0
    }

    /// Keys that are there: all of them, if it is exact.
    pub(crate) fn len(&self) -> usize {
        self.shares.len()
    }

    /// Bytes at most of any key that is not there.
    pub(crate) fn absent_bytes_max(&self) -> u64 {
        self.purged
    }

    /// The `count` keys with the most bytes, heaviest first; of equals, by their bytes.
    pub(crate) fn top(&self, count: usize) -> Vec<Heavy> {
        let mut all: Vec<(&[u8], &Share)> = self.shares.iter().map(|(id, share)| (&**id, share)).collect();
        let order = |a: &(&[u8], &Share), b: &(&[u8], &Share)| (b.1.bytes, a.0).cmp(&(a.1.bytes, b.0));
        if all.len() > count {
            all.select_nth_unstable_by(count, order);
            all.truncate(count);
        }
        all.sort_unstable_by(order);
        let heavy = |(id, share): (&[u8], &Share)| Heavy {
            head: id[..id.len().min(HEAD_BYTES)].to_vec(),
            key_bytes: share.key_bytes,
            share: *share,
        };
        all.into_iter().map(heavy).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Keys of very different weight: key i comes about every 2^i-th time. Returns what is true of each.
    fn feed(shares: &mut KeyShares, records: u64) -> BTreeMap<Vec<u8>, (u64, u64)> {
        let mut truth: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
        let mut state = 7_u64;
        for i in 0..records {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let heavy = (state >> 40).trailing_zeros();
            let key = if heavy > 3 { format!("heavy-{heavy}") } else { format!("light-{}-{}", i, state >> 33) };
            let bytes = 20 + (state >> 59);
            shares.add(key.as_bytes(), bytes);
            let counted = truth.entry(key.into_bytes()).or_default();
            counted.0 += 1;
            counted.1 += bytes;
        }
        truth
    }

    #[test]
    fn all_is_exact_as_long_as_the_keys_fit() {
        let mut shares = KeyShares::new();
        let truth = feed(&mut shares, 5000);
        assert!(shares.is_exact());
        assert_eq!((shares.len(), shares.absent_bytes_max()), (truth.len(), 0));
        let mut expected: Vec<_> = truth.into_iter().collect();
        expected.sort_by(|a, b| (b.1.1, &a.0).cmp(&(a.1.1, &b.0)));
        let top = shares.top(20);
        assert_eq!(top.len(), 20);
        for (heavy, (key, (records, bytes))) in top.iter().zip(expected) {
            assert_eq!((&heavy.head, heavy.share.records, heavy.share.bytes), (&key, records, bytes));
            assert_eq!((heavy.key_bytes, heavy.share.bytes_missed_max), (key.len() as u64, 0));
        }
    }

    #[test]
    fn with_too_many_keys_the_heavy_ones_stay_and_the_bounds_hold() {
        for (keys_max, key_bytes_max) in [(64, usize::MAX), (usize::MAX, 2000)] {
            let mut shares = KeyShares::bounded(keys_max, key_bytes_max);
            let truth = feed(&mut shares, 50_000);
            assert!(!shares.is_exact());
            assert!(shares.len() <= keys_max && shares.key_bytes <= key_bytes_max);
            assert_eq!(shares.key_bytes, shares.shares.keys().map(|id| id.len()).sum::<usize>());
            for (key, (records, bytes)) in &truth {
                match shares.shares.get(key.as_slice()) {
                    Some(share) => {
                        assert!(share.records <= *records && share.bytes <= *bytes, "{share:?} of {bytes}");
                        assert!(*bytes <= share.bytes + share.bytes_missed_max, "{share:?} of {bytes}");
                    }
                    None => assert!(*bytes <= shares.absent_bytes_max(), "{bytes} of {}", shares.absent_bytes_max()),
                }
            }
            assert_eq!(shares.top(1)[0].head, b"heavy-4");
            assert_eq!(shares.top(1)[0].share.bytes, truth[&b"heavy-4"[..]].1, "it was there from the beginning");
        }
    }

    #[test]
    fn long_keys_are_told_apart_by_what_is_not_kept() {
        let mut shares = KeyShares::bounded(8, 1 << 20);
        let long = |end: u8, len: usize| [vec![b'k'; len], vec![end]].concat();
        for key in [long(1, 5000), long(2, 5000), long(2, 6000), long(1, 5000)] {
            shares.add(&key, 10);
        }
        assert_eq!(shares.len(), 3);
        let top = shares.top(3);
        assert_eq!((top[0].head.len(), top[0].key_bytes, top[0].share.records), (HEAD_BYTES, 5001, 2));
        let mut none = KeyShares::bounded(8, 100);
        none.add(&long(1, 5000), 10);
        assert_eq!((none.len(), none.is_exact(), none.absent_bytes_max()), (0, false, 10));
    }
}
