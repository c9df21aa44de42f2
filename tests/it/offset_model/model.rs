//! What an offset store must answer: maps, filled record by record in the order of the log. What is written counts at the
//! next load; what is shown counts now; between them lies what waits for a sync.

use std::collections::{BTreeMap, BTreeSet};

use keeplog::{CommittedOffset, ErrorKind};

/// Group, topic, partition.
pub(super) type Place = (&'static str, &'static str, i32);

/// What was written last for a place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) record_offset: u64,
    /// `None` for a negative offset: nothing is committed.
    pub(super) committed: Option<CommittedOffset>,
}

/// What a classic group's own record says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Members {
    /// Nobody, of this protocol type, since then.
    Nobody(&'static str, Option<i64>),
    /// A consumer that reads this topic.
    Reads(&'static str),
}

#[derive(Clone, Debug)]
pub(super) enum Record {
    Commit(Option<i64>, Place, Held),
    Tombstone(Place),
    Group(&'static str, Option<Members>),
    Marker(i64, bool),
}

/// What records come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    committed: BTreeMap<Place, Held>,
    /// In open transactions, by producer.
    waiting: BTreeMap<(Place, i64), Held>,
    pub(super) open: BTreeSet<i64>,
    pub(super) groups: BTreeMap<&'static str, Members>,
}

impl State {
    fn apply(&mut self, record: &Record) {
        match record {
            Record::Commit(None, place, held) => _ = self.committed.insert(*place, held.clone()),
            Record::Commit(Some(producer), place, held) => {
                self.open.insert(*producer);
                self.waiting.insert((*place, *producer), held.clone());
            }
            Record::Tombstone(place) => {
                self.committed.remove(place);
                self.waiting.retain(|(waits, _), _| waits != place);
            }
            Record::Group(group, None) => _ = self.groups.remove(group),
            Record::Group(group, Some(members)) => _ = self.groups.insert(group, *members),
            Record::Marker(producer, counts) => {
                self.open.remove(producer);
                let ended: Vec<_> = self.waiting.extract_if(.., |(_, of), _| of == producer).collect();
                for ((place, _), held) in ended.into_iter().filter(|_| *counts) {
                    // The newest record counts, not the newest marker.
                    if self.committed.get(&place).is_none_or(|other| other.record_offset < held.record_offset) {
                        self.committed.insert(place, held);
                    }
                }
            }
        }
    }

    /// What is committed, by place.
    pub(super) fn committed(&self) -> impl Iterator<Item = (Place, &CommittedOffset)> {
        self.committed.iter().filter_map(|(place, held)| Some((*place, held.committed.as_ref()?)))
    }

    pub(super) fn get(&self, place: Place) -> Option<&CommittedOffset> {
        self.committed.get(&place)?.committed.as_ref()
    }

    pub(super) fn waits(&self, place: Place) -> bool {
        self.waiting.keys().any(|(waits, _)| *waits == place)
    }

    /// The places that there is anything of.
    pub(super) fn places(&self) -> BTreeSet<Place> {
        self.committed().map(|(place, _)| place).chain(self.waiting.keys().map(|(place, _)| *place)).collect()
    }

    /// Groups with anything committed.
    pub(super) fn committing(&self) -> BTreeSet<&'static str> {
        self.committed().map(|((group, ..), _)| group).collect()
    }

    /// Whether an offset has expired, by KIP-211.
    fn is_expired(&self, (group, topic, _): Place, committed: &CommittedOffset, now_ms: i64, retention_ms: i64) -> bool {
        let since_ms = match self.groups.get(group) {
            Some(Members::Reads(read)) if *read == topic => return false,
            Some(Members::Nobody(protocol_type, Some(since_ms))) if !protocol_type.is_empty() => *since_ms,
            _ => committed.commit_timestamp_ms,
        };
        let is_old = since_ms >= 0 && now_ms - since_ms >= retention_ms;
        committed.expire_timestamp_ms.map_or(is_old, |expires_ms| now_ms >= expires_ms)
    }
}

/// What a partition has to answer from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Served {
    NotLed,
    WaitsForLoad,
    Yes,
}

/// The answer to a commit: its number, and what went wrong.
pub(super) type Answer = (usize, Option<ErrorKind>);

#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) served: Served,
    pub(super) epoch: Option<i32>,
    /// What all comes to that was written.
    pub(super) written: State,
    pub(super) shown: State,
    /// Batches on the way from there to here, with the answers that are owed for them.
    unshown: Vec<(Vec<Record>, Option<usize>)>,
    /// The epochs of producers.
    pub(super) producers: BTreeMap<i64, i16>,
}

impl Partition {
    pub(super) fn new() -> Self {
        let (written, shown, unshown, producers) = Default::default();
        Self { served: Served::NotLed, epoch: None, written, shown, unshown, producers }
    }

    /// What it answers from, or refuses with.
    pub(super) fn answers(&self) -> Result<&State, ErrorKind> {
        match self.served {
            Served::NotLed => Err(ErrorKind::NotLeader),
            Served::WaitsForLoad => Err(ErrorKind::Loading),
            Served::Yes => Ok(&self.shown),
        }
    }

    /// A batch is appended. What is owed for it comes when it is shown.
    pub(super) fn write(&mut self, records: Vec<Record>, owed: Option<usize>) {
        records.iter().for_each(|record| self.written.apply(record));
        self.unshown.push((records, owed));
    }

    pub(super) fn show_all(&mut self) -> Vec<Answer> {
        self.show(self.unshown.len())
    }

    /// Shows the end of a producer's transaction, if it waits for that, with all before it.
    pub(super) fn show_end_of(&mut self, producer: i64) -> Vec<Answer> {
        let is_end = |record: &Record| matches!(record, Record::Marker(of, _) if *of == producer);
        let end = self.unshown.iter().rposition(|(records, _)| records.iter().any(is_end));
        self.show(end.map_or(0, |end| end + 1))
    }

    fn show(&mut self, count: usize) -> Vec<Answer> {
        let batches: Vec<_> = self.unshown.drain(..count).collect();
        batches.iter().flat_map(|(records, _)| records).for_each(|record| self.shown.apply(record));
        batches.into_iter().filter_map(|(_, owed)| Some((owed?, None))).collect()
    }

    pub(super) fn is_all_shown(&self) -> bool {
        self.unshown.is_empty()
    }

    pub(super) fn owes(&self) -> bool {
        self.unshown.iter().any(|(_, owed)| owed.is_some())
    }

    /// Whether the answer to commit `number` comes with what is shown next.
    pub(super) fn owes_to(&self, number: usize) -> bool {
        self.unshown.iter().any(|(_, owed)| *owed == Some(number))
    }

    pub(super) fn load(&mut self) -> Vec<Answer> {
        let answers = self.show_all();
        (self.served, self.shown) = (Served::Yes, self.written.clone());
        answers
    }

    pub(super) fn resign(&mut self) -> Vec<Answer> {
        self.served = Served::NotLed;
        self.unshown.drain(..).filter_map(|(_, owed)| Some((owed?, Some(ErrorKind::NotLeader)))).collect()
    }

    /// The places of what waits to be shown.
    fn unshown_places(&self) -> BTreeSet<Place> {
        let place = |record: &Record| match record {
            Record::Commit(_, place, _) | Record::Tombstone(place) => Some(*place),
            Record::Group(..) | Record::Marker(..) => None,
        };
        self.unshown.iter().flat_map(|(records, _)| records).filter_map(place).collect()
    }

    /// The places of which a deletion finds anything.
    pub(super) fn deletable(&self) -> BTreeSet<Place> {
        self.shown.places().into_iter().chain(self.unshown_places()).collect()
    }

    /// What has expired: offsets, and groups of which nothing is left.
    pub(super) fn expired(&self, now_ms: i64, retention_ms: i64) -> (BTreeSet<Place>, BTreeSet<&'static str>) {
        let unshown = self.unshown_places();
        let goes = |place: Place, committed| {
            let waits = self.shown.waits(place) || unshown.contains(&place);
            !waits && self.shown.is_expired(place, committed, now_ms, retention_ms)
        };
        let places: BTreeSet<_> =
            self.shown.committed().filter(|(place, committed)| goes(*place, committed)).map(|(place, _)| place).collect();
        let is_empty = |group: &&str| self.deletable().iter().all(|place| place.0 != *group || places.contains(place));
        let without = self.shown.groups.iter().filter(|(_, members)| matches!(members, Members::Nobody(..)));
        (places.clone(), without.map(|(group, _)| *group).filter(is_empty).collect())
    }
}
