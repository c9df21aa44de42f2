//! Indexes of a full segment: lookups anywhere and near the end, and the check that a start makes.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keeplog_index::{OffsetIndex, TimeIndex};

/// Of a segment of 1 GiB with an entry every 4 KiB.
const ENTRIES: u64 = 262_144;
const OFFSETS_PER_ENTRY: u64 = 28;
const BASE: u64 = 1 << 40;
const LOOKUPS: u64 = 1000;

fn offset_index() -> OffsetIndex<Vec<u8>> {
    let mut index = OffsetIndex::empty(BASE);
    (1..ENTRIES).for_each(|i| index.append(BASE + i * OFFSETS_PER_ENTRY, i as u32 * 4096).unwrap());
    index
}

fn time_index() -> TimeIndex<Vec<u8>> {
    let mut index = TimeIndex::empty(BASE);
    (1..ENTRIES).for_each(|i| assert!(index.maybe_append(i as i64 * 10, BASE + i * OFFSETS_PER_ENTRY).unwrap()));
    index
}

/// Numbers below `bound` in no order.
fn scattered(bound: u64) -> impl Iterator<Item = u64> {
    (0..LOOKUPS).map(move |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % bound)
}

fn lookup(c: &mut Criterion) {
    let (offset, time) = (offset_index(), time_index());
    let last = ENTRIES * OFFSETS_PER_ENTRY;
    let mut group = c.benchmark_group("lookup");
    group.throughput(Throughput::Elements(LOOKUPS));
    group.bench_function("offset, anywhere", |b| b.iter(|| scattered(last).fold(0, |sum, at| sum ^ offset.lookup(BASE + at).position)));
    group.bench_function("offset, near the end", |b| {
        b.iter(|| scattered(20_000).fold(0, |sum, back| sum ^ offset.lookup(BASE + last - back).position));
    });
    group.bench_function("time, anywhere", |b| {
        b.iter(|| scattered(ENTRIES * 10).fold(0, |sum, at| sum ^ time.lookup(at as i64).offset));
    });
}

fn check(c: &mut Criterion) {
    let (offset, time) = (offset_index(), time_index());
    let mut group = c.benchmark_group("check");
    group.throughput(Throughput::ElementsAndBytes { elements: ENTRIES - 1, bytes: offset.as_bytes().len() as u64 });
    group.bench_function("offset", |b| b.iter(|| black_box(&offset).check(1 << 30, u64::MAX).unwrap()));
    group.throughput(Throughput::ElementsAndBytes { elements: ENTRIES - 1, bytes: time.as_bytes().len() as u64 });
    group.bench_function("time", |b| b.iter(|| black_box(&time).check(u64::MAX).unwrap()));
}

criterion_group!(benches, lookup, check);
criterion_main!(benches);
