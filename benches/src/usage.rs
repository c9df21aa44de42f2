//! What this process takes, as the system counts it (Linux).

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::Outcome;

/// The unit in which the system counts time, of which a second has a hundred.
const TICKS_PER_S: f64 = 100.0;

/// Bytes of memory that are resident.
pub(crate) fn resident_bytes() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("/proc/self/status has no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

/// Time that its threads have run so far.
pub(crate) fn processor_time() -> Outcome<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may hold spaces. Of what follows, fields 12 and 13 are the ticks in user and system mode.
    let fields = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse().unwrap_or(0.0)).sum();
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_S))
}

/// Bytes of files.
#[derive(Clone, Copy, Default)]
pub(crate) struct DiskBytes {
    /// Those that are in use.
    pub(crate) used: u64,
    /// Outputs of a pass that are not in their places yet, and what they have replaced.
    pub(crate) passing: u64,
}

/// What the files below `dir` take. Files that go meanwhile do not count.
pub(crate) fn disk_bytes(dir: &Path) -> DiskBytes {
    let mut sum = DiskBytes::default();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let below = disk_bytes(&entry.path());
                sum.used += below.used;
                sum.passing += below.passing;
            }
            Ok(metadata) => {
                let name = entry.file_name();
                let is_passing = [".cleaned", ".swap", ".deleted"].iter().any(|suffix| name.to_string_lossy().ends_with(suffix));
                *if is_passing { &mut sum.passing } else { &mut sum.used } += metadata.len();
            }
            Err(_) => {}
        }
    }
    sum
}
