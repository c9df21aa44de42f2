//! The one ordered step of a pass: which records of a chunk are the newest of their keys. Chunks come newest
//! first, and so do the records inside.

use crate::chunk::{Marks, Probe};
use crate::dedup::{DedupSet, NotAdded, SEARCHES_AHEAD};

/// Marks the live records among `probes`, which are in offset order, and adds their keys to `set`.
pub(crate) fn decide(probes: &mut [Probe], set: &mut DedupSet) -> Result<(), NotAdded> {
    for i in (0..probes.len()).rev() {
        // Searches wait for memory, not for one another: many of them wait at the same time.
        if let Some(ahead) = i.checked_sub(SEARCHES_AHEAD) {
            set.prefetch(probes[ahead].place());
        }
        if judge(&probes[i], set)? {
            probes[i].marks.set(Marks::LIVE);
        }
    }
    Ok(())
}

#[inline]
fn judge(probe: &Probe, set: &mut DedupSet) -> Result<bool, NotAdded> {
    let marks = probe.marks;
    if marks.has(Marks::BEYOND) {
        return Ok(true);
    }
    if !marks.has(Marks::KEYED) {
        return Ok(false);
    }
    let is_newest = if marks.has(Marks::ASKS) { !set.contains(probe.place()) } else { set.insert(probe.place())? };
    Ok(is_newest && !marks.has(Marks::EXPIRED))
}
