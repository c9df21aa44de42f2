//! What can happen to a directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::dump;

const HEADER_BYTES: u64 = 61;
/// Files of a segment, next to its log.
const INDEXES: [&str; 3] = ["index", "timeindex", "txnindex"];

/// Where the recovery point lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Zero,
    /// At the third segment.
    Middle,
    End,
    PastEnd,
}

type Damage = fn(&Victim, &mut Rng) -> Result<()>;

/// A directory with the `.log` files in it, ascending.
pub(super) struct Victim {
    pub(super) dir: PathBuf,
    pub(super) logs: Vec<PathBuf>,
}

/// Every damage by name, with the recovery point that Kafka and Keeplog are given.
pub(super) const ALL: [(&str, From, Damage); 36] = [
    ("untouched", From::Zero, |_, _| Ok(())),
    ("active-cut-in-batch", From::Zero, |v, _| shorten(v.active(), 5)),
    ("active-cut-in-header", From::Zero, |v, _| cut(v.active(), v.last_batch(v.active())? + 9)),
    ("active-cut-anywhere", From::Zero, |v, rng| cut(v.active(), rng.u64(..size(v.active())?))),
    ("active-cut-to-nothing", From::Zero, |v, _| cut(v.active(), 0)),
    ("active-last-batch-bit", From::Zero, |v, _| flip(v.active(), v.last_batch(v.active())? + HEADER_BYTES + 3)),
    ("active-middle-bit", From::Zero, |v, _| flip(v.active(), v.middle_batch(v.active())? + HEADER_BYTES + 3)),
    ("active-garbage-tail", From::Zero, |v, rng| append(v.active(), &noise(rng, 100))),
    ("active-zero-tail", From::Zero, |v, _| append(v.active(), &[0; 4096])),
    ("active-length-negative", From::Zero, |v, _| patch(v.active(), v.last_batch(v.active())? + 8, &[0xff, 0xff, 0xff, 0])),
    ("active-length-huge", From::Zero, |v, _| patch(v.active(), v.last_batch(v.active())? + 8, &[0x7f, 0xff, 0xff, 0xff])),
    ("active-magic-9", From::Zero, |v, _| patch(v.active(), v.last_batch(v.active())? + 16, &[9])),
    ("active-batch-twice", From::Zero, |v, _| append(v.active(), &fs::read(v.active())?[v.last_batch(v.active())? as usize..])),
    ("active-older-batch-again", From::Zero, |v, _| append(v.active(), &fs::read(v.active())?[..v.second_batch(v.active())? as usize])),
    ("sealed-bit", From::Zero, |v, _| flip(&v.logs[1], v.middle_batch(&v.logs[1])? + HEADER_BYTES + 3)),
    ("sealed-cut", From::Zero, |v, _| shorten(&v.logs[1], 5)),
    ("sealed-missing", From::Zero, |v, _| Ok(fs::remove_file(&v.logs[1])?)),
    ("sealed-bit-below-recovery-point", From::Middle, |v, _| flip(&v.logs[0], v.middle_batch(&v.logs[0])? + HEADER_BYTES + 3)),
    ("sealed-cut-below-recovery-point", From::Middle, |v, _| shorten(&v.logs[0], 5)),
    ("index-missing", From::End, |v, _| Ok(fs::remove_file(v.logs[1].with_extension("index"))?)),
    ("timeindex-missing", From::End, |v, _| Ok(fs::remove_file(v.logs[1].with_extension("timeindex"))?)),
    ("all-indexes-missing", From::End, |v, _| v.logs.iter().try_for_each(|log| remove_indexes(log))),
    ("index-garbage", From::End, |v, rng| Ok(fs::write(v.logs[1].with_extension("index"), noise(rng, 64))?)),
    ("index-not-multiple-of-8", From::End, |v, _| shorten(&v.logs[1].with_extension("index"), 3)),
    ("timeindex-garbage", From::End, |v, rng| Ok(fs::write(v.logs[1].with_extension("timeindex"), noise(rng, 60))?)),
    ("index-without-log", From::End, |v, _| Ok(fs::write(v.dir.join("00000000000000099999.index"), [0; 16])?)),
    ("cleaned-left", From::End, |v, _| ["log", "index"].iter().try_for_each(|kind| leave(&v.logs[0].with_extension(kind), "cleaned"))),
    ("deleted-left", From::End, |v, _| leave(&v.logs[0], "deleted")),
    ("swap-left-with-sources", From::End, |v, _| v.swap_of_first_two()),
    ("swap-left-sources-gone", From::End, |v, _| {
        v.swap_of_first_two()?;
        for log in &v.logs[..2] {
            remove_indexes(log)?;
            fs::remove_file(log)?;
        }
        Ok(())
    }),
    ("swap-and-cleaned", From::End, |v, _| {
        leave(&v.logs[0], "swap")?;
        leave(&v.logs[2], "cleaned")
    }),
    ("txnindex-garbage", From::End, |v, rng| v.write_txn_index(&[&[0, 0], &noise(rng, 16)[..], &[0xff], &noise(rng, 51)[..]].concat())),
    ("txnindex-newer-version", From::End, |v, rng| v.write_txn_index(&[&[1], &noise(rng, 67)[..]].concat())),
    ("snapshot-garbage", From::End, |v, rng| v.snapshots()?.iter().try_for_each(|path| Ok(fs::write(path, noise(rng, 50))?))),
    ("snapshot-missing", From::End, |v, _| v.snapshots()?.iter().try_for_each(|path| Ok(fs::remove_file(path)?))),
    ("recovery-point-past-end", From::PastEnd, |_, _| Ok(())),
];

impl Victim {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let logs = dump::names(dir, &["log"])?.iter().map(|name| dir.join(name)).collect::<Vec<_>>();
        anyhow::ensure!(logs.len() >= 4, "only {} segments", logs.len());
        Ok(Self { dir: dir.to_owned(), logs })
    }

    fn active(&self) -> &Path {
        &self.logs[self.logs.len() - 1]
    }

    /// Where the batches of a log begin.
    fn batches(&self, log: &Path) -> Result<Vec<u64>> {
        let batches = dump::directory(&self.dir)?;
        Ok(batches.iter().filter(|batch| log.ends_with(&batch.file)).map(|batch| batch.pos).collect())
    }

    fn last_batch(&self, log: &Path) -> Result<u64> {
        self.batches(log)?.pop().context("a log without batches")
    }

    fn middle_batch(&self, log: &Path) -> Result<u64> {
        let batches = self.batches(log)?;
        batches.get(batches.len() / 2).copied().context("a log without batches")
    }

    /// Where the second batch begins, or the log ends.
    fn second_batch(&self, log: &Path) -> Result<u64> {
        self.batches(log)?.get(1).map_or_else(|| size(log), |position| Ok(*position))
    }

    fn write_txn_index(&self, bytes: &[u8]) -> Result<()> {
        Ok(fs::write(self.logs[1].with_extension("txnindex"), bytes)?)
    }

    fn snapshots(&self) -> Result<Vec<PathBuf>> {
        Ok(dump::names(&self.dir, &["snapshot"])?.iter().map(|name| self.dir.join(name)).collect())
    }

    /// One segment in the place of the first two, as a clean that was interrupted after its first renaming leaves it.
    fn swap_of_first_two(&self) -> Result<()> {
        leave(&self.logs[0], "swap")?;
        append(&with_suffix(&self.logs[0], "swap"), &fs::read(&self.logs[1])?)
    }
}

fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)?.len())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    name.into()
}

/// A copy under the same name with a suffix.
fn leave(path: &Path, suffix: &str) -> Result<()> {
    fs::copy(path, with_suffix(path, suffix))?;
    Ok(())
}

fn remove_indexes(log: &Path) -> Result<()> {
    for path in INDEXES.map(|kind| log.with_extension(kind)) {
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn noise(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.u8(..)).collect()
}

fn cut(path: &Path, bytes: u64) -> Result<()> {
    Ok(File::options().write(true).open(path)?.set_len(bytes)?)
}

fn shorten(path: &Path, by: u64) -> Result<()> {
    cut(path, size(path)?.saturating_sub(by))
}

fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut content = fs::read(path)?;
    content.extend(bytes);
    Ok(fs::write(path, content)?)
}

fn patch(path: &Path, position: u64, bytes: &[u8]) -> Result<()> {
    let mut content = fs::read(path)?;
    let position = position as usize;
    content.get_mut(position..position + bytes.len()).context("a patch behind the end")?.copy_from_slice(bytes);
    Ok(fs::write(path, content)?)
}

fn flip(path: &Path, position: u64) -> Result<()> {
    let byte = *fs::read(path)?.get(position as usize).context("a bit behind the end")?;
    patch(path, position, &[byte ^ 0x10])
}
