//! The whole of Keeplog on a simulated disk and a simulated clock, in one thread.
//!
//! - [`disk`]: a disk that forgets what was not synced, tears writes, reorders them, and fails as told.
//! - [`features`]: what a running process does; one file each.
//! - [`model`]: the oracle, which knows what was acknowledged.
//! - [`life`]: steps, crashes, recoveries, and what must hold between them. A life repeats itself exactly.
//! - [`random`], [`exhaustive`]: where lives come from.
//! - [`shrink`]: from a life that fails to the shortest one that does.
//! - `defects`, with the feature `planted`: defects that are planted to show that they are found.
#![forbid(unsafe_code)]

mod afterlife;
pub mod crowd;
#[cfg(feature = "planted")]
pub mod defects;
pub mod dice;
pub mod disk;
pub mod exhaustive;
pub mod features;
pub mod life;
pub mod model;
pub mod random;
pub mod shrink;
pub mod world;
