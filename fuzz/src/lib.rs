//! What each fuzz target checks, as ordinary functions: libFuzzer drives them with bytes that it finds
//! (`fuzz_targets/`), a test drives them with the seeds (`tests/corpus.rs`).
//!
//! No target stops at "it does not panic". What decodes must be encoded and decoded again to the same; a
//! lookup must equal a search from end to end; a decoder must equal a slow one written here from the format;
//! an entry must be read alike by every way of reading it. Memory is bounded from outside: `fuzz/run` sets
//! libFuzzer's limits on the whole and on a single allocation.

mod checkpoints;
mod codecs;
mod directories;
mod entries;
mod indexes;
mod name;
mod offset_snapshots;
mod offsets;
mod record;
mod scanner;
mod snapshots;
mod upkeep;
mod world;

pub use checkpoints::checkpoint;
pub use codecs::codec;
pub use directories::directory;
pub use entries::{batch_v2, legacy};
pub use indexes::{offset_index, time_index, txn_index};
pub use name::names;
pub use offset_snapshots::offset_snapshot;
pub use offsets::offset_records;
pub use record::round_trip;
pub use scanner::scan;
pub use snapshots::snapshot;

/// One fuzz target: takes any bytes, panics on a finding.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("batch_v2", batch_v2),
    ("legacy", legacy),
    ("codec", codec),
    ("offset_index", offset_index),
    ("time_index", time_index),
    ("txn_index", txn_index),
    ("snapshot", snapshot),
    ("checkpoint", checkpoint),
    ("names", names),
    ("offset_records", offset_records),
    ("offset_snapshot", offset_snapshot),
    ("scan", scan),
    ("round_trip", round_trip),
    ("directory", directory),
];
