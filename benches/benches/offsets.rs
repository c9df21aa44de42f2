//! The offset cache: fetches one by one and many at a time, commits over what is there, deletions, and a walk over all.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use keeplog_offsets::record::OffsetKey;
use keeplog_offsets::{Commit, OffsetCache};

const GROUPS: u32 = 2_000;
const TOPICS: u32 = 20;
const PARTITIONS: u32 = 50;
const KEYS: u32 = GROUPS * TOPICS * PARTITIONS;
const ASKED: u32 = 100_000;

struct Names {
    groups: Vec<String>,
    topics: Vec<String>,
}

impl Names {
    fn new() -> Self {
        let names = |name: &str, count| (0..count).map(|i| format!("{name}-{i:05}")).collect();
        Self { groups: names("group", GROUPS), topics: names("topic", TOPICS) }
    }

    /// One of the keys; neighbouring numbers are far apart.
    fn key(&self, i: u32) -> OffsetKey<'_> {
        let at = (u64::from(i) * 1_000_000_007 % u64::from(KEYS)) as u32;
        let (group, topic) = (at / (TOPICS * PARTITIONS), at / PARTITIONS % TOPICS);
        OffsetKey { group: &self.groups[group as usize], topic: &self.topics[topic as usize], partition: (at % PARTITIONS).cast_signed() }
    }
}

fn commit(at: u64) -> Commit<'static> {
    Commit {
        offset: at * 3,
        leader_epoch: Some(4),
        metadata: "",
        commit_timestamp_ms: 1_760_000_000_000 + at.cast_signed(),
        expire_timestamp_ms: None,
        topic_id: None,
        record_offset: at,
    }
}

fn filled(names: &Names) -> OffsetCache {
    let mut cache = OffsetCache::new();
    for i in 0..KEYS {
        cache.apply_commit(&names.key(i), &commit(i.into()));
    }
    cache.compact();
    cache
}

fn offsets(c: &mut Criterion) {
    let names = Names::new();
    let mut cache = filled(&names);
    let mut group = c.benchmark_group("offset cache");
    group.sample_size(10);
    group.throughput(Throughput::Elements(ASKED.into()));
    let keys: Vec<_> = (0..ASKED).map(|i| names.key(i)).collect();
    group.bench_function("get", |b| {
        b.iter(|| keys.iter().filter_map(|key| cache.get(key)).fold(0, |sum, found| sum ^ found.offset));
    });
    group.bench_function("get many", |b| b.iter(|| cache.get_many(&keys)));
    let mut at = u64::from(KEYS);
    group.bench_function("update", |b| {
        b.iter(|| {
            at += 1;
            keys.iter().filter(|key| cache.apply_commit(key, &commit(at))).count()
        });
    });
    group.throughput(Throughput::Elements(KEYS.into()));
    group.bench_function("list", |b| {
        b.iter(|| cache.iter().fold(0, |sum, (key, commit)| sum ^ commit.offset ^ u64::from(key.partition.unsigned_abs())));
    });
    group.bench_function("remove", |b| {
        let remove = |cache: &mut OffsetCache| assert_eq!((0..KEYS).filter(|i| cache.remove(&names.key(*i))).count(), KEYS as usize);
        b.iter_batched_ref(|| filled(&names), remove, BatchSize::PerIteration);
    });
}

criterion_group!(benches, offsets);
criterion_main!(benches);
