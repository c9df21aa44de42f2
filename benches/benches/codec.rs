//! Batches: decoding all records, writing a batch again with half of them (the cleaner's mixed case), writing.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use keeplog_benches::{Generator, Shape};
use keeplog_engine::record::{BatchHeader, BatchSpec, BatchWriter, Codec, Decoder};

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
/// About this much of a log at a time: more than fits the second cache, less than the third.
const LOG_BYTES: u64 = 1 << 20;
const LIMIT_BYTES: usize = 16 << 20;

/// A piece of log, compressed and not.
struct Sample {
    name: String,
    entries: Vec<Vec<u8>>,
    plain_entries: Vec<Vec<u8>>,
    records: u64,
}

impl Sample {
    fn new(codec: Codec, records_per_batch: u32) -> Self {
        let shape = Shape { mib: 1, keys: 100_000, records_per_batch, value_bytes: 100, codec, segment_mib: 10, transactions: false };
        let mut generator = Generator::new(shape);
        let mut plain = Generator::new(Shape { codec: Codec::None, ..shape });
        let name = format!("{}/{records_per_batch}", codec.name());
        let mut sample = Self { name, entries: Vec::new(), plain_entries: Vec::new(), records: 0 };
        while sample.plain_bytes() < LOG_BYTES {
            for (generator, entries) in [(&mut generator, &mut sample.entries), (&mut plain, &mut sample.plain_entries)] {
                let mut entry = Vec::new();
                generator.batch(&mut entry).unwrap();
                entries.push(entry);
            }
            sample.records += u64::from(records_per_batch);
        }
        sample
    }

    fn all() -> Vec<Self> {
        let few = [1, 10].map(|records_per_batch| Self::new(Codec::None, records_per_batch));
        few.into_iter().chain(CODECS.map(|codec| Self::new(codec, 100))).collect()
    }

    /// Bytes without compression: what every figure here counts.
    fn plain_bytes(&self) -> u64 {
        self.plain_entries.iter().map(Vec::len).sum::<usize>() as u64
    }

    fn measured_by(&self, group: &mut BenchmarkGroup<'_, WallTime>) {
        group.throughput(Throughput::ElementsAndBytes { elements: self.records, bytes: self.plain_bytes() });
    }
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    let mut decoder = Decoder::new(LIMIT_BYTES);
    for sample in Sample::all() {
        sample.measured_by(&mut group);
        group.bench_function(&sample.name, |b| {
            b.iter(|| {
                let mut records = 0;
                for entry in &sample.entries {
                    for record in decoder.records(entry).unwrap() {
                        black_box(record.unwrap().key);
                        records += 1;
                    }
                }
                assert_eq!(records, sample.records);
            });
        });
    }
}

fn rebuild(c: &mut Criterion) {
    let mut group = c.benchmark_group("rebuild half");
    let (mut decoder, mut writer, mut out) = (Decoder::new(LIMIT_BYTES), BatchWriter::new(), Vec::new());
    for sample in Sample::all().into_iter().filter(|sample| sample.records > sample.entries.len() as u64) {
        sample.measured_by(&mut group);
        group.bench_function(&sample.name, |b| {
            b.iter(|| {
                out.clear();
                for entry in &sample.entries {
                    writer.begin(BatchSpec::like(&BatchHeader::parse(entry).unwrap()).unwrap());
                    for record in decoder.records(entry).unwrap().step_by(2) {
                        writer.push_ref(&record.unwrap()).unwrap();
                    }
                    writer.finish(&mut out).unwrap();
                }
                assert!(!out.is_empty());
            });
        });
    }
}

/// Records come from batches without compression, which costs next to nothing: what is measured is the writing.
fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    let (mut decoder, mut writer, mut out) = (Decoder::new(LIMIT_BYTES), BatchWriter::new(), Vec::new());
    for sample in Sample::all() {
        sample.measured_by(&mut group);
        group.bench_function(&sample.name, |b| {
            b.iter(|| {
                out.clear();
                for (entry, plain) in sample.entries.iter().zip(&sample.plain_entries) {
                    writer.begin(BatchSpec::like(&BatchHeader::parse(entry).unwrap()).unwrap());
                    decoder.records(plain).unwrap().for_each(|record| writer.push_ref(&record.unwrap()).unwrap());
                    writer.finish(&mut out).unwrap();
                }
                assert!(!out.is_empty());
            });
        });
    }
}

criterion_group!(benches, decode, rebuild, encode);
criterion_main!(benches);
