//! Opening a log: leftovers of interrupted work are tidied up, segments are loaded, and what was not closed
//! cleanly is read and mended. What is done about damage is one table: [`cases`].
//!
//! The order: leftovers and swaps first, before any file is trusted; then the segments, an index never trusted
//! ahead of its log; then everything from the segment that holds the recovery point on is scanned; then the
//! producers' state. A second crash at any point finds the same evidence and comes to the same end.

mod aside;
mod cases;
mod indexes;
mod leftovers;
mod load;
mod open;
mod report;
mod resync;
mod scan_segment;
mod settle;
mod state;

pub(crate) use indexes::rebuild_indexes;
pub(crate) use leftovers::{purge_cleaned, purge_leftovers};
pub(crate) use open::{Input, Opened, first_timestamp, open};
pub use report::{Cut, Damage, Rebuilt, RecoveryReport};
pub(crate) use state::{list_snapshots, producers_at};
