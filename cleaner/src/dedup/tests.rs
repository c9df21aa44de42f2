//! The set against a plain one, its arithmetic against what it does.

use std::collections::HashSet;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::hash::KeyHasher;

fn place(hash: u128) -> Place {
    Place::new(hash)
}

fn new(capacity: u64) -> DedupSet {
    DedupSet::with_capacity(capacity).unwrap()
}

fn is_full(added: &Result<bool, NotAdded>) -> bool {
    matches!(added, Err(NotAdded::Full))
}

#[test]
fn a_key_is_new_once() {
    let hasher = KeyHasher::from_seed(1);
    let mut set = new(1000);
    for i in 0..1000_u32 {
        let at = place(hasher.hash(&i.to_be_bytes()));
        assert!(!set.contains(at));
        assert!(set.insert(at).unwrap());
        assert!(!set.insert(at).unwrap());
        assert!(set.contains(at));
    }
    assert_eq!(set.len(), 1000);
    assert!(set.is_full());
    assert!(is_full(&set.insert(place(hasher.hash(b"one more")))));
    assert!(!set.insert(place(hasher.hash(&7_u32.to_be_bytes()))).unwrap(), "what is there needs no room");
}

#[test]
fn buckets_start_at_a_cache_line() {
    for capacity in [0, 1, 6, 7, 1000, 1 << 20] {
        let set = new(capacity);
        assert_eq!(std::ptr::from_ref(set.tables[0].words(0)).addr() % 64, 0, "capacity {capacity}");
        assert!(DedupSet::capacity_of(set.bytes()) >= capacity);
        assert!(set.bytes() <= 64 + capacity * 64 / 6);
    }
}

/// Ten million keys of 16 bytes and one million of 200, none counted beforehand: each is hashed once, is looked for in two tables
/// at most, and takes less than 24 bytes. How fast that is, is measured in `benches/`.
#[test]
fn g07_ten_million_keys_take_less_than_24_bytes_each() {
    let hasher = KeyHasher::from_seed(7);
    for (keys, key_bytes) in [(10_000_000_u64, 16), (1_000_000, 200)] {
        let mut set = DedupSet::growing(2 * keys).unwrap();
        let mut key = vec![b'k'; key_bytes];
        for i in 0..keys {
            key[key_bytes - 8..].copy_from_slice(&i.to_be_bytes());
            assert!(set.insert(place(hasher.hash(&key))).unwrap(), "key {i}");
        }
        assert_eq!((set.len(), set.tables.len() <= 2), (keys, true), "{} tables", set.tables.len());
        assert!(set.bytes() <= 24 * keys, "{} bytes for {keys} keys", set.bytes());
    }
}

/// B07: with every word taken, the search for a missing key visits each bucket once and ends.
#[test]
fn b07_a_search_in_a_completely_full_table_ends() {
    let mut table = Table::new(60).unwrap();
    let words = table.buckets() * 8;
    let hasher = KeyHasher::from_seed(2);
    let mut key = 0_u64;
    for _ in 0..words {
        let at = place(hasher.hash(&key.to_be_bytes()));
        let Find::Free(word) = table.find(at) else { panic!("key {key}: {:?}", table.find(at)) };
        table.put(word, at);
        key += 1;
    }
    for missing in key..key + 1000 {
        assert_eq!(table.find(place(hasher.hash(&missing.to_be_bytes()))), Find::Nowhere);
    }
    for high in [0, u32::MAX] {
        assert_eq!(table.find(Place { tag: u64::MAX, high }), Find::Nowhere);
    }
}

/// Keys that the first table of a growing set takes: asked for again and again, they make it guess too low.
const FEW: u64 = FIRST_KEYS - 100;

/// A set that grows takes what it is to take, in few tables, whatever the keys are like: all different, some, or the
/// same few for so long that it guesses wrongly.
#[test]
fn a_set_grows_to_its_capacity_in_few_tables() {
    const KEYS: u64 = 3_000_000;
    let hasher = KeyHasher::from_seed(4);
    let misled = (0..KEYS).map(|i| if i < 2_000_000 { i % FEW } else { i });
    for (keys, tables) in [(Box::new(0..KEYS) as Box<dyn Iterator<Item = u64>>, 1), (Box::new(misled), 3)] {
        let mut set = DedupSet::growing(KEYS).unwrap();
        assert!(set.bytes() < 5 << 18);
        let mut model = HashSet::new();
        for key in keys {
            assert_eq!(set.insert(place(hasher.hash(&key.to_be_bytes()))).unwrap(), model.insert(key));
        }
        assert_eq!(set.len(), model.len() as u64);
        assert_eq!(set.tables.len(), tables, "{} tables", set.tables.len());
        assert!((0..KEYS).all(|key| set.contains(place(hasher.hash(&key.to_be_bytes()))) == model.contains(&key)));
        assert!(set.bytes() <= KEYS * 64 / 6 + 4 * 64);
    }
}

#[test]
fn a_growing_set_is_full_at_its_capacity() {
    let hasher = KeyHasher::from_seed(5);
    let capacity = 4 * FIRST_KEYS + 1000;
    let mut set = DedupSet::growing(capacity).unwrap();
    for key in 0..capacity {
        assert!(set.insert(place(hasher.hash(&key.to_be_bytes()))).unwrap());
    }
    assert!(set.is_full() && is_full(&set.insert(place(hasher.hash(b"one more")))));
    assert_eq!(set.len(), capacity);
}

/// Where a log repeats its keys, the set is as large as they need, not as large as its records would.
#[test]
fn a_growing_set_of_keys_that_repeat_stays_small() {
    const KEYS: u64 = 200_000;
    let hasher = KeyHasher::from_seed(6);
    let mut set = DedupSet::growing(100_000_000).unwrap();
    for i in 0..20 * KEYS {
        let key = hasher.hash(&i.to_be_bytes()) as u64 % KEYS;
        set.insert(place(hasher.hash(&key.to_be_bytes()))).unwrap();
    }
    assert!(set.len() > KEYS * 9 / 10 && set.bytes() < 2 * KEYS * 64 / 6, "{} bytes for {} keys", set.bytes(), set.len());
}

#[test]
fn the_number_of_keys_is_guessed() {
    for keys in [70_000_u64, 300_000, 1_000_000, 10_000_000] {
        let drawn = |asked: f64| keys as f64 * (1.0 - (-asked / keys as f64).exp());
        let asked = (100_000..).step_by(1000).find(|&asked| drawn(asked as f64) >= 65_536.0).unwrap();
        let guess = likely_keys(asked, drawn(asked as f64) as u64);
        assert!((keys..=keys * 3 / 2).contains(&guess), "{guess} for {keys}");
    }
    assert!(likely_keys(65_536, 65_536) > 1 << 30, "all different");
    assert!(likely_keys(u64::MAX, 1) < 3);
}

#[test]
fn the_zero_tag_is_a_key_like_any_other() {
    let mut set = new(10);
    let at = place(1_u128 << 127);
    assert!(!set.contains(at));
    assert!(set.insert(at).unwrap());
    assert!(!set.insert(at).unwrap());
}

/// A23: the chance of a mix-up, measured. With tags of `bits` bits the keys taken for duplicates wrongly are
/// as many as the arithmetic at the head of this file says, and each bit more halves them.
#[test]
fn a23_false_duplicates_are_as_rare_as_the_arithmetic_says() {
    const KEYS: u64 = 60_000;
    for bits in [12_i32, 14, 16, 18] {
        let lost: u64 = (0..4).map(|secret| lost(&mut new(KEYS), 0..KEYS, secret, bits)).sum();
        let chance = f64::from(bits).exp2().recip();
        let expected = 4.0 * KEYS as f64 * COMPARED_WHILE_FILLING * chance;
        let lost = lost as f64;
        assert!((lost - expected).abs() < 0.03 * expected + 4.0 * expected.sqrt(), "{bits} bits: {lost} lost, {expected:.1} expected");
    }
}

/// The page states what follows for whole tags.
#[test]
fn a23_the_page_says_what_the_arithmetic_gives() {
    const PAGE: &str = include_str!("../../../docs/RELIABILITY.md");
    for (keys, written) in [(1e6, "1 million"), (1e7, "10 million"), (5e7, "50 million"), (1e8, "100 million"), (1e9, "1,000 million")] {
        let chance = |compared: f64| format!("{:.1e}", keys * compared * (-64_f64).exp2());
        let row = format!("| {written} | {} | {} |", chance(COMPARED_WHILE_FILLING), chance(4.0 * COMPARED_IN_A_FULL_TABLE));
        assert!(PAGE.contains(&row), "{row}");
    }
}

/// Keys of the clean section are asked for, in a table that is full.
#[test]
fn a23_a_full_set_that_is_only_asked_errs_as_rarely_as_the_arithmetic_says() {
    const KEYS: u64 = 60_000;
    for bits in [14_i32, 16, 18] {
        let mut found = 0;
        for secret in 0..4 {
            let (mut set, hasher) = (new(KEYS), KeyHasher::from_seed(secret));
            let mut next = 0;
            while set.len() < KEYS {
                set.insert(shortened(&hasher, next, bits)).unwrap();
                next += 1;
            }
            found += (next..next + KEYS).filter(|key| set.contains(shortened(&hasher, *key, bits))).count() as u64;
        }
        let expected = 4.0 * KEYS as f64 * COMPARED_IN_A_FULL_TABLE * f64::from(bits).exp2().recip();
        let found = found as f64;
        assert!((found - expected).abs() < 0.05 * expected + 4.0 * expected.sqrt(), "{bits} bits: {found} found, {expected:.1} expected");
    }
}

/// Foreign tags that a search compares with while a table fills, on average, and in a full one.
const COMPARED_WHILE_FILLING: f64 = 3.61;
const COMPARED_IN_A_FULL_TABLE: f64 = 11.3;

/// The same for a set that grew.
#[test]
fn false_duplicates_are_as_rare_in_two_tables() {
    const KEYS: u64 = 600_000;
    let mut set = DedupSet::growing(KEYS).unwrap();
    for i in 0..40 * FEW {
        set.insert(shortened(&KeyHasher::from_seed(1), i % FEW, 20)).unwrap();
    }
    let (lost, each) = (lost(&mut set, FEW..KEYS, 1, 20) as f64, KEYS as f64 * (-20_f64).exp2());
    assert!(
        set.tables.len() > 1 && lost > COMPARED_WHILE_FILLING * each && lost < 2.0 * COMPARED_IN_A_FULL_TABLE * each,
        "{lost} lost, {each:.1} a comparison"
    );
}

/// How many of the different `keys` a set takes for duplicates, if their tags have so many bits.
fn lost(set: &mut DedupSet, mut keys: Range<u64>, secret: u64, bits: i32) -> u64 {
    let hasher = KeyHasher::from_seed(secret);
    let all = keys.end - keys.start;
    all - keys.by_ref().filter(|key| set.insert(shortened(&hasher, *key, bits)).unwrap()).count() as u64
}

/// The place of a key, its tag shortened to so many bits.
fn shortened(hasher: &KeyHasher, key: u64, bits: i32) -> Place {
    let hash = hasher.hash(&key.to_be_bytes());
    place((hash >> 64 << 64) | (hash & ((1 << bits) - 1)))
}

/// Buckets that the search for `place` looks into.
fn probes(table: &Table, place: Place) -> u64 {
    let mut bucket = table.home(place);
    for probes in 1..=table.buckets() {
        let words = table.words(bucket);
        if words.contains(&place.tag.to_ne_bytes()) || words[7] == [0; 8] {
            return probes;
        }
        bucket = (bucket + 1) % table.buckets() as u32;
    }
    table.buckets()
}

/// Adds all keys, and counts the buckets that this looks into.
fn probes_of(keys: &[u64], hash: impl Fn(&[u8]) -> u128) -> u64 {
    let mut set = new(keys.len() as u64);
    let mut sum = 0;
    for key in keys {
        let at = place(hash(&key.to_be_bytes()));
        sum += probes(&set.tables[0], at);
        assert!(set.insert(at).unwrap());
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
    for secret in 0..50 {
        let (mut set, hasher) = (new(20_000), KeyHasher::from_seed(secret));
        for i in 0..20_000_u32 {
            let key = format!("group-{} topic {} {}", i % 100, i / 100 % 20, i / 2000);
            assert!(set.insert(place(hasher.hash(key.as_bytes()))).unwrap());
        }
    }
}

proptest! {
    #[test]
    fn a_set_is_a_set(keys in prop::collection::vec((any::<bool>(), 0..200_u32), 0..600)) {
        let hasher = KeyHasher::from_seed(3);
        let mut set = new(200);
        let mut model = HashSet::new();
        for (add, key) in keys {
            let at = place(hasher.hash(&key.to_le_bytes()));
            if add {
                prop_assert_eq!(set.insert(at).unwrap(), model.insert(key));
            } else {
                prop_assert_eq!(set.contains(at), model.contains(&key));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
        }
    }
}
