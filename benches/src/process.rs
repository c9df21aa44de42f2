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

/// Bytes of all files below `dir`. Files that go meanwhile do not count.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}
