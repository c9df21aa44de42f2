//! The cleaner's dedup set: hashing keys, and adding them as a pass does (a block of searches begun at once). One key in
//! two is a duplicate. The small set fits a cache, the large one does not.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keeplog_benches::key;
use keeplog_cleaner::keys::{DedupSet, KeyHasher, Place, SEARCHES_AT_ONCE};

const SIZES: [u32; 2] = [20_000, 2_000_000];

/// Hashes of `keys` keys, each of them twice, in no order.
fn hashes(keys: u32) -> Vec<u128> {
    let hasher = KeyHasher::from_seed(1);
    let prime = 1_000_000_007;
    (0..u64::from(keys) * 2).map(|i| hasher.hash(&(i * prime % u64::from(keys)).to_be_bytes())).collect()
}

fn insert(c: &mut Criterion) {
    let mut group = c.benchmark_group("dedup insert");
    group.sample_size(10);
    for keys in SIZES {
        let mut set = DedupSet::with_capacity(u64::from(keys));
        let places: Vec<Place> = hashes(keys).into_iter().map(|hash| Place::new(hash, set.buckets())).collect();
        group.throughput(Throughput::Elements(places.len() as u64));
        group.bench_function(keys.to_string(), |b| {
            b.iter(|| {
                set.clear();
                let mut new = 0;
                for block in places.chunks(SEARCHES_AT_ONCE) {
                    black_box(block.iter().fold(0, |seen, &place| seen ^ set.touch(place)));
                    for &place in block {
                        new += u32::from(set.insert(place).unwrap());
                    }
                }
                assert_eq!(new, keys);
            });
        });
    }
}

fn hash(c: &mut Criterion) {
    let hasher = KeyHasher::random();
    let keys: Vec<String> = (0..1000).map(key).collect();
    let bytes = keys.iter().map(String::len).sum::<usize>() as u64;
    let mut group = c.benchmark_group("key hash");
    group.throughput(Throughput::ElementsAndBytes { elements: keys.len() as u64, bytes });
    group.bench_function("25 bytes", |b| b.iter(|| keys.iter().fold(0, |sum, key| sum ^ hasher.hash(key.as_bytes()))));
}

criterion_group!(benches, insert, hash);
criterion_main!(benches);
