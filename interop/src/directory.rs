//! Partition directories: copies of them, logs over them, and whether what lies there is sound.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use keeplog::inspect::index::{OffsetIndex, TimeIndex, TxnIndex};
use keeplog::inspect::storage::{FixedClock, RealStorage, Storage};
use keeplog::{Log, LogOptions};

use crate::dump;

/// Name of every partition directory here.
pub(crate) const PARTITION: &str = "t-0";

/// The files of a segment.
pub(crate) const SEGMENT_FILES: [&str; 4] = ["log", "index", "timeindex", "txnindex"];

/// Copies the plain files of `from` into the new directory `to`, with their times.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let said = || format!("could not copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to).with_context(said)?;
    for entry in fs::read_dir(from).with_context(said)? {
        let entry = entry.with_context(said)?;
        if entry.file_type()?.is_file() {
            let copy = to.join(entry.file_name());
            fs::copy(entry.path(), &copy).with_context(said)?;
            // The cleaner goes by file times.
            let modified = entry.metadata().and_then(|of| of.modified()).with_context(said)?;
            File::options().write(true).open(copy).and_then(|file| file.set_modified(modified)).with_context(said)?;
        }
    }
    Ok(())
}

/// Copies the directory `from` with all below it to the new directory `to`.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A data directory with a copy of `partition` in it, closed cleanly or not as far as a mark tells. Returns the copy.
pub(crate) fn data_dir(root: &Path, partition: &Path, clean: bool, recovery_point: u64) -> Result<PathBuf> {
    let dir = root.join(PARTITION);
    copy(partition, &dir)?;
    fs::write(root.join("recovery-point-offset-checkpoint"), format!("0\n1\nt 0 {recovery_point}\n"))?;
    if clean {
        fs::write(root.join(".kafka_cleanshutdown"), r#"{"version":0,"brokerEpoch":-1}"#)?;
    }
    Ok(dir)
}

/// Writes down that the log in a data directory starts at `start`.
pub(crate) fn write_start(root: &Path, start: u64) -> Result<()> {
    if start > 0 {
        fs::write(root.join("log-start-offset-checkpoint"), format!("0\n1\nt 0 {start}\n"))?;
    }
    Ok(())
}

/// Opens the log in `dir` at the time `now_ms`.
pub(crate) fn open(dir: &Path, now_ms: i64, options: LogOptions) -> Result<Log> {
    let storage: Arc<dyn Storage> = Arc::new(FixedClock::new(Arc::new(RealStorage::new()), now_ms));
    Log::open_with(storage, dir, options).map_err(describe)
}

/// An error of Keeplog with its causes.
pub(crate) fn describe(error: keeplog::Error) -> anyhow::Error {
    anyhow::Error::new(error)
}

/// Opens a log that was closed once more, reads every byte of it, and checks its indexes. What is wrong, in words.
pub(crate) fn check_sound(dir: &Path, now_ms: i64, options: LogOptions, end_offset: u64) -> Result<Vec<String>> {
    let mut found = check_indexes(dir, end_offset)?;
    let log = open(dir, now_ms, options.recovery_full_scan(true))?;
    let report = log.recovery_report();
    if !(report.cuts.is_empty() && report.rebuilt.is_empty() && report.damage.is_empty() && report.removed.is_empty()) {
        found.push(format!("opened again, recovery had something to do: {report}"));
    }
    if log.end_offset() != end_offset {
        found.push(format!("opened again, it ends at {} instead of {end_offset}", log.end_offset()));
    }
    for record in log.read_from(log.start_offset()).map_err(describe)? {
        if let Err(error) = record {
            found.push(format!("opened again, it can't be read: {error:?}"));
        }
    }
    log.close().map_err(describe)?;
    Ok(found)
}

/// Checks the index files in `dir` against its logs.
fn check_indexes(dir: &Path, end_offset: u64) -> Result<Vec<String>> {
    let logs = dump::names(dir, &["log"])?;
    let mut found = Vec::new();
    for (i, name) in logs.iter().enumerate() {
        let base = base_offset(name)?;
        let next = logs.get(i + 1).map_or(Ok(end_offset), |name| base_offset(name))?;
        let path = dir.join(name);
        let log_bytes = u32::try_from(fs::metadata(&path)?.len())?;
        let read = |extension| fs::read(path.with_extension(extension)).ok();
        let mut note = |what: &str, result: Result<(), keeplog::inspect::index::IndexError>| {
            if let Err(error) = result {
                found.push(format!("{what} index of segment {base}: {error}"));
            }
        };
        if let Some(bytes) = read("index") {
            note("offset", OffsetIndex::new(base, bytes).and_then(|index| index.check(log_bytes, next)));
        }
        if let Some(bytes) = read("timeindex") {
            note("time", TimeIndex::new(base, bytes).and_then(|index| index.check(next)));
        }
        if let Some(bytes) = read("txnindex") {
            note("transaction", TxnIndex::new(bytes).check(base, next));
        }
    }
    Ok(found)
}

/// Base offset of the segment whose file has this name.
pub(crate) fn base_offset(name: &str) -> Result<u64> {
    let digits = name.split('.').next().unwrap_or_default();
    digits.parse().with_context(|| format!("{name} is no segment file"))
}
