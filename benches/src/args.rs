//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use keeplog_benches::Shape;
use keeplog_benches::suite::SUITE;
use keeplog_engine::record;

use crate::cache::Cache;

/// Whole-run measurements of Keeplog: medians of several runs, MB (10^6 bytes) and records a second.
///
/// Compare only what ran within the same minutes on the same machine.
#[derive(Debug, Parser)]
#[command(name = "keeplog-benches")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Runs of each measurement.
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Where logs are made: a new directory inside it, removed at the end. Default: the system's directory for such.
    #[arg(long, global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Appends: buffered and synced, one writer and many.
    Append(Append),
    /// One pass of the cleaner over fresh copies of a log, every output on stable storage before the clock stops. What
    /// survives is checked after every run.
    Clean(Clean),
    /// Commits and fetches of the offset store: durable, answered later, from memory; other stores beside them.
    Commits(Commits),
    /// Loads the offset cache from its logs.
    Reload(Reload),
    /// All figures of the offset store on one page: loads, snapshots, commits and fetches.
    Offsets(Offsets),
    /// Loads the offset cache from logs of many shapes, beside a plain replay of the same logs into a map.
    Load(Load),
    /// Commits at full speed with the background cleaner at work, and prints for every minute what disk, memory and latencies
    /// came to.
    Soak(Soak),
    /// What a store of many logs costs in which nothing happens, in time of a processor.
    Idle(Idle),
    /// Only makes a log, closed cleanly, to be measured with other tools.
    Make(Make),
    /// Pages with tables and pictures: the large table of the cleaner, or any page made anew from its JSON.
    Report {
        #[command(subcommand)]
        what: Report,
    },
    /// How time and memory of a pass grow with the size of a log, its keys, and the number of logs.
    Growth(Growth),
    /// The cleaner's dedup set by itself: ns an insert, bytes a key.
    Dedup(Dedup),
    /// What a pass writes over a large clean log with a little that is new, against what it has to.
    Amplification(Amplification),
    /// Appends to a log while a pass runs over it, against appends while none does.
    Latency(Latency),
    /// Runs a program and prints, as JSON, how long it took and how much memory it had at its peak.
    #[command(hide = true)]
    Measure {
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Report {
    /// `keeplog compact` as a whole process over logs of many shapes, other cleaners beside it.
    Clean(ReportClean),
    /// Makes page and picture of reports anew, beside each.
    Render {
        /// The JSON files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Publish {
    /// Also write the report's JSON, page and picture, into this directory (docs/benchmarks is the one that is kept).
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportClean {
    /// Only the logs of these names; default all.
    #[arg(long, value_delimiter = ',', value_parser = SUITE.map(|entry| entry.name))]
    pub(crate) only: Vec<String>,
    /// Bytes and keys of each log, times this.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub(crate) scale: f64,
    /// What the page cache holds when a run begins.
    #[arg(long, value_enum, default_value_t = Cache::Warm)]
    pub(crate) cache: Cache,
    /// Numbers of threads that work on a pass, each measured by itself.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    pub(crate) threads: Vec<u16>,
    /// Run a real Kafka's cleaner over the same logs as well: the path of the script that wraps it, such as
    /// interop/yardstick. It makes the logs, too, but for those with transactions.
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) beside: Option<PathBuf>,
    /// Run another cleaner over the same logs as well, by a program that takes `bench-clean DIR SEGMENT_MIB RUNS`, such as
    /// krabka-log=benches/peers/krabka.
    #[arg(long, value_name = "NAME=PROGRAM", value_parser = peer)]
    pub(crate) peer: Vec<Peer>,
    /// The `keeplog` command; default the one beside this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) keeplog: Option<PathBuf>,
    /// Check what survives, after every run.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) publish: Publish,
}

/// Another cleaner.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) script: PathBuf,
}

fn peer(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, script)) if !name.is_empty() && !script.is_empty() => Ok(Peer { name: name.to_owned(), script: script.into() }),
        _ => Err("give a name and a program, as NAME=PROGRAM".to_owned()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if number > 0.0 && number <= 1.0 { Ok(number) } else { Err("give a number above 0 and at most 1".to_owned()) }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Growth {
    /// Only along these axes; default all.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<Axis>,
    /// Size of the largest log, MiB [default: what leaves two thirds of the free disk alone, at most 16384].
    #[arg(long = "max", value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_mib: Option<u64>,
    /// Most keys of a log.
    #[arg(long, default_value_t = 50_000_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) max_keys: u32,
    /// Most logs.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) max_logs: u64,
    /// Numbers of threads that work on a pass, each measured by itself.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    pub(crate) threads: Vec<u16>,
    /// The `keeplog` command; default the one beside this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) keeplog: Option<PathBuf>,
    /// Check what survives, after every run over a single log.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) publish: Publish,
}

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Axis {
    Size,
    Keys,
    Logs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Commits {
    /// Seconds of each run.
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Groups that commit, where a line does not say how many.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) groups: u32,
    /// Another store beside it, by a program that takes `DIR THREADS SECONDS`, such as
    /// redb=benches/stores/target/release/redb.
    #[arg(long, value_name = "NAME=PROGRAM", value_parser = peer)]
    pub(crate) peer: Vec<Peer>,
    /// Only the lines with this in their names.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) only: String,
    #[command(flatten)]
    pub(crate) publish: Publish,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Dedup {
    /// Keys of a set.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000_000, 50_000_000], value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) keys: Vec<u64>,
    #[command(flatten)]
    pub(crate) publish: Publish,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Amplification {
    /// Bytes of the log, times this: 1 is 10 GiB that are clean and 100 MiB that are not.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub(crate) scale: f64,
    /// `segment.bytes`, MiB.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..2048))]
    pub(crate) segment_mib: u32,
    /// Threads that work on the pass.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) publish: Publish,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Seconds of appends without a pass, half of them before it and half behind it.
    #[arg(long, default_value_t = 4.0)]
    pub(crate) seconds: f64,
    /// Buffered records a second.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..))]
    pub(crate) records_per_s: u32,
    /// Threads that work on the pass.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) publish: Publish,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Make {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// The partition directory to make, named TOPIC-PARTITION, in a data directory of its own.
    #[arg(value_name = "DIR")]
    pub(crate) log: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Soak {
    /// How long it runs.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) minutes: f64,
    /// Committed offsets, a hundred of them in each batch.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) keys: u32,
    /// Writers at the same time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) writers: u32,
    /// Partitions of the offsets topic.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) partitions: u32,
    /// `segment.bytes`, MiB.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..2048))]
    pub(crate) segment_mib: u32,
    /// `min.cleanable.dirty.ratio`. A pass writes what is live beside what is there, so with a half the disk holds three times
    /// the live data while it does.
    #[arg(long, default_value_t = 0.2)]
    pub(crate) dirty_ratio: f64,
    /// `log.cleaner.threads`.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Acknowledge commits once they are written, not once they are synced.
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Let passes rest while appends take longer beside them.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub(crate) yield_to_appends: bool,
    /// Fail if the disk held more than three times the live data and two segments, if memory grew by more than a quarter and
    /// 16 MiB after the first minute, or if no pass came to its end.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Idle {
    /// Logs of one record each.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) logs: u32,
    /// How long the processor's time is counted.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// `log.cleaner.backoff.ms`.
    #[arg(long, default_value_t = 15_000)]
    pub(crate) backoff_ms: u64,
    /// `log.flush.offset.checkpoint.interval.ms`.
    #[arg(long, default_value_t = 60_000)]
    pub(crate) checkpoint_ms: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Append {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Seconds after which a run ends, if it has not written its bytes by then.
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Numbers of writers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    pub(crate) writers: Vec<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Clean {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Run a real Kafka's cleaner over the same log as well: the path of the script that wraps it (its commands
    /// `bench-make` and `bench-clean` are used, and the log is the one that it makes).
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) beside: Option<PathBuf>,
    /// Numbers of threads that work on a pass, each measured by itself.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    pub(crate) threads: Vec<usize>,
    /// Check what survives, after every run.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub(crate) check: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Reload {
    /// Committed offsets.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) keys: u32,
    /// How often each is committed.
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: u32,
    /// Partitions of a group that are committed together, in one batch.
    #[arg(long, default_value_t = 1)]
    pub(crate) records_per_batch: u32,
    /// Partitions of the offsets topic: loaded at the same time, as far as there are processors (fewer: `taskset`).
    #[arg(long, default_value_t = 4)]
    pub(crate) partitions: u32,
    /// `segment.bytes`, MiB.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..2048))]
    pub(crate) segment_mib: u32,
}

impl Reload {
    /// Of `scale` times ten million committed offsets.
    pub(crate) fn of_scale(scale: f64) -> Self {
        let keys = ((scale * 1e7) as u32).max(1);
        Self { keys, rounds: 1, records_per_batch: 20, partitions: 4, segment_mib: 10 }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Offsets {
    #[command(flatten)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) commits: Commits,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// Which of the shapes: A (10,000 groups x 20 topics x 50 partitions, cleaned, one record a batch), B (20 a batch), C (a fifth
    /// of the groups, five records each), D (C in zstd, 100 a batch), A50 (A in 50 logs), E (200,000 groups x 1 x 50), F (1,000,000
    /// groups x 10 topics x 1). All, unless some are named.
    #[arg(long, value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Groups, and so records, against the ten million of each shape.
    #[arg(long, default_value_t = 0.1)]
    pub(crate) scale: f64,
    /// Threads to load with.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    pub(crate) threads: Vec<usize>,
    /// Leave out the plain replay into a map.
    #[arg(long)]
    pub(crate) fast_only: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShapeArgs {
    /// Size of the log, MiB.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Distinct keys of 25 bytes, drawn evenly.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    keys: u32,
    /// Records in a batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    records_per_batch: u32,
    /// Bytes of a value, a quarter of them random.
    #[arg(long, default_value_t = 24)]
    value_bytes: usize,
    /// How batches are compressed.
    #[arg(long, value_enum, default_value_t = Codec::None)]
    codec: Codec,
    /// `segment.bytes`, MiB.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..2048))]
    segment_mib: u32,
    /// A fifth of the batches is in transactions.
    #[arg(long)]
    transactions: bool,
}

impl ShapeArgs {
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            mib: self.mib,
            keys: self.keys,
            records_per_batch: self.records_per_batch,
            value_bytes: self.value_bytes,
            codec: self.codec.into(),
            segment_mib: self.segment_mib,
            transactions: self.transactions,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Codec> for record::Codec {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::None => Self::None,
            Codec::Gzip => Self::Gzip,
            Codec::Snappy => Self::Snappy,
            Codec::Lz4 => Self::Lz4,
            Codec::Zstd => Self::Zstd,
        }
    }
}
