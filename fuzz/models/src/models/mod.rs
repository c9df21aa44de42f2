//! The models.

mod append_roll;
mod close;
mod commits;
mod group_commit;
mod offsets;
mod pass_threads;
mod power_cut;
mod readers_swap;
mod snapshots;
mod stale_reader;
mod store;
mod truncation;
mod turnstile;

use crate::run::Model;

/// Finds out that the disk lies; for the test that a model notices.
pub const LYING: Model = group_commit::LYING;

/// All of them.
pub const ALL: &[Model] = &[
    append_roll::MODEL,
    readers_swap::MODEL,
    pass_threads::MODEL,
    group_commit::MODEL,
    group_commit::FAILING,
    close::MODEL,
    close::LATE,
    truncation::MODEL,
    turnstile::MODEL,
    offsets::COMMIT,
    offsets::DELETE,
    offsets::FAILING,
    offsets::HANGING,
    commits::ANSWERS,
    commits::FAILING,
    commits::LEADERS,
    commits::LIVES,
    commits::MODES,
    commits::TRANSACTIONS,
    commits::CLOSE,
    commits::EXPIRY,
    snapshots::MODEL,
    store::MODEL,
    stale_reader::DELETED,
    stale_reader::REOPENED,
    power_cut::MODEL,
];
