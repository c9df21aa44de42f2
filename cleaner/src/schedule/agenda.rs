//! Who is to be looked at, and when.

use std::collections::{BTreeMap, BTreeSet};

/// Those that have changed, and those for which a moment comes. Taking who is due costs by their number, not by that of all.
#[derive(Clone, Debug)]
pub struct Agenda<K> {
    changed: BTreeSet<K>,
    /// By moment, ms.
    moments: BTreeSet<(i64, K)>,
    moment_of: BTreeMap<K, i64>,
    /// The time of the last look.
    as_of_ms: i64,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { changed: BTreeSet::new(), moments: BTreeSet::new(), moment_of: BTreeMap::new(), as_of_ms: i64::MIN }
    }
}

impl<K: Ord + Clone> Agenda<K> {
    /// `key` is to be looked at the next time.
    pub fn note(&mut self, key: K) {
        self.changed.insert(key);
    }

    /// `key` was looked at, and is to be looked at again at `moment_ms`; `i64::MAX` if only a clock that is set back can
    /// change what was seen, `None` if time can't.
    pub fn set(&mut self, key: &K, moment_ms: Option<i64>) {
        let before = match moment_ms {
            Some(moment_ms) => self.moment_of.insert(key.clone(), moment_ms),
            None => self.moment_of.remove(key),
        };
        if before == moment_ms {
            return;
        }
        if let Some(before) = before {
            self.moments.remove(&(before, key.clone()));
        }
        if let Some(moment_ms) = moment_ms {
            self.moments.insert((moment_ms, key.clone()));
        }
    }

    /// `key` is not looked at any more, until it is noted again.
    pub fn forget(&mut self, key: &K) {
        self.changed.remove(key);
        self.set(key, None);
    }

    /// Those to be looked at now, ascending. A clock that was set back makes it all for whom time matters.
    pub fn take(&mut self, now_ms: i64) -> BTreeSet<K> {
        let mut due = std::mem::take(&mut self.changed);
        if now_ms < self.as_of_ms {
            due.extend(self.moment_of.keys().cloned());
        }
        self.as_of_ms = now_ms;
        while let Some((moment_ms, key)) = self.moments.first().filter(|(moment_ms, _)| *moment_ms <= now_ms).cloned() {
            self.moments.remove(&(moment_ms, key.clone()));
            self.moment_of.remove(&key);
            due.insert(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_are_those_that_changed_and_those_whose_moment_has_come() {
        let mut agenda = Agenda::default();
        let take = |agenda: &mut Agenda<char>, now_ms| agenda.take(now_ms).into_iter().collect::<String>();
        assert_eq!(take(&mut agenda, 0), "");
        agenda.note('b');
        agenda.note('a');
        agenda.note('b');
        assert_eq!(take(&mut agenda, 0), "ab");
        assert_eq!(take(&mut agenda, 0), "", "once");
        agenda.set(&'a', Some(10));
        agenda.set(&'b', Some(20));
        agenda.set(&'b', Some(15));
        assert_eq!(take(&mut agenda, 9), "");
        assert_eq!(take(&mut agenda, 10), "a");
        assert_eq!(take(&mut agenda, 100), "b", "the moment that was set last");
        agenda.set(&'a', Some(200));
        agenda.note('a');
        agenda.forget(&'a');
        assert_eq!(take(&mut agenda, 1000), "");
    }

    #[test]
    fn a_clock_that_is_set_back_calls_all_for_whom_time_matters() {
        let mut agenda = Agenda::default();
        agenda.take(1000);
        for (key, moment_ms) in [(1, Some(2000)), (2, None), (3, Some(i64::MAX))] {
            agenda.set(&key, moment_ms);
        }
        assert!(agenda.take(1000).is_empty());
        assert_eq!(agenda.take(999), BTreeSet::from([1, 3]));
        assert!(agenda.take(999).is_empty(), "once, until it goes back further");
    }
}
