//! The command line.

use std::path::{Path, PathBuf};

use keeplog::Codec;

/// What to measure, and its size.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) what: String,
    pub(crate) mib: u64,
    pub(crate) keys: u64,
    pub(crate) commits: u64,
    pub(crate) records: u64,
    pub(crate) records_per_batch: u64,
    pub(crate) value_bytes: usize,
    pub(crate) codec: Codec,
    pub(crate) segment_mib: u32,
    pub(crate) runs: usize,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) beside: Option<PathBuf>,
    pub(crate) json: bool,
}

const USAGE: &str = "usage: append|clean|reload [--mib N] [--keys N] [--commits N] [--records N] [--records-per-batch N] [--value-bytes N]
       [--codec none|gzip|snappy|lz4|zstd] [--segment-mib N] [--runs N] [--dir D] [--beside ORACLE] [--json]";

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let what = arguments.next().filter(|w| ["append", "clean", "reload"].contains(&w.as_str())).ok_or(USAGE)?;
        let mut options = Self {
            what,
            mib: 256,
            keys: 200_000,
            commits: 2_000_000,
            records: 200_000,
            records_per_batch: 1,
            value_bytes: 24,
            codec: Codec::None,
            segment_mib: 10,
            runs: 5,
            dir: None,
            beside: None,
            json: false,
        };
        while let Some(name) = arguments.next() {
            if name == "--json" {
                options.json = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            options.set(&name, &value).ok_or_else(|| format!("{name} {value} is not understood\n{USAGE}"))?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "--mib" => self.mib = value.parse().ok()?,
            "--keys" => self.keys = value.parse().ok().filter(|&n| n > 0)?,
            "--commits" => self.commits = value.parse().ok()?,
            "--records" => self.records = value.parse().ok().filter(|&n| n > 0)?,
            "--records-per-batch" => self.records_per_batch = value.parse().ok().filter(|&n| n > 0)?,
            "--value-bytes" => self.value_bytes = value.parse().ok()?,
            "--segment-mib" => self.segment_mib = value.parse().ok().filter(|n| (1..2048).contains(n))?,
            "--runs" => self.runs = value.parse().ok().filter(|&n| n > 0)?,
            "--dir" => self.dir = Some(value.into()),
            "--beside" => self.beside = Some(value.into()),
            "--codec" => self.codec = codecs().into_iter().find(|c| c.name() == value)?,
            _ => return None,
        }
        Some(())
    }

    /// The directory to work in, and what removes it again.
    pub(crate) fn work_dir(&self) -> std::io::Result<(PathBuf, Option<tempfile::TempDir>)> {
        match &self.dir {
            Some(dir) => std::fs::create_dir_all(dir).map(|()| (dir.clone(), None)),
            None => tempfile::tempdir().map(|dir| (dir.path().to_path_buf(), Some(dir))),
        }
    }
}

fn codecs() -> [Codec; 5] {
    [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
}

/// Copies a partition directory, file times included.
pub(crate) fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let target = to.join(entry.file_name());
            std::fs::copy(entry.path(), &target)?;
            std::fs::OpenOptions::new().write(true).open(&target)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}
