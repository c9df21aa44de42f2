//! Whole-run measurements: how fast logs are appended to, cleaned, and loaded into the offset cache, and what that takes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program that prints its result")]
#![allow(clippy::disallowed_methods, reason = "directories are made, copied and removed, and time is taken, beside what is measured")]

mod amplification;
mod append;
mod args;
mod beside;
mod cache;
mod clean;
mod commits;
mod dedup;
mod growth;
mod idle;
mod latencies;
mod latency;
mod load;
mod offsets;
mod process;
mod publish;
mod reference;
mod reload;
mod soak;
mod survivors;
mod table;
mod usage;
mod work;

use std::process::ExitCode;

use clap::Parser;
use keeplog_benches::Figures;
use keeplog_benches::report::Report;
use keeplog_engine::Log;
use serde_json::Value;

use args::{Args, Command};

/// What a measurement may fail with: shown to whoever runs it, and handled by nobody.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keeplog-benches: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Outcome<()> {
    let common = &args.common;
    let show = |figures: Vec<Figures>| print(&figures, common.json);
    let publish = |report: Report, to| publish::publish(&report, to, common.json);
    match &args.command {
        Command::Append(append) => append::run(append, common).map(show),
        Command::Clean(clean) => clean::run(clean, common).map(show),
        Command::Commits(commits) => publish(commits::run(commits, common)?, &commits.publish),
        Command::Reload(reload) => reload::run(reload, common).map(show),
        Command::Load(load) => load::run(load, common).map(show),
        Command::Offsets(offsets) => publish(offsets::run(offsets, common)?, &offsets.commits.publish),
        Command::Make(make) => make_log(make),
        Command::Report { what: args::Report::Clean(clean) } => publish(table::run(clean, common)?, &clean.publish),
        Command::Report { what: args::Report::Render { files } } => publish::render(files),
        Command::Growth(growth) => publish(growth::run(growth, common)?, &growth.publish),
        Command::Dedup(dedup) => publish(dedup::run(dedup, common)?, &dedup.publish),
        Command::Amplification(amplification) => publish(amplification::run(amplification, common)?, &amplification.publish),
        Command::Latency(latency) => publish(latency::run(latency, common)?, &latency.publish),
        Command::Soak(soak) => soak::run(soak, common),
        Command::Idle(idle) => idle::run(idle, common),
        Command::Measure { program } => {
            println!("{}", process::measure(program)?);
            Ok(())
        }
    }
}

fn make_log(args: &args::Make) -> Outcome<()> {
    std::fs::create_dir_all(&args.log)?;
    let shape = args.shape.shape();
    let log = Log::open(&args.log, shape.log_options())?;
    let records = shape.write(&log)?;
    log.close()?;
    println!("{}: {records} records", args.log.display());
    Ok(())
}

fn print(all: &[Figures], json: bool) {
    if json {
        println!("{}", Value::Array(all.iter().map(Figures::json).collect()));
        return;
    }
    if !all.is_empty() {
        println!("{}", Figures::header());
    }
    for figures in all {
        println!("{figures}");
    }
    for figures in all {
        let more = figures.more.as_object().into_iter().flatten();
        let more: Vec<String> = more.map(|(key, value)| format!("{key} {value}")).collect();
        if !more.is_empty() {
            println!("{}: {}", figures.name, more.join(", "));
        }
    }
}
