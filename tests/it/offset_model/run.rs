//! Does a step with the store, and says what the model has to say of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keeplog::inspect::offsets::partition_for;
use keeplog::inspect::storage::{MemoryStorage, Storage};
use keeplog::{
    CONSUMER_OFFSETS, CommitOptions, CommittedOffset, ErrorKind, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Outcome,
    Pending, Producer, RequiredAcks, StoreOptions,
};

use super::check::{Told, check, same};
use super::model::{Answer, Held, Members, Partition, Place, Record, Served};
use super::steps::{Entry, How, Leads, PARTITIONS, Settings, Step};
use super::{Counts, broker};
use crate::disk::disk;

pub(super) type Done = Result<(), String>;

pub(super) struct Run<'c> {
    pub(super) disk: Arc<MemoryStorage>,
    /// `None` only between two lives of the process.
    pub(super) store: Option<OffsetStore>,
    pub(super) partitions: Vec<Partition>,
    pub(super) settings: Settings,
    /// Answers that are not there yet, by the number of their commit; whether a part of it was refused.
    pub(super) owed: Vec<(usize, Pending, bool)>,
    commits: usize,
    /// Answers that must be there by now.
    pub(super) due: Vec<Answer>,
    /// Snapshots as they were once.
    pub(super) copies: Vec<(u32, Vec<u8>)>,
    pub(super) counts: &'c mut Counts,
}

pub(super) fn partition_of(group: &str) -> usize {
    partition_for(group, std::num::NonZeroU32::new(PARTITIONS).unwrap()) as usize
}

pub(super) fn log_options(settings: &Settings) -> LogOptions {
    LogOptions::new().segment_bytes(4096).delete_retention_ms(settings.tombstones_stay_ms)
}

pub(super) fn commit_options(settings: &Settings) -> CommitOptions {
    CommitOptions::new()
        .offsets_commit_required_acks(settings.acks)
        .offset_metadata_max_bytes(settings.metadata_max)
        .offsets_retention(Duration::from_millis(settings.retention_ms as u64))
        .snapshots(settings.snapshots)
        .snapshot_interval_bytes(0)
}

pub(super) fn open(disk: &Arc<MemoryStorage>, settings: &Settings, leads: Leads) -> Told<OffsetStore> {
    let options = OffsetOptions::new()
        .offsets_topic_num_partitions(PARTITIONS)
        .log(log_options(settings))
        .commit(commit_options(settings))
        .lead_all(leads == Leads::All)
        .store(StoreOptions::new().background_thread(false));
    let storage = Arc::clone(disk) as Arc<dyn Storage>;
    OffsetStore::open_with(storage, Path::new("/data"), options).map_err(|error| format!("it does not open: {error:?}"))
}

impl<'c> Run<'c> {
    pub(super) fn begin(settings: Settings, counts: &'c mut Counts) -> Told<Self> {
        let disk = disk();
        let store = open(&disk, &settings, Leads::All)?;
        let mut partitions = vec![Partition::new(); PARTITIONS as usize];
        partitions.iter_mut().for_each(|partition| _ = partition.load());
        let (owed, due, copies) = Default::default();
        Ok(Self { disk, store: Some(store), partitions, settings, owed, commits: 0, due, copies, counts })
    }

    /// Does a step, and looks at every answer.
    pub(super) fn step(&mut self, step: &Step) -> Done {
        self.take(step)?;
        self.hear()?;
        let views: Vec<_> = self.partitions.iter().map(Partition::answers).collect();
        check(self.store(), &views)
    }

    fn take(&mut self, step: &Step) -> Done {
        match step {
            Step::Commit(How::Later, group, entries) => self.commit_later(group, entries),
            Step::Commit(how, group, entries) => self.commit(*how, group, entries),
            Step::CommitInTransaction(id, epoch, group, entries) => {
                self.commit_in_transaction(Producer { id: *id, epoch: *epoch }, group, entries)
            }
            Step::End(id, epoch, counts) => self.end(Producer { id: *id, epoch: *epoch }, *counts),
            Step::Wait => self.wait(),
            Step::Flush => {
                self.store().flush().map_err(|error| format!("{error:?}"))?;
                self.show_everywhere();
                Ok(())
            }
            Step::FlushWhatWaits => {
                self.store().flush_what_waits(Duration::ZERO);
                self.show_everywhere();
                Ok(())
            }
            Step::DeleteOffsets(group, places) => self.delete_offsets(group, places),
            Step::DeleteGroup(group) => self.delete_group(group),
            Step::DeleteTopic(topic) => self.delete_topic(topic),
            Step::Expire => self.expire(),
            Step::Clock(ms) => {
                self.counts.note(if *ms < 0 { "clock steps back" } else { "clock steps" });
                match u64::try_from(*ms) {
                    Ok(ms) => self.disk.advance_ms(ms),
                    Err(_) => self.disk.set_now_ms(self.disk.now_ms() + ms),
                }
                Ok(())
            }
            Step::Resign(partition, above) => self.resign(*partition, *above),
            Step::Lead(partition, above, load) => self.lead(*partition, *above, *load),
            Step::LoadNext => self.load_next(),
            Step::Reload => self.reload(),
            Step::Broker(group, producer, records) => {
                broker::write(self, group, *producer, records)?;
                self.reload()
            }
            Step::Clean(partition, rolls) => self.clean(*partition, *rolls),
            Step::Housekeep => {
                self.counts.note("rounds of background work");
                _ = self.store().store().housekeep();
                Ok(())
            }
            Step::SaveSnapshots => self.save(),
            Step::Tamper(partition, how) => self.tamper(*partition, *how),
            Step::Anew(partition) => self.make_anew(*partition),
            Step::Settings(settings) => self.set(*settings),
            Step::Look => self.look(),
            Step::Restart(stop, settings, leads) => self.restart(*stop, *settings, *leads),
        }
    }

    pub(super) fn store(&self) -> &OffsetStore {
        self.store.as_ref().expect("it is open")
    }

    pub(super) fn log(&self, partition: usize) -> Log {
        self.store().store().log(CONSUMER_OFFSETS, partition as u32).unwrap()
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.disk.now_ms()
    }

    fn shows_at_once(&self) -> bool {
        self.settings.acks != RequiredAcks::Queued
    }

    /// A batch was written that its caller waits for, as the settings say.
    fn written(&mut self, partition: usize, records: Vec<Record>) {
        let shows = self.shows_at_once();
        self.partitions[partition].write(records, None);
        if shows {
            self.due.extend(self.partitions[partition].show_all());
        }
    }

    pub(super) fn show_everywhere(&mut self) {
        for partition in self.partitions.iter_mut().filter(|partition| partition.served == Served::Yes) {
            self.due.extend(partition.show_all());
        }
        self.counts.note("flushes");
    }

    /// Records of those entries that are not refused, at the end of the log.
    fn records(&self, producer: Option<i64>, group: &'static str, entries: &[Entry]) -> Vec<Record> {
        let taken = entries.iter().filter(|entry| entry.metadata <= self.settings.metadata_max);
        let held = |(record_offset, entry): (u64, &Entry)| {
            let committed = CommittedOffset {
                offset: entry.offset,
                leader_epoch: entry.leader_epoch,
                metadata: "m".repeat(entry.metadata).into(),
                commit_timestamp_ms: self.now_ms() - entry.age_ms.unwrap_or(0),
                expire_timestamp_ms: None,
                topic_id: entry.topic_id.map(|id| [id; 16]),
                record_offset,
            };
            Record::Commit(producer, entry.place(group), Held { record_offset, committed: Some(committed) })
        };
        (self.log(partition_of(group)).end_offset()..).zip(taken).map(held).collect()
    }

    fn given(&self, entries: &[Entry]) -> Vec<(&'static str, i32, OffsetAndMetadata)> {
        let given = |entry: &Entry| {
            let mut committed = OffsetAndMetadata::new(entry.offset).metadata("m".repeat(entry.metadata));
            committed.leader_epoch = entry.leader_epoch;
            committed.topic_id = entry.topic_id.map(|id| [id; 16]);
            committed.commit_timestamp_ms = entry.age_ms.map(|ms| self.now_ms() - ms);
            (entry.topic, entry.partition, committed)
        };
        entries.iter().map(given).collect()
    }

    /// What keeps all of a commit from being made.
    fn refusal(&self, group: &str, entries: &[Entry]) -> Option<ErrorKind> {
        let is_wrong = entries.iter().any(Entry::is_wrong).then_some(ErrorKind::InvalidInput);
        is_wrong.or_else(|| self.partitions[partition_of(group)].answers().err())
    }

    fn refused(&self, entries: &[Entry]) -> Vec<bool> {
        entries.iter().map(|entry| entry.metadata > self.settings.metadata_max).collect()
    }

    fn commit(&mut self, how: How, group: &'static str, entries: &[Entry]) -> Done {
        let (given, refused, records) = (self.given(entries), self.refused(entries), self.records(None, group, entries));
        let refusal = self.refusal(group, entries);
        if how == How::Each {
            let told = self.store().commit_each(group, &given).map(|each| each.iter().map(Result::is_err).collect::<Vec<_>>());
            same("commit each", told, refusal.map_or(Ok(refused.clone()), Err))?;
        } else {
            let right = refusal.or(refused.contains(&true).then_some(ErrorKind::InvalidInput));
            same("commit", self.store().commit(group, &given), right.map_or(Ok(()), Err))?;
        }
        self.count_commit("commits", refusal, &refused);
        if refusal.is_none() && !records.is_empty() {
            self.written(partition_of(group), records);
        }
        Ok(())
    }

    fn count_commit(&mut self, what: &'static str, refusal: Option<ErrorKind>, refused: &[bool]) {
        self.counts.note(match refusal {
            None => what,
            Some(ErrorKind::InvalidInput) => "commits that can't be",
            Some(_) => "commits where it is not served",
        });
        self.counts.add("entries too long", refused.iter().filter(|refused| **refused).count() as u64);
        self.counts.note(match self.settings.acks {
            RequiredAcks::Synced => "commits until synced",
            RequiredAcks::Written => "commits until written",
            RequiredAcks::Queued => "commits until queued",
        });
    }

    fn commit_later(&mut self, group: &'static str, entries: &[Entry]) -> Done {
        let (given, refused, records) = (self.given(entries), self.refused(entries), self.records(None, group, entries));
        let refusal = self.refusal(group, entries);
        let is_refused = refused.contains(&true);
        self.count_commit("commits that are answered later", refusal, &refused);
        let pending = self.store().commit_async(group, &given);
        if refusal.is_some() || records.is_empty() {
            let right = refusal.or(is_refused.then_some(ErrorKind::InvalidInput));
            return if pending.is_answered() {
                same("commit later", pending.wait(), right.map_or(Ok(()), Err))
            } else {
                Err("nothing was written, and there is no answer".into())
            };
        }
        let number = self.commits;
        self.commits += 1;
        self.owed.push((number, pending, is_refused));
        let partition = &mut self.partitions[partition_of(group)];
        match self.settings.acks {
            // Nothing is in the way of an answer at once.
            RequiredAcks::Queued if !partition.owes() => {
                self.due.push((number, None));
                partition.write(records, None);
            }
            RequiredAcks::Written if partition.is_all_shown() => {
                partition.write(records, Some(number));
                self.due.extend(partition.show_all());
            }
            _ => partition.write(records, Some(number)),
        }
        Ok(())
    }

    /// Every answer that is due is there and right, and no other is there.
    pub(super) fn hear(&mut self) -> Done {
        for (number, failure) in std::mem::take(&mut self.due) {
            let at = self.owed.iter().position(|(owed, ..)| *owed == number).ok_or("an answer is due twice")?;
            let (_, pending, is_refused) = self.owed.remove(at);
            if !pending.is_answered() {
                return Err(format!("commit {number} is not answered"));
            }
            let right = failure.or(is_refused.then_some(ErrorKind::InvalidInput));
            self.counts.note(if failure.is_some() { "answers that it was resigned" } else { "answers" });
            same(&format!("the answer to commit {number}"), pending.wait(), right.map_or(Ok(()), Err))?;
        }
        match self.owed.iter().find(|(_, pending, _)| pending.is_answered()) {
            Some((number, ..)) => Err(format!("commit {number} is answered too early")),
            None => Ok(()),
        }
    }

    fn wait(&mut self) -> Done {
        if self.owed.is_empty() {
            return Ok(());
        }
        let (number, pending, is_refused) = self.owed.remove(0);
        same("wait", pending.wait(), if is_refused { Err(ErrorKind::InvalidInput) } else { Ok(()) })?;
        self.counts.note("waits");
        for partition in &mut self.partitions {
            if partition.owes_to(number) {
                self.due.extend(partition.show_all());
            }
        }
        let before = self.due.len();
        self.due.retain(|(answered, _)| *answered != number);
        if self.due.len() + 1 == before { Ok(()) } else { Err(format!("commit {number} was not owed")) }
    }

    fn commit_in_transaction(&mut self, producer: Producer, group: &'static str, entries: &[Entry]) -> Done {
        let (given, refused) = (self.given(entries), self.refused(entries));
        let records = self.records(Some(producer.id), group, entries);
        let is_written = !records.is_empty();
        let refusal = self.refusal(group, entries).or_else(|| {
            let known = self.partitions[partition_of(group)].producers.get(&producer.id);
            let is_fenced = known.is_some_and(|epoch| producer.epoch < *epoch);
            let fenced = is_fenced.then_some(ErrorKind::ProducerFenced);
            (producer.id < 0).then_some(ErrorKind::InvalidInput).or(fenced).filter(|_| is_written)
        });
        let right = refusal.or(refused.contains(&true).then_some(ErrorKind::InvalidInput));
        let told = self.store().commit_in_transaction(producer, group, &given);
        same("commit in a transaction", told, right.map_or(Ok(()), Err))?;
        self.count_commit("commits in transactions", refusal, &refused);
        self.counts.add("fenced producers", u64::from(refusal == Some(ErrorKind::ProducerFenced)));
        if refusal.is_none() && is_written {
            self.partitions[partition_of(group)].producers.insert(producer.id, producer.epoch);
            self.written(partition_of(group), records);
        }
        Ok(())
    }

    fn end(&mut self, producer: Producer, counts: bool) -> Done {
        let outcome = if counts { Outcome::Commit } else { Outcome::Abort };
        let told = self.store().end_transaction(producer, outcome);
        let mut right = Ok(0);
        for number in 0..self.partitions.len() {
            let shows = self.shows_at_once();
            let partition = &mut self.partitions[number];
            match partition.served {
                Served::NotLed => {}
                Served::WaitsForLoad => {
                    right = Err(ErrorKind::Loading);
                    break;
                }
                Served::Yes if partition.written.open.contains(&producer.id) => {
                    if partition.producers.get(&producer.id).is_some_and(|epoch| producer.epoch < *epoch) {
                        right = Err(ErrorKind::ProducerFenced);
                        break;
                    }
                    partition.producers.insert(producer.id, producer.epoch);
                    self.written(number, vec![Record::Marker(producer.id, counts)]);
                    self.counts.note(if counts { "transactions committed" } else { "transactions aborted" });
                    right = right.map(|ended| ended + 1);
                }
                // Whoever ended it before may not know whether that is safe.
                Served::Yes if shows => self.due.extend(partition.show_end_of(producer.id)),
                Served::Yes => {}
            }
        }
        same("end a transaction", told, right)
    }

    fn remove(&mut self, partition: usize, places: &BTreeSet<Place>, groups: &BTreeSet<&'static str>) {
        let offsets = places.iter().map(|place| Record::Tombstone(*place));
        let records: Vec<_> = offsets.chain(groups.iter().map(|group| Record::Group(group, None))).collect();
        if !records.is_empty() {
            self.written(partition, records);
        }
    }

    fn delete_offsets(&mut self, group: &'static str, places: &[(&'static str, i32)]) -> Done {
        let number = partition_of(group);
        let partition = &self.partitions[number];
        let deletable = partition.deletable();
        let asked = places.iter().map(|(topic, partition)| (group, *topic, *partition));
        let doomed: BTreeSet<_> = asked.filter(|place| deletable.contains(place)).collect();
        let right = partition.answers().map(|_| doomed.len());
        same("delete offsets", self.store().delete_offsets(group, places), right)?;
        if right.is_ok() {
            self.counts.add("offsets deleted", doomed.len() as u64);
            self.remove(number, &doomed, &BTreeSet::new());
        }
        Ok(())
    }

    fn delete_group(&mut self, group: &'static str) -> Done {
        let number = partition_of(group);
        let partition = &self.partitions[number];
        let doomed: BTreeSet<_> = partition.deletable().into_iter().filter(|place| place.0 == group).collect();
        let right = partition.answers().and_then(|state| match state.groups.get(group) {
            Some(Members::Reads(_)) => Err(ErrorKind::InvalidInput),
            known => Ok(known.map(|_| group)),
        });
        same("delete a group", self.store().delete_group(group), right.map(|_| doomed.len()))?;
        match right {
            Ok(known) => {
                self.counts.add("offsets deleted with groups", doomed.len() as u64);
                self.remove(number, &doomed, &known.into_iter().collect());
            }
            Err(ErrorKind::InvalidInput) => self.counts.note("groups that can't be deleted"),
            Err(_) => {}
        }
        Ok(())
    }

    fn delete_topic(&mut self, topic: &'static str) -> Done {
        let told = self.store().delete_topic(topic);
        let mut right = Ok(0);
        for number in 0..self.partitions.len() {
            let partition = &self.partitions[number];
            match partition.served {
                Served::NotLed => continue,
                Served::WaitsForLoad => {
                    right = Err(ErrorKind::Loading);
                    break;
                }
                Served::Yes => {}
            }
            let doomed: BTreeSet<_> = partition.deletable().into_iter().filter(|place| place.1 == topic).collect();
            right = right.map(|deleted| deleted + doomed.len());
            self.counts.add("offsets deleted with topics", doomed.len() as u64);
            self.remove(number, &doomed, &BTreeSet::new());
        }
        same("delete a topic", told, right)
    }

    fn expire(&mut self) -> Done {
        let expired = self.store().expire().map_err(|error| format!("{error:?}"))?;
        let (mut offsets, mut died) = (0, 0);
        for number in 0..self.partitions.len() {
            if self.partitions[number].served == Served::Yes {
                let (places, groups) = self.partitions[number].expired(self.now_ms(), self.settings.retention_ms);
                (offsets, died) = (offsets + places.len() as u64, died + groups.len() as u64);
                self.remove(number, &places, &groups);
            }
        }
        self.counts.add("offsets expired", offsets);
        self.counts.add("groups expired", died);
        if (expired.offsets, expired.groups) == (offsets, died) {
            Ok(())
        } else {
            Err(format!("{expired}; {offsets} and {died} would be right"))
        }
    }
}
