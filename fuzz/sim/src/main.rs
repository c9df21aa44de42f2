//! The simulator's command.
#![allow(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, Subcommand};
use keeplog_sim::life::{Failure, Life, Tally, run};
use keeplog_sim::shrink::shrink;
use keeplog_sim::{crowd, exhaustive, random};

/// Runs the whole of Keeplog on a simulated disk, takes its power away, and looks whether anything acknowledged is lost.
#[derive(Parser)]
#[command(name = "keeplog-sim")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random lives, one a seed: many logs, many crashes, faults mixed in.
    Random {
        /// First seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// How many.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The disk never fails but by losing power.
        #[arg(long)]
        no_faults: bool,
    },
    /// One seed again, with everything that it does. If it fails, also the shortest life that does.
    Replay {
        /// The seed.
        seed: u64,
        /// As for `random`.
        #[arg(long)]
        no_faults: bool,
    },
    /// Small histories, crashed at every change and sync, with every combination of what the disk may have kept.
    Exhaustive {
        /// Only these.
        scripts: Vec<String>,
        /// Say what they do, and do no more.
        #[arg(long)]
        show: bool,
    },
    /// Plants each defect in turn, and looks whether it is found.
    #[cfg(feature = "planted")]
    Defects {
        /// Only those whose name has this in it.
        #[arg(default_value = "")]
        part: String,
    },
}

fn main() -> ExitCode {
    // A life that panics is reported with its seed; the default message would only be in between.
    std::panic::set_hook(Box::new(|_| {}));
    let fine = match Args::parse().command {
        Command::Random { from, seeds, no_faults } => random_lives(from, seeds, !no_faults),
        Command::Replay { seed, no_faults } => replay(seed, !no_faults),
        Command::Exhaustive { scripts, show } => exhaust(&scripts, show),
        #[cfg(feature = "planted")]
        Command::Defects { part } => find_defects(&part),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn random_lives(from: u64, seeds: u64, with_faults: bool) -> bool {
    let (failures, total, done) = (crowd::Findings::default(), Mutex::new(Tally::default()), AtomicU64::new(0));
    crowd::each(seeds, |number| {
        let life = random::life(from + number, with_faults);
        match run(&life, None, false) {
            Ok(tally) => *total.lock().unwrap() += tally,
            Err(failure) => {
                println!("seed {}: {}", from + number, failure.what);
                failures.add(from + number, failure);
            }
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(500) {
            println!("{done} of {seeds} seeds");
        }
        false
    });
    let failures = failures.sorted();
    let Tally { steps, kills, power_failures, faults, calls, restored } = total.into_inner().unwrap();
    println!(
        "{seeds} seeds from {from}: {steps} steps, {calls} changes and syncs, {power_failures} power failures, {kills} kills, {faults} faults, \
         {restored} starts from snapshots"
    );
    println!("{} failed", failures.len());
    if let Some((seed, failure)) = failures.into_iter().next() {
        tell_shortest(seed, &random::life(seed, with_faults), failure);
        return false;
    }
    true
}

fn replay(seed: u64, with_faults: bool) -> bool {
    let life = random::life(seed, with_faults);
    match crowd::alone(|| run(&life, None, true)) {
        Ok(tally) => {
            println!("seed {seed}: nothing is wrong; {tally:?}");
            true
        }
        Err(failure) => {
            failure.trace.iter().for_each(|line| println!("{line}"));
            println!("seed {seed}, era {}: {}", failure.era, failure.what);
            tell_shortest(seed, &life, failure);
            false
        }
    }
}

fn tell_shortest(seed: u64, life: &Life, failure: Failure) {
    let (shortest, failure) = crowd::alone(|| shrink(life, failure, None));
    println!("\nthe shortest life of seed {seed} that fails; {:?}", shortest.settings);
    failure.trace.iter().for_each(|line| println!("{line}"));
    println!("{}\nagain: keeplog-sim replay {seed}", failure.what);
}

fn exhaust(names: &[String], show: bool) -> bool {
    let mut fine = true;
    for script in exhaustive::SCRIPTS.iter().filter(|script| names.is_empty() || names.iter().any(|name| name == script.name)) {
        if show {
            println!("== {}\n{}", script.name, exhaustive::trace(script).join("\n"));
            continue;
        }
        match exhaustive::crash_everywhere(script, None).and_then(|count| Ok((count, exhaustive::fail_everywhere(script, None)?))) {
            Ok((count, faults)) => println!(
                "{:<14} {:>5} crashes, {:>8} disks, {:>6} at most for one crash; {faults:>5} faults",
                script.name, count.crashes, count.disks, count.most
            ),
            Err(what) => {
                println!("{what}");
                fine = false;
            }
        }
    }
    fine
}

#[cfg(feature = "planted")]
fn find_defects(part: &str) -> bool {
    use keeplog_sim::defects;
    let planted: Vec<_> = defects::ALL.iter().filter(|planted| planted.name.contains(part)).collect();
    let mut missed = 0;
    for planted in &planted {
        match defects::find(planted, 0) {
            Some(found) => {
                let what: String = found.failure.what.chars().take(110).collect();
                println!("{:<78} {:>6} lives, seed {:>6}: {what}", planted.name, found.lives, found.seed);
            }
            None => {
                missed += 1;
                println!("{:<78} NOT FOUND in {} lives", planted.name, defects::LIVES_MAX);
            }
        }
    }
    println!("{} of {} found", planted.len() - missed, planted.len());
    missed == 0
}
