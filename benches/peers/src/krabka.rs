//! krabka-log's cleaner as a yardstick for `keeplog-benches report clean --peer krabka-log=PROGRAM`.
//!
//! `bench-clean DIR SEGMENT_MIB RUNS` cleans copies of the partition directory DIR and prints a line of JSON for each: how
//! long the pass took, with its outputs on stable storage as the crate puts them there, how long it took to open the log
//! before, and how many bytes of log there were before and after.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use krabka_log::{CleanupPolicy, CompactionContext, Log, LogConfig};
use krabka_units::prelude::mebibytes;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bench-clean", dir, segment_mib, runs] => clean_all(Path::new(dir), segment_mib, runs),
        _ => Err("usage: krabka bench-clean DIR SEGMENT_MIB RUNS".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("krabka: {error}");
            ExitCode::from(2)
        }
    }
}

fn clean_all(dir: &Path, segment_mib: &str, runs: &str) -> Result<(), Box<dyn Error>> {
    let (segment_mib, runs) = (segment_mib.parse()?, runs.parse()?);
    let root = PathBuf::from(format!("{}.copy", dir.display()));
    for _ in 0..runs {
        let ended = clean(dir, &root, segment_mib);
        fs::remove_dir_all(&root)?;
        ended?;
    }
    Ok(())
}

fn clean(dir: &Path, root: &Path, segment_mib: u32) -> Result<(), Box<dyn Error>> {
    let copy = root.join("t-0");
    fs::create_dir_all(&copy)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), copy.join(entry.file_name()))?;
        }
    }
    Command::new("sync").status()?;
    let bytes_before = log_bytes(&copy)?;
    let config = LogConfig { cleanup_policy: CleanupPolicy::Compact, segment_size: mebibytes(segment_mib), ..LogConfig::default() };

    let began = Instant::now();
    let mut log = Log::open(&copy, config)?;
    let open_seconds = began.elapsed().as_secs_f64();
    let began = Instant::now();
    log.compact(&CompactionContext { now: SystemTime::now(), last_stable_offset: log.lso() })?;
    let seconds = began.elapsed().as_secs_f64();
    log.close();

    let bytes_after = log_bytes(&copy)?;
    println!(
        "{{\"seconds\": {seconds}, \"open_seconds\": {open_seconds}, \"bytes_before\": {bytes_before}, \"bytes_after\": {bytes_after}}}"
    );
    Ok(())
}

/// Bytes of the `.log` files.
fn log_bytes(dir: &Path) -> Result<u64, Box<dyn Error>> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
