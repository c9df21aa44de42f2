//! When and where a measurement was taken: as much as somebody needs who wants to repeat it.

use keeplog_engine::storage::{RealStorage, Storage};
use serde::{Deserialize, Serialize};

/// When, where and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// When it began, UTC.
    pub date: String,
    /// The command line, without the directories of its programs.
    pub command: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// The kernel.
    pub kernel: String,
    /// The load average over the minute before it began: what else the machine had to do.
    pub load: f64,
    /// Not optimized: the figures are of no use.
    pub debug_build: bool,
}

impl Taken {
    /// Here and now, by the command line of this process.
    #[must_use]
    pub fn now() -> Self {
        let cpu = read("/proc/cpuinfo");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok());
        Self {
            date: utc(RealStorage::new().now_ms()),
            command: command(std::env::args()),
            processor: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: memory_kib.unwrap_or(0_u64) / 1024,
            kernel: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
            load: read("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN),
            debug_build: cfg!(debug_assertions),
        }
    }
}

/// The text of a file that other systems may not have.
#[allow(clippy::disallowed_methods, reason = "the kernel's own files, not those that are measured")]
fn read(path: &str) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The value behind the first `name:`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// The arguments as one line. Where programs and temporary files lie is nobody's concern: of this program and of absolute
/// paths, also behind a `NAME=`, only the name is kept.
fn command(args: impl Iterator<Item = String>) -> String {
    let words = args.enumerate().map(|(at, word)| {
        let (given, path) = word.split_at(word.find("=/").map_or(0, |equals| equals + 1));
        match path.rsplit_once('/') {
            Some((_, name)) if at == 0 || path.starts_with('/') => format!("{given}{name}"),
            _ => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A time, in ms since the Unix epoch, as `2026-11-30 12:00 UTC`.
fn utc(ms: i64) -> String {
    let minutes = ms.div_euclid(60_000);
    let (days, minute_of_day) = (minutes.div_euclid(24 * 60), minutes.rem_euclid(24 * 60));
    // Years from March to February, in eras of 400 years: leap days come last.
    let from_march_0000 = days + 719_468;
    let (era, day_of_era) = (from_march_0000.div_euclid(146_097), from_march_0000.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minute_of_day / 60, minute_of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        for (ms, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00 UTC"),
            (951_868_800_000, "2000-03-01 00:00 UTC"),
            (1_760_000_000_000, "2025-10-09 08:53 UTC"),
            (1_798_761_599_999, "2026-12-31 23:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(ms), date);
        }
    }

    #[test]
    fn a_command_names_no_place() {
        let words = ["some/where/keeplog-benches", "report", "--beside", "interop/yardstick", "--dir", "/fast/disk"];
        assert_eq!(command(words.into_iter().map(str::to_owned)), "keeplog-benches report --beside interop/yardstick --dir disk");
        let words = ["keeplog-benches", "--peer", "a=/some/where/a", "--peer", "b=beside/b", "--dir=/fast/disk"];
        assert_eq!(command(words.into_iter().map(str::to_owned)), "keeplog-benches --peer a=a --peer b=beside/b --dir=disk");
    }

    #[test]
    fn fields_are_found_by_their_name() {
        let text = "model\t\t: 1\nmodel name\t: Some CPU: fast\nmodel name\t: another\n";
        assert_eq!(field(text, "model name"), Some("Some CPU: fast"));
        assert_eq!(field(text, "flags"), None);
    }
}
