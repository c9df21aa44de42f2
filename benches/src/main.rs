//! Whole-run measurements: how fast logs are appended to, cleaned, and loaded into the offset cache.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program that prints its result")]
#![allow(clippy::disallowed_methods, reason = "directories are made, copied and removed, and time is taken, beside what is measured")]

mod append;
mod args;
mod beside;
mod clean;
mod idle;
mod latencies;
mod process;
mod reload;
mod soak;
mod work;

use std::process::ExitCode;

use clap::Parser;
use keeplog_benches::Figures;
use keeplog_engine::Log;
use serde_json::Value;

use args::{Args, Command};

/// What a measurement may fail with: shown to whoever runs it, and handled by nobody.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let measured = match &args.command {
        Command::Append(append) => append::run(append, &args.common),
        Command::Clean(clean) => clean::run(clean, &args.common),
        Command::Reload(reload) => reload::run(reload, &args.common),
        Command::Make(make) => make_log(make).map(|()| Vec::new()),
        Command::Soak(soak) => soak::run(soak, &args.common).map(|()| Vec::new()),
        Command::Idle(idle) => idle::run(idle, &args.common).map(|()| Vec::new()),
    };
    match measured {
        Ok(all) if all.is_empty() => ExitCode::SUCCESS, // it has printed what there was, as it came
        Ok(all) => {
            print(&all, args.common.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("keeplog-benches: {error}");
            ExitCode::from(2)
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
    println!("{}", Figures::header());
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
