//! Judges Keeplog by a real Kafka: its cleaner, its recovery, its tools, its broker. See README.md.
#![forbid(unsafe_code)]

mod broker;
mod clean;
mod directory;
mod dump;
mod many;
mod open;
mod oracle;
mod recovery;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use oracle::Oracle;

/// Judges Keeplog by a real Kafka.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random logs, three passes each: Keeplog must leave what Kafka's cleaner left.
    Clean {
        /// First seed.
        #[arg(long)]
        from: u64,
        /// One past the last seed.
        #[arg(long)]
        to: u64,
        /// Keep the directories of the seeds that differ here.
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// The same for logs in the old record formats.
    Legacy {
        /// How many times three logs.
        #[arg(long)]
        seeds: u64,
        /// Keep the directories of the logs that differ here.
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// Damaged directories, 34 a seed: recovery must end as Kafka's, but where Kafka loses or hides what can be kept.
    Recovery {
        /// First seed.
        #[arg(long)]
        from: u64,
        /// One past the last seed.
        #[arg(long)]
        to: u64,
    },
    /// Random logs that Keeplog wrote: Kafka must open, dump and accept them.
    Open {
        /// How many.
        #[arg(long)]
        seeds: u64,
        /// First seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Keep the directories of the seeds that differ here.
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// A real broker: Keeplog lists what it has committed, and it answers what Keeplog has.
    Broker,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let oracle = Oracle::find()?;
    match command {
        Command::Clean { from, to, keep } => clean::random(&oracle, from..to, keep.as_deref()),
        Command::Legacy { seeds, keep } => clean::legacy(&oracle, seeds, keep.as_deref()),
        Command::Recovery { from, to } => recovery::run(&oracle, from..to),
        Command::Open { seeds, from, keep } => open::run(&oracle, from..from + seeds, keep.as_deref()),
        Command::Broker => broker::run(&oracle),
    }
}
