//! The page cache before a run: warm or cold, as told, and how much of a log is in it.
//!
//! What was copied long ago may have been put out of memory since, by nobody's command; so a warm log is read right before the
//! run, and what is resident is looked up. New pages for what a run writes can be dear on virtual machines, whose host has to
//! find them first; so as much memory is touched beforehand.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::Serialize;

use crate::{Outcome, work};

/// Memory that is touched beforehand beside a log's own size.
const TOUCHED_BYTES: u64 = 256 << 20;
const PAGE_BYTES: usize = 4096;

/// What the page cache holds of a log when a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cache {
    /// All of it.
    Warm,
    /// Nothing of it.
    Cold,
}

impl Cache {
    /// Brings the files below `dir` into this state, everything that was written before on its way to the disk. Returns the
    /// share of them that is resident, 0 to 1; `None` where that can't be told (it takes the program `fincore`).
    pub(crate) fn prepare(self, dir: &Path) -> Outcome<Option<f64>> {
        let files = files(dir)?;
        work::settle()?;
        touch(bytes(&files)? + TOUCHED_BYTES);
        match self {
            Self::Warm => {
                for file in &files {
                    read(file)?;
                }
            }
            Self::Cold => {
                for file in &files {
                    posix_fadvise(File::open(file)?, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
                }
            }
        }
        Ok(resident(&files)?)
    }
}

/// All files below `dir`.
pub(crate) fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            all.append(&mut files(&path)?);
        } else {
            all.push(path);
        }
    }
    Ok(all)
}

/// Their sizes together.
pub(crate) fn bytes(files: &[PathBuf]) -> io::Result<u64> {
    files.iter().try_fold(0, |sum, file| Ok(sum + fs::metadata(file)?.len()))
}

fn read(path: &Path) -> io::Result<()> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 20]);
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Writes to so much memory and gives it back, but never to more than a quarter of what is there: the log itself is to stay.
fn touch(bytes: u64) {
    let available_kib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    let bytes = bytes.min(available_kib.unwrap_or(0) * 1024 / 4);
    let mut memory = vec![0_u8; usize::try_from(bytes).unwrap_or(0)];
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// The share of the files' bytes that is in memory.
fn resident(files: &[PathBuf]) -> io::Result<Option<f64>> {
    let total = bytes(files)?;
    if total == 0 {
        return Ok(None);
    }
    let mut pages = 0;
    // Not all names at once: a command line has its limit.
    for some in files.chunks(500) {
        let ended = Command::new("fincore").args(["--noheadings", "--raw", "--bytes", "--output", "RES"]).args(some).output();
        let Ok(ended) = ended else { return Ok(None) };
        if !ended.status.success() {
            return Ok(None);
        }
        pages += String::from_utf8_lossy(&ended.stdout).lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum::<u64>();
    }
    // Pages are whole, files need not be.
    Ok(Some((pages as f64 / total as f64).min(1.0)))
}
