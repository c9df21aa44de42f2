//! The logs that are worth a pass, in the order in which they are chosen.
//!
//! Chosen is whom [`choose`](super::choose) would choose of all of them, without a look at all of them: how dirty a log is, is
//! remembered until the log changes or its moment comes, and those worth a pass are kept sorted. How many passes each has let go
//! first is not counted along, but told by how many choices were made since it has been worth a pass.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Agenda, Dirtiness, PASSES_WAITED_MAX, Rules};

/// Logs by how dirty they are. `K` names a log; of equals the first by name is chosen.
#[derive(Clone, Debug)]
pub struct Queue<K> {
    agenda: Agenda<K>,
    places: BTreeMap<K, Place>,
    /// The dirtiest first.
    by_ratio: BTreeSet<(Ratio, K)>,
    /// Those that have waited longest first, of these the dirtiest.
    by_wait: BTreeSet<(u64, Ratio, K)>,
    choices: u64,
    /// How dirty each is, worth a pass or not, and all of that sorted.
    ratios: BTreeMap<K, Ratio>,
    all: BTreeSet<(Ratio, K)>,
}

/// A ratio, the largest first. Ratios are not negative, so their bits have their order.
type Ratio = Reverse<u64>;

#[derive(Clone, Copy, Debug)]
struct Place {
    ratio: Ratio,
    /// Choices that were made before it was worth a pass.
    since: u64,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            agenda: Agenda::default(),
            places: BTreeMap::new(),
            by_ratio: BTreeSet::new(),
            by_wait: BTreeSet::new(),
            choices: 0,
            ratios: BTreeMap::new(),
            all: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// A log has changed.
    pub fn note(&mut self, key: K) {
        self.agenda.note(key);
    }

    /// The logs to be looked at before the next choice, each to be given to [`Queue::judge`] or [`Queue::forget`].
    pub fn take(&mut self, now_ms: i64) -> BTreeSet<K> {
        self.agenda.take(now_ms)
    }

    /// What a look at a log has shown, and until when it holds: see [`LogFacts::holds_until_ms`](super::LogFacts::holds_until_ms).
    pub fn judge(&mut self, key: &K, dirtiness: &Dirtiness, rules: &Rules, holds_until_ms: Option<i64>) {
        self.agenda.set(key, holds_until_ms);
        let since = self.places.get(key).map_or(self.choices, |place| place.since);
        self.leave(key);
        let ratio = Reverse(dirtiness.ratio().to_bits());
        self.know(key, Some(ratio));
        if dirtiness.is_eligible(rules) {
            self.enter(key, Place { ratio, since });
        }
    }

    /// Dirty ratio of the dirtiest log, worth a pass or not; 0 if there is none.
    #[must_use]
    pub fn ratio_max(&self) -> f64 {
        self.all.first().map_or(0.0, |(Reverse(bits), _)| f64::from_bits(*bits))
    }

    /// A log is left out: it is gone, or is not to be cleaned.
    pub fn forget(&mut self, key: &K) {
        self.agenda.forget(key);
        self.leave(key);
        self.know(key, None);
    }

    /// The log to clean next; the others that are worth a pass have let it go first. Those that are not `usable` are forgotten.
    pub fn choose(&mut self, mut usable: impl FnMut(&K) -> bool) -> Option<K> {
        loop {
            let key = self.first()?.clone();
            if usable(&key) {
                self.choices += 1;
                let place = self.leave(&key)?;
                self.enter(&key, Place { since: self.choices, ..place });
                return Some(key);
            }
            self.forget(&key);
        }
    }

    fn first(&self) -> Option<&K> {
        let (since, _, longest) = self.by_wait.first()?;
        if self.choices - since >= u64::from(PASSES_WAITED_MAX) {
            return Some(longest);
        }
        self.by_ratio.first().map(|(_, dirtiest)| dirtiest)
    }

    fn enter(&mut self, key: &K, place: Place) {
        self.by_ratio.insert((place.ratio, key.clone()));
        self.by_wait.insert((place.since, place.ratio, key.clone()));
        self.places.insert(key.clone(), place);
    }

    fn know(&mut self, key: &K, ratio: Option<Ratio>) {
        let before = match ratio {
            Some(ratio) => self.ratios.insert(key.clone(), ratio),
            None => self.ratios.remove(key),
        };
        if let Some(before) = before {
            self.all.remove(&(before, key.clone()));
        }
        self.all.extend(ratio.map(|ratio| (ratio, key.clone())));
    }

    fn leave(&mut self, key: &K) -> Option<Place> {
        let place = self.places.remove(key)?;
        self.by_ratio.remove(&(place.ratio, key.clone()));
        self.by_wait.remove(&(place.since, place.ratio, key.clone()));
        Some(place)
    }
}

#[cfg(test)]
mod tests;
