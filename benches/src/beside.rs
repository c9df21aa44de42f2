//! A real Kafka's cleaner over the same log, through a script that wraps its classes:
//! `bench-make DIR MIB KEYS RECORDS_PER_BATCH VALUE_BYTES CODEC SEGMENT_MIB` and `bench-clean DIR SEGMENT_MIB RUNS`, which
//! prints one JSON line for each run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use keeplog_benches::{Figures, Run, Shape};
use serde_json::Value;

use crate::{Outcome, clean};

/// Makes the log in `dir`.
pub(crate) fn make(script: &Path, dir: &Path, shape: Shape) -> Outcome<()> {
    std::fs::create_dir_all(dir)?;
    let numbers = [
        shape.mib,
        shape.keys.into(),
        shape.records_per_batch.into(),
        shape.value_bytes as u64,
        shape.codec.bits().into(),
        shape.segment_mib.into(),
    ];
    let mut command = Command::new(script);
    command.arg("bench-make").arg(dir).args(numbers.map(|number| number.to_string()));
    output(&mut command)?;
    if clean::has_log(dir) { Ok(()) } else { Err(format!("{} made no log in {}", script.display(), dir.display()).into()) }
}

/// Cleans copies of `dir`.
pub(crate) fn clean(script: &Path, dir: &Path, segment_mib: u32, runs: u32) -> Outcome<Figures> {
    let mut command = Command::new(script);
    command.arg("bench-clean").arg(dir).args([segment_mib.to_string(), runs.to_string()]);
    let text = output(&mut command)?;
    let mut all = Vec::new();
    for line in text.lines() {
        let run: Value = serde_json::from_str(line)?;
        let (seconds, bytes) = (run["seconds"].as_f64(), run["bytes_before"].as_u64());
        let (Some(seconds), Some(bytes)) = (seconds, bytes) else { return Err(format!("no seconds and bytes_before in {line}").into()) };
        all.push(Run { time: Duration::from_secs_f64(seconds), bytes, records: 0 });
    }
    if all.is_empty() {
        return Err(format!("{} bench-clean printed no run", script.display()).into());
    }
    Ok(Figures::new("clean, Kafka", all))
}

fn output(command: &mut Command) -> Outcome<String> {
    let ended = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !ended.status.success() {
        return Err(format!("{command:?} ended with {}", ended.status).into());
    }
    Ok(String::from_utf8(ended.stdout)?)
}
