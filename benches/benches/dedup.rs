//! The cleaner's dedup set: hashing keys, and adding them as a pass does (memory asked for some searches ahead). One key in
//! two is a duplicate. The small set fits a cache, the large one does not.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use keeplog_benches::key;
use keeplog_cleaner::keys::{DedupSet, KeyHasher, Place, SEARCHES_AHEAD};

const SIZES: [u32; 2] = [20_000, 2_000_000];

/// Hashes of `keys` keys, each of them twice, in no order.
fn hashes(keys: u32) -> Vec<u128> {
    let hasher = KeyHasher::from_seed(1);
    let prime = 1_000_000_007;
    (0..u64::from(keys) * 2).map(|i| hasher.hash(&(i * prime % u64::from(keys)).to_be_bytes())).collect()
}

/// Adds the keys at `places` as a pass does.
fn add(set: &mut DedupSet, places: &[Place]) -> u32 {
    let mut new = 0;
    for (i, &place) in places.iter().enumerate() {
        if let Some(&ahead) = places.get(i + SEARCHES_AHEAD) {
            set.prefetch(ahead);
        }
        new += u32::from(set.insert(place).unwrap());
    }
    new
}

fn insert(c: &mut Criterion) {
    for (name, make) in
        [("dedup insert", DedupSet::with_capacity as fn(u64) -> std::io::Result<DedupSet>), ("dedup grow", DedupSet::growing)]
    {
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        for keys in SIZES {
            let places: Vec<Place> = hashes(keys).into_iter().map(Place::new).collect();
            group.throughput(Throughput::Elements(places.len() as u64));
            let set = || make(places.len() as u64 / if name == "dedup grow" { 1 } else { 2 }).unwrap();
            group.bench_function(keys.to_string(), |b| {
                b.iter_batched_ref(set, |set| assert_eq!(add(set, &places), keys), BatchSize::PerIteration);
            });
        }
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
