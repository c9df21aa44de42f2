//! The one ordered step of a pass: which records of a chunk are the newest of their keys. Chunks come newest
//! first, and so do the records inside.
//!
//! Where the dedup set can't take all keys, the log is read several times, and each time the records are decided whose keys
//! fall into another share, by their hash.

use crate::chunk::{Marks, Probe};
use crate::dedup::{DedupSet, NotAdded, Place, SEARCHES_AHEAD};

/// One of the shares that keys fall into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    number: u32,
    of: u32,
}

impl Share {
    /// All shares of so many.
    pub(crate) fn each(of: u32) -> impl Iterator<Item = Self> {
        (0..of).map(move |number| Self { number, of })
    }

    /// Whether this is the one and only.
    pub(crate) fn is_all(self) -> bool {
        self.of == 1
    }

    pub(crate) fn is_last(self) -> bool {
        self.number + 1 == self.of
    }

    /// Where a key of this share is looked for; `None` for one of another.
    #[inline]
    fn place(self, place: Place) -> Option<Place> {
        // As buckets are chosen: the highest part says which share, the rest goes over all buckets again.
        let product = u64::from(place.high) * u64::from(self.of);
        ((product >> 32) as u32 == self.number).then_some(Place { high: product as u32, ..place })
    }
}

/// Marks the live records among `probes`, which are in offset order, and adds their keys to `set`; those whose keys are of
/// `share`.
pub(crate) fn decide(probes: &mut [Probe], set: &mut DedupSet, share: Share) -> Result<(), NotAdded> {
    // The usual case has a loop of its own.
    if share.is_all() { decide_on(probes, set, Some) } else { decide_on(probes, set, |place| share.place(place)) }
}

#[inline]
fn decide_on(probes: &mut [Probe], set: &mut DedupSet, place_of: impl Fn(Place) -> Option<Place>) -> Result<(), NotAdded> {
    for i in (0..probes.len()).rev() {
        // Searches wait for memory, not for one another: many of them wait at the same time.
        if let Some(place) = i.checked_sub(SEARCHES_AHEAD).and_then(|ahead| place_of(probes[ahead].place())) {
            set.prefetch(place);
        }
        let Some(place) = place_of(probes[i].place()) else { continue };
        if judge(probes[i].marks, place, set)? {
            probes[i].marks.set(Marks::LIVE);
        }
    }
    Ok(())
}

#[inline]
fn judge(marks: Marks, place: Place, set: &mut DedupSet) -> Result<bool, NotAdded> {
    if marks.has(Marks::BEYOND) {
        return Ok(true);
    }
    if !marks.has(Marks::KEYED) {
        return Ok(false);
    }
    let is_newest = if marks.has(Marks::ASKS) { !set.contains(place) } else { set.insert(place)? };
    Ok(is_newest && !marks.has(Marks::EXPIRED))
}
