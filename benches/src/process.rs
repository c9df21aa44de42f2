//! A program as a whole process: how long it takes from its start to its end, and how much memory it has at its peak.
//!
//! The peak that the kernel tells is the largest of all children that were waited for, and a child begins with that of the
//! process that started it. So each run is started by a process of its own: this program again, as `measure`, which is small
//! and has but one child.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use keeplog_engine::storage::{RealStorage, Storage};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Outcome;

/// How a process ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// From its start to its end.
    pub(crate) seconds: f64,
    /// What it says, where it is `keeplog compact`, that its passes took.
    pub(crate) pass_seconds: f64,
    /// On processors, all threads together.
    pub(crate) cpu_seconds: f64,
    /// Resident memory at its peak, the program's own pages among it.
    pub(crate) peak_bytes: u64,
    /// What it printed.
    pub(crate) printed: String,
}

impl Ran {
    /// What was measured.
    pub(crate) fn figures(&self) -> Value {
        json!({"seconds": self.seconds, "pass_seconds": self.pass_seconds, "cpu_seconds": self.cpu_seconds, "peak_bytes": self.peak_bytes})
    }

    /// The lines of JSON that it printed.
    pub(crate) fn json(&self) -> Outcome<Vec<Value>> {
        Ok(self.printed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }
}

/// Runs `program` in a process of its own.
pub(crate) fn run(program: &Path, args: &[&OsStr]) -> Outcome<Ran> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("measure").arg("--").arg(program).args(args);
    let ended = command.stderr(Stdio::inherit()).output()?;
    if !ended.status.success() {
        return Err(format!("{} {args:?} ended with {}", program.display(), ended.status).into());
    }
    let mut ran: Ran = serde_json::from_slice(&ended.stdout)?;
    ran.pass_seconds = ran.json()?.iter().filter_map(|pass| pass["seconds"].as_f64()).sum();
    Ok(ran)
}

/// The other side: starts the program, waits for it, and says how it ran.
pub(crate) fn measure(words: &[std::ffi::OsString]) -> Outcome<String> {
    let (program, args) = words.split_first().ok_or("measure needs a program")?;
    let clock = RealStorage::new();
    let began = clock.monotonic();
    let ended = Command::new(program).args(args).stderr(Stdio::inherit()).output().map_err(|e| format!("{}: {e}", program.display()))?;
    let seconds = (clock.monotonic() - began).as_secs_f64();
    if !ended.status.success() {
        return Err(format!("{} ended with {}", program.display(), ended.status).into());
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let ran = Ran {
        seconds,
        pass_seconds: 0.0,
        cpu_seconds: time(usage.user_time()) + time(usage.system_time()),
        peak_bytes: u64::try_from(usage.max_rss())? * RSS_UNIT_BYTES,
        printed: String::from_utf8(ended.stdout)?,
    };
    Ok(serde_json::to_string(&ran)?)
}

/// What `ru_maxrss` counts in.
const RSS_UNIT_BYTES: u64 = if cfg!(target_vendor = "apple") { 1 } else { 1024 };

/// The `keeplog` command: the one that is given, or else the one beside this program.
pub(crate) fn keeplog(given: Option<&Path>) -> Outcome<PathBuf> {
    let path = match given {
        Some(path) => path.to_path_buf(),
        None => std::env::current_exe()?.with_file_name("keeplog"),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("there is no {}: build it (cargo build --release -p keeplog-cli), or say where it is (--keeplog PATH)", path.display())
        .into())
}
