//! Folds a partition of `__consumer_offsets` into what is committed, without opening the log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::door::check::{DECODED_BYTES_MAX, Inventory};
use crate::door::groups::GroupDescription;
use crate::door::names::{FileKind, FileName, FileState};
use crate::door::offsets_record::{OFFSET_KEY_V0, OffsetKey};
use crate::door::record::{ControlType, DecodeError, Decoder, Record};
use crate::door::replay::{Origin, Outcome, Replay};
use crate::door::scan::{Entry, EntryScanner, SCAN_BUFFER_BYTES};
use crate::door::storage::{EntryKind, OpenMode};
use crate::door::{Error, Storage};
use crate::failure::{self, Failure};
use crate::output;
use crate::progress::Progress;
use crate::{Status, complain};

/// A segment spans no more: its indexes have offsets of 31 bits.
const SEGMENT_OFFSETS_MAX: u64 = 1 << 31;

/// One committed offset.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) offset: u64,
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) metadata: Arc<str>,
    pub(crate) commit_timestamp_ms: i64,
    pub(crate) expire_timestamp_ms: Option<i64>,
    pub(crate) topic_id: Option<[u8; 16]>,
}

/// What one partition, or several, say.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    pub(crate) committed: Vec<Committed>,
    /// Of groups with records of their own.
    pub(crate) groups: BTreeMap<String, GroupDescription>,
    /// Keys of these records, which take a group away when they are written without a value.
    pub(crate) tombstones: BTreeMap<String, Vec<Vec<u8>>>,
    /// What waits for the end of a transaction: group, topic and partition.
    pub(crate) pending: BTreeSet<(String, String, i32)>,
    /// Commits with keys as 0.8.2 wrote them are there, which take tombstones of their own.
    pub(crate) has_old_keys: bool,
}

impl Folded {
    /// The places of all commits of `group`, those that wait among them.
    pub(crate) fn places_of(&self, group: &str) -> BTreeSet<(&str, i32)> {
        let committed = self.committed.iter().filter(|c| &*c.group == group).map(|c| (&*c.topic, c.partition));
        let pending = self.pending.iter().filter(|(of, ..)| of == group).map(|(_, topic, partition)| (&**topic, *partition));
        committed.chain(pending).collect()
    }

    /// Records that delete what `key` stands for. The cleaner tells the two key versions of one place apart: when the one
    /// tombstone is gone, a record under the other key would count again.
    pub(crate) fn tombstones(&self, key: &OffsetKey<'_>) -> Option<Vec<Record>> {
        let mut bytes = Vec::new();
        if !key.encode(&mut bytes) {
            return None;
        }
        let old = self.has_old_keys.then(|| [&OFFSET_KEY_V0.to_be_bytes(), &bytes[2..]].concat());
        Some(old.into_iter().chain([bytes]).map(Record::tombstone).collect())
    }
}

/// Reads one partition.
pub(crate) struct Loader<'s> {
    storage: &'s dyn Storage,
    decoder: Decoder,
    replay: Replay,
    /// First offset that counts.
    start_offset: u64,
    /// One past the last batch that counts.
    end_offset: u64,
    /// The first record that is none of this topic, and how many there are.
    foreign: Option<(String, u64)>,
}

impl<'s> Loader<'s> {
    pub(crate) fn new(storage: &'s dyn Storage, start_offset: u64, replay: Replay) -> Self {
        Self { storage, decoder: Decoder::new(DECODED_BYTES_MAX), replay, start_offset, end_offset: 0, foreign: None }
    }

    /// Reads all segments in `dir`. Damage is complained about; what could be read counts.
    pub(crate) fn partition(&mut self, dir: &Path, progress: &mut Progress<'_>) -> Result<Status, Failure> {
        let mut status = self.warn_of_what_cannot_be_read(dir)?;
        let segments = Inventory::list(self.storage, dir)?.segments;
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map_or(u64::MAX, |next| next.base);
            let offsets = segment.base..next.min(segment.base.saturating_add(SEGMENT_OFFSETS_MAX));
            status = status.max(self.segment(&dir.join(&segment.log), offsets, progress)?);
        }
        let counts = self.replay.counts();
        if counts.records > 0 && counts.unknown_types == counts.records {
            let text =
                format!("could not list offsets in {}: none of its {} records is a commit or of a group", dir.display(), counts.records);
            return Err(Failure::new(text).advise("give a partition of __consumer_offsets, or the data directory that holds it"));
        }
        self.warn_of_what_is_not_shown(dir);
        if self.end_offset > 0 && self.start_offset > self.end_offset {
            let (start, end) = (self.start_offset, self.end_offset);
            complain(&format!(
                "{}: by its checkpoint the log starts at {start}, and it ends at {end}: nothing in it counts; keeplog verify says more",
                dir.display()
            ));
            status = Status::Damage;
        }
        if let Some((first, count)) = &self.foreign {
            let failure =
                Failure::new(format!("could not read {count} records of {} as commits or groups; the first: {first}", dir.display()))
                    .advise("is this a partition of __consumer_offsets? keeplog dump --decode offsets shows every record");
            complain(&failure.to_string());
            status = Status::Damage;
        }
        Ok(status)
    }

    /// Records that were taken into account.
    pub(crate) fn records(&self) -> u64 {
        self.replay.counts().records
    }

    /// What is named like a segment, and is none, may stand for one with commits in it.
    fn warn_of_what_cannot_be_read(&self, dir: &Path) -> Result<Status, Failure> {
        let mut status = Status::Fine;
        for entry in self.storage.list(dir).map_err(|e| Error::io("list", dir, e))? {
            let is_segment = FileName::parse(&entry.name).is_some_and(|name| name.kind == FileKind::Log && name.state == FileState::Live);
            if is_segment && entry.kind != EntryKind::File {
                let what = if entry.kind == EntryKind::Directory { "a directory" } else { "a link or a device" };
                let path = output::name(&dir.join(&entry.name).display().to_string());
                complain(&format!("could not read {path}: it is {what}; what it stands for is missing from the answer"));
                status = Status::Damage;
            }
        }
        Ok(status)
    }

    /// A short answer may have reasons that are no damage.
    fn warn_of_what_is_not_shown(&self, dir: &Path) {
        let (counts, dir) = (self.replay.counts(), dir.display());
        if counts.unknown_types > 0 {
            let records = output::counted(counts.unknown_types, "record", "records");
            complain(&format!(
                "{dir}: passed over {records} of types that this version does not know; keeplog dump --decode offsets shows them"
            ));
        }
        if counts.newer_values > 0 {
            let commits = output::counted(counts.newer_values, "commit", "commits");
            complain(&format!("{dir}: {commits} are in a newer format than this version knows; they are shown as far as they can be read"));
        }
        let open = self.replay.open_transactions() as u64;
        if open > 0 {
            let transactions = output::counted(open, "transaction is", "transactions are");
            complain(&format!("{dir}: {transactions} still open; what they would commit is not shown"));
        }
    }

    /// Records of groups that cannot be read take nothing else with them.
    pub(crate) fn warn_of_groups(&self, dir: &Path) -> Status {
        let groups = self.replay.groups();
        let mut problems = groups.problems();
        let first = problems.next().map(|problem| output::name(&problem.to_string()));
        let values = u64::from(first.is_some()) + problems.count() as u64;
        if let Some(first) = first {
            let records = output::counted(values, "record", "records");
            complain(&format!("{}: {records} of groups cannot be read; the first: {first}", dir.display()));
        }
        if groups.unreadable_keys() > 0 {
            let keys = output::counted(groups.unreadable_keys(), "record has", "records have");
            complain(&format!("{}: {keys} a key of a group that cannot be read", dir.display()));
        }
        if values + groups.unreadable_keys() > 0 { Status::Damage } else { Status::Fine }
    }

    /// The groups that anything is known of, some of them more than once.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Arc<str>> {
        let committed = self.replay.cache().groups().map(Arc::clone);
        let waiting = self.replay.pending_places().map(|key| Arc::from(key.group));
        committed.chain(self.replay.groups().names().map(Arc::from)).chain(waiting)
    }

    /// Adds what is committed, and who is in the groups, of those that are wanted.
    pub(crate) fn finish(self, wanted: &dyn Fn(&str) -> bool, folded: &mut Folded) {
        let cache = self.replay.cache();
        for group in cache.groups().filter(|name| wanted(name)) {
            folded.committed.extend(cache.list_group(group).into_iter().map(|listed| Committed {
                group: Arc::clone(group),
                topic: listed.topic,
                partition: listed.partition,
                offset: listed.committed.offset,
                leader_epoch: listed.committed.leader_epoch,
                metadata: listed.committed.metadata,
                commit_timestamp_ms: listed.committed.commit_timestamp_ms,
                expire_timestamp_ms: listed.committed.expire_timestamp_ms,
                topic_id: listed.committed.topic_id,
            }));
        }
        let groups = self.replay.groups();
        for name in groups.names().filter(|name| wanted(name)) {
            folded.groups.extend(groups.describe(name).map(|described| (name.to_owned(), described)));
            folded.tombstones.insert(name.to_owned(), groups.tombstones_of(name));
        }
        folded.has_old_keys |= self.replay.counts().old_keys > 0;
        let pending = self.replay.pending_places().filter(|key| wanted(key.group));
        folded.pending.extend(pending.map(|key| (key.group.to_owned(), key.topic.to_owned(), key.partition)));
    }

    /// Reads a segment, which is to hold no other `offsets` than these.
    fn segment(&mut self, path: &Path, offsets: Range<u64>, progress: &mut Progress<'_>) -> Result<Status, Error> {
        let file = self.storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
        let mut scanner = EntryScanner::new(&*file, 0, len, SCAN_BUFFER_BYTES);
        let (mut status, mut misplaced) = (Status::Fine, 0);
        while let Some(next) = scanner.next() {
            let damage = match next {
                Ok(entry) => {
                    progress.add(u64::from(entry.header.size));
                    let (position, offset) = (entry.position, entry.header.base_offset);
                    match self.batch(&entry, &offsets) {
                        Ok(()) => None,
                        Err(flaw) => {
                            // One wrong offset may put all that follow in the wrong place.
                            misplaced += u64::from(flaw.is_of_place());
                            (misplaced < 2 || !flaw.is_of_place())
                                .then(|| Error::corrupt("read the batch in", path, position, flaw.to_string()).offset_at(offset))
                        }
                    }
                }
                Err(end) => {
                    progress.add(len - end.position);
                    Some(end.in_file("read on in", path))
                }
            };
            if let Some(damage) = damage {
                complain(&format!("{}; what it held is missing from the answer", failure::one_line(&damage)));
                status = Status::Damage;
            }
        }
        if misplaced > 1 {
            let more = output::counted(misplaced - 1, "more batch is", "more batches are");
            complain(&format!("{}: {more} out of order and missing from the answer; keeplog verify shows each", path.display()));
        }
        Ok(status)
    }

    fn batch(&mut self, entry: &Entry<'_>, offsets: &Range<u64>) -> Result<(), Flaw> {
        let header = entry.header;
        header.verify_crc(entry.bytes)?;
        // No checksum covers the offset, and what counts is told by the order.
        if header.base_offset < offsets.start || header.last_offset >= offsets.end {
            return Err(Flaw::Outside { last_offset: header.last_offset, offsets: offsets.clone() });
        }
        let after = self.end_offset;
        if header.base_offset < after {
            return Err(Flaw::GoesBack { offset: header.base_offset, after });
        }
        let origin = if header.is_transactional() { Origin::Transaction { producer_id: header.producer_id } } else { Origin::Plain };
        for record in self.decoder.records(entry.bytes)? {
            let record = record?;
            // In the old formats a batch tells its last offset only.
            if record.offset < after {
                return Err(Flaw::GoesBack { offset: record.offset, after });
            }
            self.end_offset = header.next_offset();
            if record.offset < self.start_offset {
                continue;
            }
            if header.is_control() {
                match record.key.map(ControlType::of_key).transpose()? {
                    Some(ControlType::Commit) => self.replay.marker(header.producer_id, Outcome::Commit),
                    Some(ControlType::Abort) => self.replay.marker(header.producer_id, Outcome::Abort),
                    _ => {}
                }
            } else if let Err(error) = self.replay.record(origin, record.offset, record.key, record.value) {
                let text = || failure::chain(&error.to_string(), std::error::Error::source(&error));
                self.foreign.get_or_insert_with(|| (text(), 0)).1 += 1;
            }
        }
        self.end_offset = header.next_offset();
        Ok(())
    }
}

/// Why a batch does not count, or not all of it.
enum Flaw {
    Decode(DecodeError),
    GoesBack { offset: u64, after: u64 },
    Outside { last_offset: u64, offsets: Range<u64> },
}

impl Flaw {
    fn is_of_place(&self) -> bool {
        !matches!(self, Self::Decode(_))
    }
}

impl From<DecodeError> for Flaw {
    fn from(cause: DecodeError) -> Self {
        Self::Decode(cause)
    }
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decode(cause) => cause.fmt(f),
            Self::GoesBack { offset, after } => {
                write!(f, "offset {offset} was there before, the batch before it ends at {}: one of the two offsets is wrong", after - 1)
            }
            Self::Outside { last_offset, offsets } => {
                write!(f, "it ends at offset {last_offset}, and its segment holds offsets {} to {} only", offsets.start, offsets.end - 1)
            }
        }
    }
}
