//! What a log of committed offsets comes to, in a file beside it, so that a start reads no more of the log than its end.
//!
//! It is never the truth: it may be deleted at any time, and whatever is wrong with it, the log is read. It is believed if
//! each of its checksums is right, and if the log is still the one that it was made of ([`Fingerprint`]). A file:
//!
//! ```text
//! header     64 bytes: magic, version u32, CRC of what follows u32, file length u64,
//!            position u64, length u32 and CRC u32 of the contents, zeros
//! sections   of about 1 MiB
//! contents   from offset u64, base (flag u8, ms i64, offset u64), counts 5 u64, unreadable keys u64, blocks u64, entries u64,
//!            length u32 and bytes of the fingerprint, count u32 of sections, of each: kind u8, position u64, length u32, CRC u32
//! ```
//! All numbers have their lowest byte first, all checksums are CRC-32C. Sections, in an order in which all that a section
//! names came before it:
//!
//! ```text
//! 1 groups    names: length u32, UTF-8. Numbered from 0 over all sections
//! 2 topics    the same, each followed by a flag u8 and an id of 16 bytes
//! 3 texts     of metadata, as 1. Numbered from 1
//! 4 blocks    counts u32 of blocks, entries, odd; blocks: group u32, topic u32, span i32, present u64; entries of 24 bytes
//!             as in memory (`cache/entry.rs`), with the numbers of texts here and those of odd in this section; odd: offset u64,
//!             record offset u64, times of commit and expiry i64, leader epoch i32, flag u8 and id of the topic, text u32
//! 5 records   of groups: offset u64, lengths u32 of key and value, both
//! 6 waiting   commits in open transactions: names of group and topic, partition i32, producer i64, record offset u64,
//!             flag u8; unless it is 0, a commit as odd ones are and its metadata as text
//! 7 open      producers i64
//! ```
//! A save does not stop commits: blocks are taken out a few at a time, each as it is at that moment. So what they say is no
//! older than `from offset`, where a load goes on to read the log, and no newer than the offset of the fingerprint. What
//! waits is as of `from offset`. See docs/DECISIONS/0011 for why this comes to what a reading of the whole log does.

mod bytes;
mod read;
mod write;

use keeplog_engine::{Error, Fingerprint, Log};

use crate::replay::{Replay, ReplayCounts};
pub(crate) use read::{Restored, open};
pub(crate) use write::{Encoder, Moved, Writer, give_up};

/// The file, in the directory of its partition.
pub(crate) const NAME: &str = "offsets.keeplog-snapshot";

const MAGIC: [u8; 8] = *b"KEEPSNAP";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const HEADER_CRC_AT: usize = 12;
const HEADER_CRC_START: usize = 16;
/// About how much of the cache is taken out at a time.
const PIECE_BYTES: usize = match (cfg!(test), cfg!(feature = "shuttle")) {
    (true, _) => 700,
    (_, true) => 100,
    _ => 1 << 20,
};
const BLOCK_BYTES: usize = 20;
const ENTRY_BYTES: usize = 24;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Groups = 1,
    Topics,
    Texts,
    Blocks,
    Records,
    Waiting,
    Open,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Groups, Self::Topics, Self::Texts, Self::Blocks, Self::Records, Self::Waiting, Self::Open]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// Where a section lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    kind: Kind,
    position: u64,
    len: u32,
    crc: u32,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    from_offset: u64,
    base: Option<(i64, u64)>,
    counts: ReplayCounts,
    unreadable_keys: u64,
    blocks: u64,
    entries: u64,
    fingerprint: Fingerprint,
    sections: Vec<Section>,
}

/// Why a snapshot is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// There is none.
    #[error("there is no snapshot")]
    Missing,
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it is not a snapshot of committed offsets")]
    Magic,
    #[error("its version is {0}, and {VERSION} is known")]
    Version(u32),
    #[error("it has {found} bytes where it says {stated}")]
    Length { found: u64, stated: u64 },
    #[error("the checksum of its {0} is wrong")]
    Checksum(&'static str),
    #[error("its {0} cannot be read")]
    Content(&'static str),
    #[error("the log ends at offset {log_end}, below {end_offset}, where it was made")]
    Newer { end_offset: u64, log_end: u64 },
    #[error("it was made of another log, or of this one before it was changed: {0}")]
    OtherLog(String),
    #[error("the log cannot be compared with it: {0}")]
    Log(Error),
    /// So much of the log would have to be read in its order that reading all of it takes no longer.
    #[error("{0} bytes of the log came after it")]
    Old(u64),
}

/// What a snapshot of `log` says that anybody made: of `sections`, codes and bytes, under right checksums. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn read_sections(log: &Log, sections: &[(u8, &[u8])], blocks: u64, entries: u64) -> Option<Replay> {
    write::forge(log, sections, blocks, entries).ok()?;
    read_all(log)
}

/// What `bytes` say as a snapshot of `log`. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn read_bytes(log: &Log, bytes: &[u8]) -> Option<Replay> {
    write::put(log, bytes).ok()?;
    read_all(log)
}

fn read_all(log: &Log) -> Option<Replay> {
    open(log).and_then(|snapshot| snapshot.read(1, &|_| {})).ok().map(|restored| restored.replay)
}

#[cfg(test)]
mod tests;
