//! One clean of a whole log, every output on stable storage before the clock stops; beside it, where asked for, Kafka's
//! own cleaner on the same log in the same minutes.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use keeplog::{CleanOptions, Codec, Durability, Log, LogOptions, Record, clean};

use crate::options::{Options, copy_dir};
use crate::report::{Figure, print};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (dir, _guard) = options.work_dir()?;
    let source = dir.join("bench-0");
    let records = match &options.beside {
        Some(oracle) => make_with(oracle, &source, options)?,
        None => make(&source, options)?,
    };
    let bytes = log_bytes(&source)?;
    let name = |engine: &str| {
        format!("{engine}: {} MiB, {} keys, {} a batch, {}", options.mib, options.keys, options.records_per_batch, options.codec.name())
    };
    let mut ours = Figure { name: name("keeplog, 1 thread"), seconds: Vec::new(), bytes, records, note: String::new() };
    let mut theirs = Figure { name: name("kafka"), seconds: Vec::new(), bytes, records, note: String::new() };
    for _ in 0..options.runs {
        let (seconds, kept) = clean_copy(&source, &dir.join("copy"), options)?;
        ours.seconds.push(seconds);
        ours.note = format!("{} MB kept", kept / 1_000_000);
        if let Some(oracle) = &options.beside {
            theirs.seconds.push(clean_with(oracle, &source, options)?);
        }
    }
    if theirs.seconds.is_empty() {
        print(&[ours], options.json);
    } else {
        ours.note = format!("{}, {:.1} times kafka's rate", ours.note, ours.mb_per_second() / theirs.mb_per_second());
        print(&[ours, theirs], options.json);
    }
    Ok(())
}

fn settings(options: &Options) -> LogOptions {
    LogOptions::new().segment_bytes(options.segment_mib << 20).compression(options.codec)
}

/// Keys of 26 bytes, values a quarter random: the shape that the yardstick's own generator makes.
fn make(path: &Path, options: &Options) -> Result<u64, Failure> {
    let log = Log::open(path, settings(options))?;
    let mut state = 1_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = 0;
    while bytes < options.mib << 20 {
        let batch: Vec<_> = (0..options.records_per_batch)
            .map(|_| {
                let n = random() % options.keys;
                let value: Vec<u8> = (0..options.value_bytes)
                    .map(|i| if i < options.value_bytes / 4 { random() as u8 } else { b'a' + (random() & 7) as u8 })
                    .collect();
                Record::new(format!("group-{:05}:topic-{:03}:{:03}", n / 1000, n / 50 % 20, n % 50), value)
            })
            .collect();
        log.append(&batch, Durability::Buffered)?;
        let set = log.segments();
        if set.all().len() as u64 * u64::from(options.segment_mib) >= options.mib {
            bytes = set.all().iter().map(|s| s.size_bytes()).sum();
        }
    }
    log.roll()?;
    let records = log.end_offset();
    log.append(&[Record::new("last", "x")], Durability::Synced)?;
    log.close()?;
    Ok(records)
}

fn log_bytes(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|e| e == "log") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn clean_copy(source: &Path, work: &Path, options: &Options) -> Result<(f64, u64), Failure> {
    let path = work.join("bench-0");
    copy_dir(source, &path)?;
    std::fs::write(work.join(".kafka_cleanshutdown"), r#"{"version":0,"brokerEpoch":-1}"#)?;
    Command::new("sync").status()?;
    let log = Log::open(&path, settings(options))?;
    let began = Instant::now();
    let mut first_dirty = 0;
    let end = log.segments().active().base_offset();
    while first_dirty < end {
        let pass = CleanOptions::for_log(log.options(), log.storage().now_ms()).first_dirty(first_dirty);
        first_dirty = clean(&log, &pass, &())?.new_dirty;
    }
    let seconds = began.elapsed().as_secs_f64();
    let kept = log.segments().all().iter().map(|s| s.size_bytes()).sum();
    log.close()?;
    std::fs::remove_dir_all(work)?;
    Ok((seconds, kept))
}

fn make_with(oracle: &Path, dir: &Path, options: &Options) -> Result<u64, Failure> {
    let codec = match options.codec {
        Codec::None => 0,
        Codec::Gzip => 1,
        Codec::Snappy => 2,
        Codec::Lz4 => 3,
        Codec::Zstd => 4,
    };
    let sizes = [options.mib, options.keys, options.records_per_batch, options.value_bytes as u64, codec, u64::from(options.segment_mib)];
    let output = Command::new(oracle).arg("bench-make").arg(dir).args(sizes.map(|s| s.to_string())).output()?;
    let line: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    line["records"].as_u64().ok_or_else(|| format!("the yardstick said {line}").into())
}

fn clean_with(oracle: &Path, dir: &Path, options: &Options) -> Result<f64, Failure> {
    let output = Command::new(oracle).arg("bench-clean").arg(dir).arg(options.segment_mib.to_string()).arg("1").output()?;
    let line: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    line["seconds"].as_f64().ok_or_else(|| format!("the yardstick said {line}").into())
}
