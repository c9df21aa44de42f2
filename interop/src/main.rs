//! Judges Keeplog by a real Kafka: its cleaner, its recovery, its tools, its broker. See README.md.
#![forbid(unsafe_code)]

mod broker;
mod clean;
mod directory;
mod dump;
mod kafka;
mod legacy;
mod open;
mod pass;
mod recovery;
mod tally;
mod workers;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use kafka::{Kafka, Release};
use workers::Case;

/// Judges Keeplog by a real Kafka.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Keep the directories of the seeds that differ here.
    #[arg(long, global = true)]
    keep: Option<PathBuf>,
    /// Logs judged at the same time. Default: one for each core.
    #[arg(long, global = true)]
    jobs: Option<usize>,
}

#[derive(Subcommand)]
enum Command {
    /// All of it: this many random logs, one in six of an old format, and what goes with them.
    All {
        #[arg(long, default_value_t = 300)]
        logs: u64,
        /// First seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
    },
    /// Random logs, three passes each: Keeplog must leave what Kafka's cleaner left.
    Clean(FromTo),
    /// The same for logs in the old record formats, written by an older Kafka.
    Legacy(FromTo),
    /// Damaged directories, 36 a seed: recovery must end as Kafka's, but where Kafka loses or hides what can be kept.
    Recovery(FromTo),
    /// Random logs that Keeplog wrote: Kafka must open, dump and accept them.
    Open(FromTo),
    /// A real broker: it answers what Keeplog has, after a stop and after a crash, and Keeplog lists what it commits then.
    Broker,
    /// Real brokers, each filled with groups of every kind: Keeplog lists what they have answered, also after cleaning.
    Groups(FromTo),
    /// Measure: a broker that was filled in bulk loads its offsets partitions, and so does Keeplog.
    Load(broker::load::Arguments),
    /// One load of ours, for `load`.
    #[command(hide = true)]
    LoadOnce { dir: PathBuf, threads: usize },
}

#[derive(Args)]
struct FromTo {
    /// First seed.
    #[arg(long)]
    from: u64,
    /// One past the last seed.
    #[arg(long)]
    to: u64,
}

/// Which seeds to judge, how many at a time, and where to keep what differs.
struct Seeds {
    range: Range<u64>,
    jobs: usize,
    keep: Option<PathBuf>,
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.range.start, self.range.end)
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Command::LoadOnce { dir, threads } = &arguments.command {
        return broker::load::once(dir, *threads);
    }
    let jobs = arguments.jobs.unwrap_or_else(|| available_parallelism().map_or(1, usize::from)).max(1);
    let seeds = |from: u64, count: u64| Seeds { range: from..from + count, jobs, keep: arguments.keep.clone() };
    let of = |range: &FromTo| seeds(range.from, range.to.saturating_sub(range.from));
    let current = Kafka::start(Release::Current, jobs)?;
    let older = || Kafka::start(Release::Older, jobs);
    let rows = match &arguments.command {
        Command::All { logs, from } => vec![
            clean::run(&current, &seeds(*from, logs - logs / 6)),
            legacy::run(&older()?, &current, &seeds(*from, logs / 6)),
            recovery::run(&current, &seeds(*from, (logs / 200).max(3))),
            open::run(&current, &seeds(*from, (logs / 20).max(40))),
            broker::run(&current)?,
            broker::groups::run(&current, &seeds(*from, (logs / 300).max(1))),
        ],
        Command::Clean(range) => vec![clean::run(&current, &of(range))],
        Command::Legacy(range) => vec![legacy::run(&older()?, &current, &of(range))],
        Command::Recovery(range) => vec![recovery::run(&current, &of(range))],
        Command::Open(range) => vec![open::run(&current, &of(range))],
        Command::Broker => vec![broker::run(&current)?],
        Command::Groups(range) => vec![broker::groups::run(&current, &of(range))],
        Command::Load(load) => return broker::load::run(&current, load),
        Command::LoadOnce { .. } => return Ok(()), // above, without Kafka
    };
    tally::conclude(&rows)
}

/// Judges a seed in a directory of its own, which is kept if something differs. What stops the judging is a difference, too.
fn keeping(seeds: &Seeds, what: &str, seed: u64, judge: impl FnOnce(&Path) -> Result<Vec<Case>>) -> Vec<Case> {
    let failed = |error: anyhow::Error| Case::new("", vec![format!("{error:#}")]);
    let root = match tempfile::tempdir() {
        Ok(root) => root,
        Err(error) => return vec![failed(error.into())],
    };
    let mut cases = judge(root.path()).unwrap_or_else(|error| vec![failed(error)]);
    if let Some(keep) = &seeds.keep
        && cases.iter().any(|case| !case.differences.is_empty())
        && let Err(error) = directory::copy_tree(root.path(), &keep.join(format!("{what}-{seed}")))
    {
        cases.push(failed(error));
    }
    cases
}
