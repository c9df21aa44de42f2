//! The one ordered step of a pass: which records of a chunk are the newest of their keys. Chunks come newest
//! first, and so do the records inside.

use std::hint::black_box;

use crate::chunk::{Marks, Probe};
use crate::dedup::{DedupSet, Full, SEARCHES_AT_ONCE};

/// Marks the live records among `probes`, which are in offset order, and adds their keys to `set`.
pub(crate) fn decide(probes: &mut [Probe], set: &mut DedupSet) -> Result<(), Full> {
    for block in probes.rchunks_mut(SEARCHES_AT_ONCE) {
        // Loads that depend on nothing run at the same time: one wait for memory a block, not one a record.
        black_box(block.iter().fold(0, |seen, probe| seen ^ set.touch(probe.place)));
        for probe in block.iter_mut().rev() {
            if judge(probe, set)? {
                probe.marks.set(Marks::LIVE);
            }
        }
    }
    Ok(())
}

#[inline]
fn judge(probe: &Probe, set: &mut DedupSet) -> Result<bool, Full> {
    let marks = probe.marks;
    if marks.has(Marks::BEYOND) {
        return Ok(true);
    }
    if !marks.has(Marks::KEYED) {
        return Ok(false);
    }
    let is_newest = if marks.has(Marks::ASKS) { !set.contains(probe.place) } else { set.insert(probe.place)? };
    Ok(is_newest && !marks.has(Marks::EXPIRED))
}
