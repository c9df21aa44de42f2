//! What must be true of one log.

use std::collections::{BTreeMap, BTreeSet};

use keeplog::inspect::Damage;
use keeplog::{Durability, Log, StoredRecord};

use crate::disk::without_faults;
use crate::world::TOMBSTONES_STAY_MS;

type Checked = Result<(), String>;

/// What was written to a log, and what of it must be there.
#[derive(Clone, Debug, Default)]
pub struct LogModel {
    records: BTreeMap<u64, Written>,
    /// Offsets of the batches of each idempotent producer, of one record each.
    of_producers: BTreeMap<i64, BTreeSet<u64>>,
    /// Everything below was acknowledged as synced, and no truncation has been asked for since.
    pub must_end: u64,
    /// What that is once the truncation under way has returned.
    must_end_cut: u64,
    /// One past the last offset that was ever given.
    pub end: u64,
    /// The start offset is at least this,
    pub start_min: u64,
    /// and at most this.
    pub start_max: u64,
    /// From here on unsynced ends of segments may be damaged.
    holes_from: Option<u64>,
    /// The damage that the last recovery told of.
    told: Vec<Damage>,
}

#[derive(Clone, Debug)]
struct Written {
    key: String,
    value: Option<String>,
    gone: Gone,
    fate: Fate,
    /// Of a deletion that a pass has met: how long it stays at least, ms since the Unix epoch.
    stays_until_ms: Option<i64>,
}

/// Whether the cleaner may have removed a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    No,
    /// For the sake of the newer record with this offset, which must be there then.
    For(u64),
    Yes,
    /// It may be there or not, and says nothing of older ones. Part of an aborted transaction: a truncation may take the
    /// marker, and the transaction be committed after all. Or in a batch that a truncation has cut that did not return.
    Either,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It holds.
    Holds,
    /// The transaction of this producer decides.
    Open(i64),
    /// It holds or not, as the marker at this offset says.
    Ended {
        /// Whose transaction it was.
        producer: i64,
        /// The offset of the marker.
        marker: u64,
        /// Whether it holds.
        holds: bool,
    },
}

impl Fate {
    fn holds(self) -> bool {
        matches!(self, Self::Holds | Self::Ended { holds: true, .. })
    }
}

impl LogModel {
    /// Records are about to be appended at `base`.
    pub fn note(&mut self, base: u64, written: &[(String, Option<String>)], fate: Fate) {
        for (offset, (key, value)) in (base..).zip(written) {
            self.records.insert(offset, Written { key: key.clone(), value: value.clone(), gone: Gone::No, fate, stays_until_ms: None });
            self.end = self.end.max(offset + 1);
        }
    }

    /// One record of an idempotent producer is about to be appended at `base`.
    pub fn note_idempotent(&mut self, producer: i64, base: u64, written: &[(String, Option<String>)]) {
        self.of_producers.entry(producer).or_default().insert(base);
        self.note(base, written, Fate::Holds);
    }

    /// A marker is about to be appended at `marker`.
    pub fn end_transaction(&mut self, producer: i64, marker: u64, holds: bool) {
        for record in self.records.values_mut().filter(|record| record.fate == Fate::Open(producer)) {
            record.fate = Fate::Ended { producer, marker, holds };
        }
        self.end = self.end.max(marker + 1);
    }

    /// An append returned.
    pub fn acknowledge(&mut self, log: &Log, durability: Durability) -> Checked {
        if log.end_offset() != self.end {
            return Err(format!("{} ends at {} after an append, {} is right", log.topic_partition(), log.end_offset(), self.end));
        }
        if durability == Durability::Synced {
            self.must_end = self.end;
        }
        Ok(())
    }

    /// Producers with an open transaction.
    #[must_use]
    pub fn open_producers(&self) -> BTreeSet<i64> {
        self.records.values().filter_map(|record| if let Fate::Open(producer) = record.fate { Some(producer) } else { None }).collect()
    }

    /// A transaction whose records the cleaner or a truncation has taken away altogether has nothing left to end.
    pub fn forget_open(&mut self, producer: i64) {
        self.end_transaction_at_nothing(producer);
    }

    fn end_transaction_at_nothing(&mut self, producer: i64) {
        for record in self.records.values_mut().filter(|record| record.fate == Fate::Open(producer)) {
            record.fate = Fate::Ended { producer, marker: 0, holds: false };
        }
    }

    /// A pass over what lies below `bound` begins at `now_ms`.
    pub fn cleaned_below(&mut self, bound: u64, now_ms: i64) {
        let mut newer: BTreeMap<String, u64> = BTreeMap::new();
        for (offset, record) in self.records.range_mut(..bound).rev() {
            match record.fate {
                Fate::Open(_) => continue,
                Fate::Ended { holds: false, .. } => {
                    record.gone = Gone::Either;
                    continue;
                }
                Fate::Holds | Fate::Ended { .. } => {}
            }
            if record.gone == Gone::No {
                record.gone = match newer.get(&record.key) {
                    Some(newer) => Gone::For(*newer),
                    None if record.value.is_none() && record.stays_until_ms.is_some_and(|until| until <= now_ms) => Gone::Yes,
                    None => Gone::No,
                };
            }
            if record.value.is_none() {
                record.stays_until_ms.get_or_insert(now_ms + TOMBSTONES_STAY_MS as i64);
            }
            newer.entry(record.key.clone()).or_insert(*offset);
        }
    }

    /// A truncation to `to` begins; the last batch that stays whole ends at `whole`. What goes may still be there if it
    /// does not return.
    pub fn truncating(&mut self, to: u64, whole: u64) {
        self.must_end_cut = self.must_end.min(to);
        self.must_end = self.must_end.min(whole);
        self.start_min = self.start_min.min(to);
        for (offset, record) in &mut self.records {
            // Also of the batch that holds `to`: it goes as a whole, and the log may end at `to` nevertheless.
            if (whole..to).contains(offset) {
                record.gone = Gone::Either;
            } else if matches!(record.gone, Gone::For(newer) if newer >= whole) {
                record.gone = Gone::Yes;
            }
        }
    }

    /// It returned.
    pub fn truncated(&mut self, to: u64, whole: u64, start: u64) {
        // A batch of one record that lies below is there, or was cleaned away and is remembered.
        let of_producers = self.of_producers.clone();
        self.cut_off(whole);
        self.of_producers = of_producers;
        self.of_producers.values_mut().for_each(|batches| batches.retain(|offset| *offset < to));
        // Also where no batch ends there.
        self.must_end = self.must_end_cut;
        self.end = to;
        (self.start_min, self.start_max) = (start, start);
    }

    fn cut_off(&mut self, end: u64) {
        self.records.retain(|offset, _| *offset < end);
        self.of_producers.values_mut().for_each(|batches| batches.retain(|offset| *offset < end));
        for record in self.records.values_mut() {
            // A transaction whose marker went is open again: one more marker ends it.
            if let Fate::Ended { producer, marker, .. } = record.fate
                && marker >= end
            {
                record.fate = Fate::Open(producer);
            }
        }
    }

    /// After a power failure: of what was never acknowledged, some may be missing with later records there. What lay in a
    /// segment that was closed, but not synced, goes by itself.
    pub fn lose_unsynced(&mut self, log: &Log) {
        self.holes_from = Some(self.must_end);
        let Ok(held) = held(log) else { return };
        let from = self.must_end.max(log.start_offset());
        let is_lost = |offset: &u64| *offset >= from && !held.contains(offset);
        let lost: BTreeSet<u64> = self.records.keys().copied().filter(is_lost).collect();
        // Of a batch that the cleaner may have emptied, or taken away, it can't be said whether it was lost first.
        let may_be_cleaned = |offset: &u64| self.records.get(offset).is_none_or(|record| record.gone != Gone::No);
        self.of_producers.values_mut().for_each(|batches| batches.retain(|offset| !is_lost(offset) || may_be_cleaned(offset)));
        self.records.retain(|offset, _| !lost.contains(offset));
        let markers = markers(log);
        for record in self.records.values_mut() {
            if matches!(record.gone, Gone::For(newer) if lost.contains(&newer)) {
                record.gone = Gone::No;
            }
            if let Fate::Ended { producer, marker, .. } = record.fate
                && marker >= from
                && !markers.contains(&marker)
            {
                record.fate = Fate::Open(producer);
            }
        }
    }

    /// What is wrong with the log as it was opened after all this.
    pub fn check(&self, log: &Log) -> Checked {
        self.check_bounds(log)?;
        let (start, end) = (log.start_offset(), log.end_offset());
        let mut newest: BTreeMap<String, u64> = BTreeMap::new();
        let mut present = BTreeSet::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for record in read_around(log, Log::read_from)? {
            let (key, value) = (record.key().map_or_else(String::new, |k| text(k)), record.value().map(|v| text(v)));
            let Some(written) = self.records.get(&record.offset()).filter(|w| (&w.key, &w.value) == (&key, &value)) else {
                return Err(format!("{key} = {value:?} at {} was not written there, or was cut off", record.offset()));
            };
            if !present.insert(record.offset()) {
                return Err(format!("offset {} is there twice", record.offset()));
            }
            if written.fate.holds() && written.gone != Gone::Either {
                newest.insert(key, record.offset());
            }
        }
        self.check_committed(log, &present)?;
        self.check_kept(start, end, &present)?;
        self.check_newest(start, end, &newest)?;
        self.check_producers(log, start, end)
    }

    fn check_bounds(&self, log: &Log) -> Checked {
        let (start, end) = (log.start_offset(), log.end_offset());
        let report = log.recovery_report();
        let tolerated = |damage: &Damage| self.holes_from.is_some_and(|from| damage.offset >= from) || self.told.contains(damage);
        if !report.damage.iter().all(tolerated) || report.read_only {
            return Err(format!("damage: {:?}", report.damage));
        }
        if !(self.start_min..=self.start_max.max(self.start_min)).contains(&start) {
            return Err(format!("it starts at {start}, not within {}..={}", self.start_min, self.start_max));
        }
        if end < self.must_end || end > self.end.max(start) {
            return Err(format!("it ends at {end}, not within {}..={}", self.must_end, self.end));
        }
        Ok(())
    }

    /// Readers of committed records see all of them below the last stable offset, and no other.
    fn check_committed(&self, log: &Log, present: &BTreeSet<u64>) -> Checked {
        let mut seen = BTreeSet::new();
        for offset in read_around(log, Log::read_committed_from)?.iter().map(StoredRecord::offset) {
            if !self.records.get(&offset).is_some_and(|written| written.fate.holds()) {
                return Err(format!("the record at {offset} was never committed"));
            }
            seen.insert(offset);
        }
        let stable = log.last_stable_offset();
        match present.range(..stable).find(|offset| self.records[offset].fate.holds() && !seen.contains(offset)) {
            Some(offset) => Err(format!("readers of committed records do not see that at {offset}; all is stable below {stable}")),
            None => Ok(()),
        }
    }

    /// Nothing is missing but what the cleaner may take.
    fn check_kept(&self, start: u64, end: u64, present: &BTreeSet<u64>) -> Checked {
        for (offset, written) in self.records.range(start..end.max(start)) {
            let must_be_there = match written.gone {
                Gone::No => true,
                Gone::For(newer) => newer >= end,
                Gone::Yes | Gone::Either => false,
            };
            if must_be_there && !present.contains(offset) {
                return Err(format!("{offset} {written:?} is missing; the log ends at {end}"));
            }
        }
        Ok(())
    }

    /// The newest record of each key is the newest that was written, or none, if that was deleted.
    fn check_newest(&self, start: u64, end: u64, newest: &BTreeMap<String, u64>) -> Checked {
        let mut expected: BTreeMap<&str, (u64, &Written)> = BTreeMap::new();
        for (offset, written) in
            self.records.range(start..end.max(start)).filter(|(_, written)| written.fate.holds() && written.gone != Gone::Either)
        {
            expected.insert(&written.key, (*offset, written));
        }
        for (key, (offset, written)) in expected {
            let found = newest.get(key).copied();
            let may_be_gone = match written.gone {
                Gone::No => false,
                Gone::For(newer) => newer < end,
                Gone::Yes | Gone::Either => true,
            };
            if found != Some(offset) && !(found.is_none() && may_be_gone) {
                return Err(format!("the newest {key} is that of {found:?}, written were {offset} {written:?}; the log ends at {end}"));
            }
        }
        Ok(())
    }

    fn check_producers(&self, log: &Log, start: u64, end: u64) -> Checked {
        for (producer, batches) in &self.of_producers {
            let known = log.active_producers().into_iter().find(|p| p.id == *producer).and_then(|p| p.last_data_offset);
            // What the cleaner took away before a truncation is known no more: then an earlier batch may be the last.
            let is_kept = |offset: &&u64| **offset >= start && self.records.get(offset).is_some_and(|w| w.gone == Gone::No);
            let kept = batches.range(..end).rfind(is_kept).copied();
            let last = batches.range(..end).next_back().copied();
            // A truncation into a gap that the cleaner made ends at the gap the next time; who wrote there is known.
            let is_in_gap = known.is_some_and(|known| batches.contains(&known));
            if known != last && !(known < last && known >= kept) && !is_in_gap {
                return Err(format!("the last offset of producer {producer} is {known:?}, {last:?} is right"));
            }
        }
        self.check_sequences(log)
    }

    /// No batch of a producer is there twice, and none stands before an earlier one.
    fn check_sequences(&self, log: &Log) -> Checked {
        let mut last: BTreeMap<(i64, i16), i32> = BTreeMap::new();
        for batch in read_around(log, Log::batches_from)? {
            let header = batch.header;
            if !self.of_producers.contains_key(&header.producer_id) {
                continue;
            }
            let before = last.insert((header.producer_id, header.producer_epoch), header.base_sequence);
            if before.is_some_and(|before| before >= header.base_sequence) {
                return Err(format!("sequence {} of producer {} comes after {before:?}", header.base_sequence, header.producer_id));
            }
        }
        Ok(())
    }

    /// The log as it is open now is the truth from here on; all of it is safe if `durable`.
    pub fn take_over(&mut self, log: &Log, durable: bool) -> Checked {
        let end = log.end_offset();
        let of_producers = self.of_producers.clone();
        self.cut_off(end);
        for known in log.active_producers() {
            // In a gap that the cleaner made, and a truncation ended in: see `check_producers`.
            let offset = known.last_data_offset.filter(|offset| of_producers.get(&known.id).is_some_and(|all| all.contains(offset)));
            self.of_producers.entry(known.id).and_modify(|all| all.extend(offset));
        }
        self.end = end;
        self.must_end = if durable { end } else { self.must_end.min(end) };
        (self.start_min, self.start_max) = (log.start_offset(), log.start_offset());
        self.holes_from = None;
        self.told.clone_from(&log.recovery_report().damage);
        let held = held(log)?;
        self.records.retain(|offset, _| held.contains(offset));
        Ok(())
    }
}

fn held(log: &Log) -> Result<BTreeSet<u64>, String> {
    Ok(read_around(log, Log::read_from)?.iter().map(StoredRecord::offset).collect())
}

/// Offsets of control batches.
fn markers(log: &Log) -> BTreeSet<u64> {
    let batches = read_around(log, Log::batches_from).unwrap_or_default();
    batches.iter().filter(|batch| batch.header.is_control()).map(|batch| batch.header.base_offset).collect()
}

/// All that can be read of a log. Where recovery has left damage in place, reading goes on behind it.
pub(crate) fn read_around<I: Iterator<Item = keeplog::Result<T>>, T>(
    log: &Log,
    read_from: impl Fn(&Log, u64) -> keeplog::Result<I>,
) -> Result<Vec<T>, String> {
    without_faults(|| {
        let (mut all, mut from) = (Vec::new(), Some(log.start_offset()));
        while let Some(offset) = from.take() {
            for item in read_from(log, offset).map_err(|e| format!("{e:?}"))? {
                match item {
                    Ok(item) => all.push(item),
                    Err(e) if log.recovery_report().damage.iter().any(|damage| damage.in_place) => from = e.resume_offset(),
                    Err(e) => return Err(format!("{e:?}")),
                }
            }
        }
        Ok(all)
    })
}

/// Where the last batch of a log ends.
#[must_use]
pub fn end_of_last_batch(log: &Log) -> u64 {
    end_of_last_batch_below(log, log.end_offset())
}

/// Where the last batch ends that ends at or below `offset`; 0 if that lies below the start, and nothing is known.
#[must_use]
pub fn end_of_last_batch_below(log: &Log, offset: u64) -> u64 {
    let batches = read_around(log, Log::batches_from).unwrap_or_default();
    batches.iter().map(|batch| batch.header.next_offset()).take_while(|end| *end <= offset).last().unwrap_or(0)
}
