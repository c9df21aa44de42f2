//! What a partition of the offset store comes to, record by record: the rules as the simulator knows them.

use std::collections::{BTreeMap, BTreeSet};

use super::Place;

/// What is committed at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What was committed.
    pub offset: u64,
    /// When.
    pub timestamp_ms: i64,
    /// Where it stands in the log.
    pub record_offset: u64,
}

/// One batch.
#[derive(Clone, Debug)]
pub enum What {
    /// Commits, in the transaction of a producer or in none.
    Commits(Option<i64>, Vec<(Place, u64, i64)>),
    /// Tombstones.
    Tombstones(Vec<Place>),
    /// The end of a producer's transaction: whether it counts.
    Marker(i64, bool),
}

impl What {
    /// How many records it has.
    #[must_use]
    pub fn records(&self) -> u64 {
        match self {
            Self::Commits(_, commits) => commits.len() as u64,
            Self::Tombstones(places) => places.len() as u64,
            Self::Marker(..) => 1,
        }
    }

    /// The places that it is about.
    pub fn places(&self) -> Box<dyn Iterator<Item = &Place> + '_> {
        match self {
            Self::Commits(_, commits) => Box::new(commits.iter().map(|(place, ..)| place)),
            Self::Tombstones(places) => Box::new(places.iter()),
            Self::Marker(..) => Box::new(std::iter::empty()),
        }
    }
}

/// What a log comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// What a fetch answers.
    pub committed: BTreeMap<Place, Held>,
    /// What waits for the end of a producer's transaction.
    pub pending: BTreeMap<(Place, i64), Held>,
    /// Producers in a transaction.
    pub open: BTreeSet<i64>,
}

impl State {
    /// Takes in a batch whose first record stands at `base_offset`.
    pub fn apply(&mut self, base_offset: u64, what: &What) {
        match what {
            What::Commits(producer, commits) => {
                self.open.extend(producer.iter());
                for (record_offset, (place, offset, timestamp_ms)) in (base_offset..).zip(commits) {
                    let held = Held { offset: *offset, timestamp_ms: *timestamp_ms, record_offset };
                    match producer {
                        None => _ = self.committed.insert(place.clone(), held),
                        Some(producer) => _ = self.pending.insert((place.clone(), *producer), held),
                    }
                }
            }
            What::Tombstones(places) => {
                for place in places {
                    self.committed.remove(place);
                    self.pending.retain(|(waits, _), _| waits != place);
                }
            }
            What::Marker(producer, counts) => {
                self.open.remove(producer);
                let ended: Vec<_> = self.pending.extract_if(.., |(_, of), _| of == producer).collect();
                for ((place, _), held) in ended.into_iter().filter(|_| *counts) {
                    let is_newer = self.committed.get(&place).is_none_or(|other| other.record_offset < held.record_offset);
                    if is_newer {
                        self.committed.insert(place, held);
                    }
                }
            }
        }
    }

    /// Whether a commit for `place` waits for the end of its transaction.
    #[must_use]
    pub fn is_pending(&self, place: &Place) -> bool {
        self.pending.keys().any(|(waits, _)| waits == place)
    }

    /// All places that there is anything of.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.committed.keys().chain(self.pending.keys().map(|(place, _)| place))
    }
}
