//! Checksums of batches, by size: one record, ten, a hundred, and the largest that a broker takes.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keeplog_engine::record::{BatchHeader, BatchSpec, BatchWriter};

const SIZES: [usize; 5] = [146, 911, 4096, 8600, 1 << 20];

/// A batch of about `bytes` bytes.
fn batch(bytes: usize) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec::default());
    writer.push(0, 0, Some(b"key"), Some(&vec![7; bytes - 80]), &[]).unwrap();
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

fn verify(c: &mut Criterion) {
    let mut group = c.benchmark_group("verify_crc");
    for bytes in SIZES {
        let entry = batch(bytes);
        let header = BatchHeader::parse(&entry).unwrap();
        group.throughput(Throughput::Bytes(entry.len() as u64));
        group.bench_function(bytes.to_string(), |b| b.iter(|| header.verify_crc(&entry).unwrap()));
    }
}

criterion_group!(benches, verify);
criterion_main!(benches);
