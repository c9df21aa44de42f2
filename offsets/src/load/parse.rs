//! What the fold has to know of the records of a piece. Needs nothing that depends on newer pieces, so any number of pieces
//! may be at this stage at once.

use std::ops::Range;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::{BatchHeader, ControlType, DecodeError, Decoder, RecordRef};
use keeplog_engine::sync::{PoisonError, RwLock};
use keeplog_engine::{Chunk, ChunkBuffer};

use super::Cause;
use super::item::{Item, Items, Kind, NO_EPOCH, Source};
use crate::cache::{Commit, KeyNames, NONE, NameId, Names, Recent};
use crate::record::{self, InternalTopic, OFFSET_KEY_V0, OffsetKey, OffsetValue, version_of};
use crate::replay::{RecordPart, ReplayCounts, ReplayError};

/// Once the batches of a piece take more than this when they are decompressed, they are taken in turns.
const DECOMPRESSED_BYTES_MAX: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };
/// Topics that are remembered while names are looked for: they are few, where records of one group come in runs.
const TOPICS: usize = 64;
/// Where the name of the group is in the key of a commit.
const GROUP_AT: usize = 4;
/// A value of version 3 without metadata.
const PLAIN_VALUE_BYTES: usize = 24;
/// Where the metadata is in a value of version 4, if its length takes one byte.
const METADATA_AT: usize = 15;
/// From the end of the metadata to the topic id, if that is the only tagged field: the commit time, how many tagged fields
/// there are, and the tag and size of this one.
const METADATA_TO_ID_BYTES: usize = 11;
/// The second byte of a commit's key that 0.8.2 wrote.
const OLD_KEY: u8 = OFFSET_KEY_V0 as u8;

/// One piece of a log. Its memory is reused for the next one.
#[derive(Debug, Default)]
pub(super) struct Piece {
    buffer: ChunkBuffer,
    /// Ranges of its bytes that are to be parsed, the newest last. Nearly always it is one.
    left: Vec<Range<usize>>,
    items: Items,
    producers: Vec<i64>,
    decompressed: Vec<u8>,
    /// Keys and values from batches in old formats.
    copied: Vec<u8>,
    /// Some of their names have no numbers yet.
    has_new_names: bool,
    counts: ReplayCounts,
    bytes: u64,
}

impl Piece {
    /// Reads `chunk`, of which nothing is parsed yet. Returns its length.
    pub(super) fn read(&mut self, chunk: &Chunk) -> Result<u64, Cause> {
        chunk.read(&mut self.buffer)?;
        let bytes = self.buffer.bytes().len();
        self.left.clear();
        self.left.push(0..bytes);
        Ok(bytes as u64)
    }

    /// The offsets of all of it.
    pub(super) fn offsets(&self) -> Option<Range<u64>> {
        self.buffer.offsets()
    }

    /// Whether it ends before a batch above the end of the log.
    pub(super) fn reaches_limit(&self) -> bool {
        self.buffer.reaches_limit()
    }

    /// Parses what is newest of what is not parsed yet. `false` if there was nothing.
    pub(super) fn parse_more(&mut self, parser: &mut Parser, names: &RwLock<KeyNames>) -> Result<bool, Cause> {
        while let Some(range) = self.left.pop() {
            let is_parsed = parser.parse(self, range.clone(), &names.read().unwrap_or_else(PoisonError::into_inner))?;
            if is_parsed {
                self.name_new(names)?;
                return Ok(true);
            }
            let middle = middle(self.buffer.bytes(), &range)?;
            self.left.extend([range.start..middle, middle..range.end]);
        }
        Ok(false)
    }

    /// Gives numbers to the names that have none yet.
    fn name_new(&mut self, names: &RwLock<KeyNames>) -> Result<(), Cause> {
        if !self.has_new_names {
            return Ok(());
        }
        let KeyNames { groups, topics } = &mut *names.write().unwrap_or_else(PoisonError::into_inner);
        let mut items = std::mem::take(&mut self.items);
        for item in items.all_mut().iter_mut().filter(|item| item.is_keyed()) {
            let (name, rest) = self.bytes(item.source)[item.key_at as usize..].split_at(item.group_len.into());
            if item.group == NONE {
                item.group = intern(groups, name)?;
            }
            if item.topic == NONE {
                item.topic = intern(topics, &rest[2..2 + usize::from(item.topic_len)])?;
            }
        }
        self.items = items;
        Ok(())
    }

    pub(super) fn items(&self) -> &[Item] {
        self.items.all()
    }

    pub(super) fn counts(&self) -> ReplayCounts {
        self.counts
    }

    /// Bytes of the batches that were parsed.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// In whose transaction the record is, if it is in any.
    #[inline]
    pub(super) fn producer(&self, item: &Item) -> Option<i64> {
        item.producer.checked_sub(1).map(|at| self.producers[at as usize])
    }

    /// The commit of an item with an offset that is not negative.
    #[inline]
    pub(super) fn commit(&self, item: &Item) -> Commit<'_> {
        let value = self.value(item);
        let topic_id = (item.kind == Kind::CommitWithId).then(|| self.topic_id(item));
        let mut commit = Commit {
            offset: item.number.cast_unsigned(),
            leader_epoch: (item.leader_epoch != NO_EPOCH).then_some(item.leader_epoch),
            metadata: "",
            commit_timestamp_ms: item.commit_timestamp_ms,
            expire_timestamp_ms: None,
            topic_id,
            record_offset: item.record_offset,
        };
        if item.kind == Kind::LongCommit {
            // invariant: it was decoded a moment ago, from the same bytes.
            let value = OffsetValue::decode(value).expect("decodes again");
            commit.metadata = value.metadata;
            commit.expire_timestamp_ms = value.expire_timestamp_ms;
            commit.topic_id = value.topic_id;
        } else if !value.is_empty() {
            // invariant: as above.
            commit.metadata = std::str::from_utf8(value).expect("it was text a moment ago");
        }
        commit
    }

    fn topic_id(&self, item: &Item) -> [u8; 16] {
        let at = item.value_at as usize + item.value_len as usize + METADATA_TO_ID_BYTES;
        let mut id = [0; 16];
        id.copy_from_slice(&self.bytes(item.source)[at..at + 16]);
        id
    }

    /// The key of a group's record.
    pub(super) fn group_key(&self, item: &Item) -> &[u8] {
        &self.bytes(item.source)[item.key_at as usize..][..item.number as usize]
    }

    /// The value of a group's record.
    #[inline]
    pub(super) fn value(&self, item: &Item) -> &[u8] {
        if item.value_len == 0 { &[] } else { &self.bytes(item.source)[item.value_at as usize..][..item.value_len as usize] }
    }

    #[inline]
    fn bytes(&self, source: Source) -> &[u8] {
        match source {
            Source::Read => self.buffer.bytes(),
            Source::Decompressed => &self.decompressed,
            Source::Copied => &self.copied,
        }
    }
}

fn intern(names: &mut Names, name: &[u8]) -> Result<NameId, Cause> {
    // Mostly it is that of an item before.
    if let Some(id) = names.find(name) {
        return Ok(id);
    }
    Ok(names.intern(std::str::from_utf8(name).map_err(|_| Cause::Name)?))
}

/// The names in the key of a commit, and the partition, if it is laid out like one. Whether the names are text is seen when they
/// get their numbers.
#[inline(always)]
fn commit_key(key: &[u8]) -> Option<(&[u8], &[u8], i32)> {
    let [0, 0 | 1, high, low, rest @ ..] = key else { return None };
    let group_len = u16::from_be_bytes([*high, *low]);
    let (group, rest) = rest.split_at_checked(group_len.into())?;
    let [high, low, rest @ ..] = rest else { return None };
    let topic_len = u16::from_be_bytes([*high, *low]);
    let (topic, rest) = rest.split_at_checked(topic_len.into())?;
    let partition = rest.first_chunk()?;
    // A negative length is none.
    ((group_len | topic_len) >> 15 == 0).then_some((group, topic, i32::from_be_bytes(*partition)))
}

/// Offset, leader epoch and commit time of a value of version 3 without metadata.
#[inline(always)]
fn plain_value(value: &[u8]) -> Option<(i64, i32, i64)> {
    let value: &[u8; PLAIN_VALUE_BYTES] = value.first_chunk()?;
    let (version, rest) = value.split_first_chunk::<2>()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let (leader_epoch, rest) = rest.split_first_chunk()?;
    let (metadata_len, rest) = rest.split_first_chunk::<2>()?;
    let commit_timestamp_ms = rest.first_chunk()?;
    let is_plain = *version == [0, 3] && *metadata_len == [0, 0];
    is_plain.then(|| (i64::from_be_bytes(*offset), i32::from_be_bytes(*leader_epoch), i64::from_be_bytes(*commit_timestamp_ms)))
}

/// Where a batch begins within `range`, which has several, about in its middle.
fn middle(bytes: &[u8], range: &Range<usize>) -> Result<usize, DecodeError> {
    let after = |at: usize| BatchHeader::parse(&bytes[at..]).map(|header| at + header.size as usize);
    let mut at = after(range.start)?;
    while at < range.start.midpoint(range.end) {
        match after(at)? {
            next if next < range.end => at = next,
            _ => break,
        }
    }
    Ok(at)
}

/// Parses pieces. One for each thread that does so.
pub(super) struct Parser {
    decoder: Decoder,
    start_offset: u64,
    skips_tombstones: bool,
}

impl Parser {
    /// For the records of a log from `start_offset` on.
    pub(super) fn new(decoder: Decoder, start_offset: u64) -> Self {
        Self { decoder, start_offset, skips_tombstones: is_planted(Defect::LoadSkipsTombstones) }
    }

    /// Parses the batches in `range`. `false` if they take too much memory together.
    fn parse(&mut self, piece: &mut Piece, range: Range<usize>, names: &KeyNames) -> Result<bool, Cause> {
        let Piece { buffer, items, producers, decompressed, copied, has_new_names, counts, bytes: read, .. } = piece;
        items.clear();
        producers.clear();
        copied.clear();
        (*counts, *read) = (ReplayCounts::default(), range.len() as u64);
        // What an earlier piece has left there that could not be parsed to its end.
        self.decoder.exchange_kept(decompressed);
        let bytes = buffer.bytes();
        let start = bytes.as_ptr().addr();
        *has_new_names = false;
        let mut sink = Sink {
            items,
            counts,
            groups: Recent::new(&names.groups),
            topics: Recent::new(&names.topics),
            has_new_names,
            producers,
            producer: 0,
            start_offset: self.start_offset,
            skips_tombstones: self.skips_tombstones,
        };
        let (mut at, mut kept) = (range.start, 0);
        while at < range.end {
            if kept + copied.len() > DECOMPRESSED_BYTES_MAX {
                return Ok(false);
            }
            let rest = &bytes[at..];
            // Nearly all are like this. The header is in registers as long as it is handed to nobody.
            if let Some(header) = BatchHeader::parse_v2(rest)
                && header.is_plain()
                && !header.is_control()
            {
                sink.begin(&header);
                let entry = &rest[..header.size as usize];
                at += entry.len();
                self.decoder.visit(&header, entry, |record| sink.record(record, Source::Read, |part| part.as_ptr().addr() - start))?;
                continue;
            }
            let header = BatchHeader::parse(rest)?;
            let entry = &rest[..header.size as usize];
            at += entry.len();
            if header.is_control() {
                sink.markers(&header, self.decoder.records(entry)?)?;
                continue;
            }
            sink.begin(&header);
            if header.magic < 2 {
                for record in self.decoder.records(entry)? {
                    sink.copy(&record?, copied)?;
                }
            } else {
                self.decoder.visit_kept(&header, entry, |record, body_at| {
                    kept = body_at + record.body.len();
                    let start = record.body.as_ptr().addr();
                    sink.record(record, Source::Decompressed, |part| part.as_ptr().addr() - start + body_at)
                })?;
            }
        }
        self.decoder.exchange_kept(decompressed);
        // Of one batch alone that may be more.
        if decompressed.len().max(copied.len()) > u32::MAX as usize { Err(Cause::TooLarge) } else { Ok(true) }
    }
}

/// What ends the parsing of a batch. Small, and nothing to drop.
#[derive(Clone, Copy, Debug)]
enum Stop {
    Batch(DecodeError),
    Record(ReplayError),
}

impl From<DecodeError> for Stop {
    fn from(cause: DecodeError) -> Self {
        Self::Batch(cause)
    }
}

impl From<ReplayError> for Stop {
    fn from(cause: ReplayError) -> Self {
        Self::Record(cause)
    }
}

impl From<Stop> for Cause {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Batch(cause) => cause.into(),
            Stop::Record(cause) => cause.into(),
        }
    }
}

/// Where the items of a batch go.
struct Sink<'p> {
    items: &'p mut Items,
    counts: &'p mut ReplayCounts,
    groups: Recent<'p, 1>,
    topics: Recent<'p, TOPICS>,
    has_new_names: &'p mut bool,
    producers: &'p mut Vec<i64>,
    producer: u32,
    start_offset: u64,
    skips_tombstones: bool,
}

impl Sink<'_> {
    /// Before the records of a batch.
    #[inline(always)]
    fn begin(&mut self, header: &BatchHeader) {
        self.producer = 0;
        if header.is_transactional() {
            self.producers.push(header.producer_id);
            self.producer = self.producers.len() as u32;
        }
    }

    /// Takes in a record; `at` tells where a part of it is.
    // Inlined into its loops.
    #[inline(always)]
    fn record(&mut self, record: &RecordRef<'_>, source: Source, at: impl Fn(&[u8]) -> usize) -> Result<(), Stop> {
        let offset = record.offset;
        if offset < self.start_offset || (self.skips_tombstones && record.value.is_none()) {
            return Ok(());
        }
        let Some(key) = record.key else {
            return Err(ReplayError { offset, part: RecordPart::Key, source: record::DecodeError::Null { at: 0 } }.into());
        };
        let Some((group_name, topic_name, partition)) = commit_key(key) else {
            // A copy: the record itself is nowhere in memory.
            return self.of_group(key, &{ *record }, source, at);
        };
        let (group, topic) = (self.groups.find(group_name), self.topics.find(topic_name));
        *self.has_new_names |= group == NONE || topic == NONE;
        self.counts.records += 1;
        self.counts.old_keys += u64::from(key[1] == OLD_KEY);
        let plain = record.value.and_then(plain_value);
        let (number, leader_epoch, commit_timestamp_ms) = plain.unwrap_or((0, NO_EPOCH, 0));
        let item = self.items.next();
        *item = Item {
            record_offset: offset,
            number,
            commit_timestamp_ms,
            partition,
            leader_epoch,
            group,
            topic,
            key_at: (at(key) + GROUP_AT) as u32,
            value_at: 0,
            value_len: 0,
            producer: self.producer,
            // Both have 15 bits.
            group_len: group_name.len() as u16,
            topic_len: topic_name.len() as u16,
            kind: if plain.is_some() { Kind::Commit } else { Kind::Tombstone },
            source,
        };
        match record.value {
            None => self.counts.tombstones += 1,
            Some(value) if plain.is_none() => Self::value(item, self.counts, value, at(value))?,
            Some(_) => {}
        }
        Ok(())
    }

    /// Has in `item` what `value`, which is at `value_at`, says.
    #[inline(never)]
    fn value(item: &mut Item, counts: &mut ReplayCounts, value: &[u8], value_at: usize) -> Result<(), Stop> {
        let in_value = |source| ReplayError { offset: item.record_offset, part: RecordPart::Value, source };
        let decoded = OffsetValue::decode(value).map_err(in_value)?;
        counts.newer_values += u64::from(version_of(value).map_err(in_value)? > OffsetValue::LATEST_VERSION);
        item.number = decoded.offset;
        item.commit_timestamp_ms = decoded.commit_timestamp_ms;
        item.leader_epoch = decoded.leader_epoch.unwrap_or(NO_EPOCH);
        let metadata = decoded.metadata.as_bytes();
        (item.kind, item.value_at, item.value_len) = if decoded.expire_timestamp_ms.is_none() && decoded.topic_id.is_none() {
            let at = if metadata.is_empty() { 0 } else { value_at + metadata.as_ptr().addr() - value.as_ptr().addr() };
            (Kind::Commit, at as u32, metadata.len() as u32)
        } else if decoded.topic_id.is_some() && value.len() == METADATA_AT + metadata.len() + METADATA_TO_ID_BYTES + 16 {
            // Nothing else has this length: the length of the metadata takes a byte, and there is one tagged field.
            (Kind::CommitWithId, (value_at + METADATA_AT) as u32, metadata.len() as u32)
        } else {
            (Kind::LongCommit, value_at as u32, value.len() as u32)
        };
        Ok(())
    }

    #[inline(never)]
    fn of_group(&mut self, key: &[u8], record: &RecordRef<'_>, source: Source, at: impl Fn(&[u8]) -> usize) -> Result<(), Stop> {
        let in_key = |source| ReplayError { offset: record.offset, part: RecordPart::Key, source };
        let known = InternalTopic::ConsumerOffsets.knows(version_of(key).map_err(in_key)?);
        // The key of a commit comes here only if something is wrong with it.
        OffsetKey::decode(key).map_err(in_key)?;
        self.counts.records += 1;
        self.counts.unknown_types += u64::from(!known);
        let kind = if record.value.is_some() { Kind::Group } else { Kind::GroupTombstone };
        let item = self.items.next();
        *item = Item { number: key.len() as i64, ..Item::new(record.offset, kind, source, at(key)) };
        if let Some(value) = record.value.filter(|value| !value.is_empty()) {
            (item.value_at, item.value_len) = (at(value) as u32, value.len() as u32);
        }
        Ok(())
    }

    /// Takes in a record whose bytes will not stay.
    fn copy(&mut self, record: &RecordRef<'_>, copied: &mut Vec<u8>) -> Result<(), Stop> {
        let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
        let (key_at, key_start, value_start) = (copied.len(), key.as_ptr().addr(), value.as_ptr().addr());
        copied.extend_from_slice(key);
        copied.extend_from_slice(value);
        self.record(record, Source::Copied, |part| {
            let start = part.as_ptr().addr();
            if (key_start..=key_start + key.len()).contains(&start) {
                key_at + start - key_start
            } else {
                key_at + key.len() + start - value_start
            }
        })
    }

    fn markers<'a>(
        &mut self,
        header: &BatchHeader,
        records: impl Iterator<Item = Result<RecordRef<'a>, DecodeError>>,
    ) -> Result<(), Cause> {
        for record in records {
            let record = record?;
            if record.offset < self.start_offset || (self.skips_tombstones && record.value.is_none()) {
                continue;
            }
            let kind = match ControlType::of_key(record.key.unwrap_or_default())? {
                ControlType::Commit => Kind::CommitMarker,
                ControlType::Abort => Kind::AbortMarker,
                _ => continue,
            };
            *self.items.next() = Item { number: header.producer_id, ..Item::new(record.offset, kind, Source::Read, 0) };
        }
        Ok(())
    }
}
