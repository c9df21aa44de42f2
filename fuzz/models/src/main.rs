//! Runs the models: `cargo run --release --manifest-path fuzz/models/Cargo.toml -- --help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use keeplog_models::run::{self, Choice, Model, Outcome};
use keeplog_models::{ALL, find};

/// Runs models of what threads do to a log at the same time, each under many schedules. Exit status: 0 all held, 1 one
/// did not, 2 could not run.
#[derive(Debug, Parser)]
struct Args {
    /// Schedules of each model: half of them chosen at random, half by priorities (PCT).
    #[arg(long, default_value_t = 1000)]
    iterations: usize,
    /// Where the choices start: the same seed explores the same schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs the one schedule in this file, of the one model that is named.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Models to run; all if none is named.
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let models = match args.models.iter().map(|name| find(name).ok_or(name)).collect::<Result<Vec<_>, _>>() {
        Ok(models) if models.is_empty() => ALL.to_vec(),
        Ok(models) => models,
        Err(unknown) => {
            eprintln!("there is no model {unknown}; there are: {}", ALL.iter().map(|model| model.name).collect::<Vec<_>>().join(", "));
            return ExitCode::from(2);
        }
    };
    let held = match (&args.replay, &models[..]) {
        (None, models) => models.iter().all(|&model| explore(model, &args)),
        (Some(file), &[model]) => run::replay(model, file).failure.is_none(),
        (Some(_), _) => {
            eprintln!("--replay runs one schedule: name the one model that it is of");
            return ExitCode::from(2);
        }
    };
    if held { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Whether the model held.
fn explore(model: Model, args: &Args) -> bool {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../artifacts/models"));
    std::fs::create_dir_all(dir).expect("the directory for failing schedules can be made");
    for (choice, schedules) in [(Choice::Random, args.iterations.div_ceil(2)), (Choice::Pct, args.iterations / 2)] {
        let Outcome { schedules, took, failure } = run::explore(model, choice, args.seed, schedules, dir);
        let name = model.name;
        println!("{name:<24} {choice:<7?} {schedules:>7} schedules in {:>6.1} s  {}", took.as_secs_f64(), model.claim);
        if let Some(file) = failure {
            println!("{name} FAILED in schedule {schedules} of seed {}; again: --replay {} {name}", args.seed, file.display());
            return false;
        }
    }
    true
}
