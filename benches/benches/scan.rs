//! What a pass does with every byte: header, checksum, decoding, hashing. First the steps by themselves, over a piece of log in
//! memory; then a dry run of the pass, which adds the plan and the decision, over a log in memory storage.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keeplog_benches::{Generator, Shape, T0};
use keeplog_cleaner::keys::KeyHasher;
use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::Log;
use keeplog_engine::record::{BatchHeader, Codec, Decoder};
use keeplog_engine::storage::MemoryStorage;

const LIMIT_BYTES: usize = 16 << 20;
const COMMITS: Shape =
    Shape { mib: 8, keys: 20_000, records_per_batch: 1, value_bytes: 24, codec: Codec::None, segment_mib: 1, transactions: false };

/// Logs as in the large table, but small.
fn shapes() -> [(&'static str, Shape); 6] {
    let large_batches = Shape { records_per_batch: 100, value_bytes: 100, ..COMMITS };
    [
        ("1 a batch", COMMITS),
        ("1 a batch, a fifth in transactions", Shape { transactions: true, ..COMMITS }),
        ("100 a batch", large_batches),
        ("20 a batch, 1 kB", Shape { records_per_batch: 20, value_bytes: 1000, ..COMMITS }),
        ("100 a batch, lz4", Shape { codec: Codec::Lz4, ..large_batches }),
        ("100 a batch, zstd", Shape { codec: Codec::Zstd, ..large_batches }),
    ]
}

/// About 1 MiB of log, batch by batch.
fn entries(shape: Shape) -> Vec<Vec<u8>> {
    let mut generator = Generator::new(shape);
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while bytes < 1 << 20 {
        let mut entry = Vec::new();
        generator.batch(&mut entry).unwrap();
        bytes += entry.len();
        entries.push(entry);
    }
    entries
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan");
    let (hasher, mut decoder) = (KeyHasher::from_seed(1), Decoder::new(LIMIT_BYTES));
    for (name, shape) in shapes().into_iter().filter(|(_, shape)| !shape.transactions) {
        let entries = entries(shape);
        let records = entries.len() as u64 * u64::from(shape.records_per_batch);
        let bytes = entries.iter().map(Vec::len).sum::<usize>() as u64;
        group.throughput(Throughput::ElementsAndBytes { elements: records, bytes });
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut seen = 0;
                for entry in &entries {
                    BatchHeader::parse(entry).unwrap().verify_crc(entry).unwrap();
                    for record in decoder.records(entry).unwrap() {
                        black_box(hasher.hash(record.unwrap().key.unwrap()));
                        seen += 1;
                    }
                }
                assert_eq!(seen, records);
            });
        });
    }
}

fn dry_pass(c: &mut Criterion) {
    let mut group = c.benchmark_group("dry pass");
    group.sample_size(20);
    for (name, shape) in shapes() {
        let log = Log::open_with(Arc::new(MemoryStorage::new()), Path::new("/data/bench-0"), shape.log_options()).unwrap();
        shape.write(&log).unwrap();
        let options = CleanOptions::for_log(log.options(), T0).hash_seed(Some(1)).dry_run(true);
        let first = clean(&log, &options, &()).unwrap();
        assert!(first.records_kept < first.records_read);
        group.throughput(Throughput::ElementsAndBytes { elements: first.records_read, bytes: first.bytes_read });
        group.bench_function(name, |b| {
            b.iter(|| assert_eq!(clean(&log, &options, &()).unwrap().records_kept, first.records_kept));
        });
    }
}

criterion_group!(benches, scan, dry_pass);
criterion_main!(benches);
