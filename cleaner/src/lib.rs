//! Log compaction.
#![forbid(unsafe_code)]

mod dedup;
mod hash;
