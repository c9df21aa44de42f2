//! From a file to a replay.

use std::io;
use std::path::Path;
use std::sync::Arc;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::crc32c;
use keeplog_engine::room;
use keeplog_engine::storage::{File, OpenMode, Storage, read_exact_at};
use keeplog_engine::sync::{Condvar, Mutex, MutexGuard, PoisonError, on_threads};
use keeplog_engine::{ErrorKind, Fingerprint, Log};

use super::bytes::Bytes;
use super::{
    BLOCK_BYTES, Contents, ENTRY_BYTES, HEADER_BYTES, HEADER_CRC_AT, HEADER_CRC_START, Kind, MAGIC, NAME, Section, Unusable, VERSION,
};
use crate::cache::{Commit, Incoming, NameId, Place, Rebuild, SPANS, Texts, TopicId};
use crate::record::OffsetKey;
use crate::replay::{Replay, ReplayCounts};

/// Sections that may be read ahead of the one whose turn it is, and so in memory at the same time.
const AHEAD_MAX: usize = 8;

/// No log has as many records.
const COUNT_MAX: u64 = 1 << 62;

/// What a snapshot holds.
pub(crate) struct Restored {
    /// As of `from_offset`, some of it newer: the log is to be read from there.
    pub(crate) replay: Replay,
    pub(crate) from_offset: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Length of the file.
    pub(crate) bytes: u64,
}

/// A file that is sound as far as it was looked at.
pub(crate) struct Snapshot {
    file: Arc<dyn File>,
    contents: Contents,
    bytes: u64,
}

/// Opens the snapshot of `log`, if there is one and it is of this log.
pub(crate) fn open(log: &Log) -> Result<Snapshot, Unusable> {
    let snapshot = Snapshot::open(&**log.storage(), &log.path().join(NAME))?;
    let (kept, from_offset) = (&snapshot.contents.fingerprint, snapshot.contents.from_offset);
    let (end_offset, log_end) = (kept.end_offset(), log.end_offset());
    if end_offset > log_end {
        return Err(Unusable::Newer { end_offset, log_end });
    }
    if kept.start_offset() > from_offset || from_offset > end_offset {
        return Err(Unusable::Content("contents"));
    }
    match log.fingerprint(end_offset) {
        Ok(_) if is_planted(Defect::BelieveSnapshot) => Ok(snapshot),
        Ok(now) => kept.difference(&now).map_or(Ok(snapshot), |why| Err(Unusable::OtherLog(why))),
        Err(error) if error.kind() == ErrorKind::OutOfRange => Err(Unusable::OtherLog(error.to_string())),
        Err(error) => Err(Unusable::Log(error)),
    }
}

impl Snapshot {
    /// Opens a file and reads what is in it.
    pub(super) fn open(storage: &dyn Storage, path: &Path) -> Result<Self, Unusable> {
        let file = storage.open(path, OpenMode::Read).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Unusable::Missing,
            _ => Unusable::Io(e),
        })?;
        let bytes = file.len()?;
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES as u64 {
            return Err(Unusable::Magic);
        }
        read_exact_at(&*file, &mut header, 0)?;
        let contents = Contents::decode(&read_contents(&*file, &header, bytes)?, bytes).ok_or(Unusable::Content("contents"))?;
        Ok(Self { file, contents, bytes })
    }

    /// Bytes of the log that a load would have to read, of `log_bytes`.
    pub(crate) fn bytes_after(&self, log_bytes: u64) -> u64 {
        log_bytes.saturating_sub(self.contents.fingerprint.bytes())
    }

    /// Reads all of it, with so many threads.
    pub(crate) fn read(self, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<Restored, Unusable> {
        let Contents { base, blocks, .. } = self.contents;
        // invariant: so many blocks lie in the file, so they fit in memory.
        let build = Build::new(Rebuild::new(blocks as usize, base));
        let crew = Crew {
            file: &*self.file,
            sections: &self.contents.sections,
            state: Mutex::new(State { next: 0, turn: 0, build, failure: None }),
            advanced: Condvar::new(),
            progress,
        };
        on_threads(threads.clamp(1, AHEAD_MAX), || crew.work());
        let State { build, failure, .. } = crew.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let replay = build.finish(&self.contents).ok_or(Unusable::Content("contents"))?;
        let Contents { from_offset, fingerprint, .. } = self.contents;
        Ok(Restored { replay, from_offset, fingerprint, bytes: self.bytes })
    }
}

fn read_contents(file: &dyn File, header: &[u8; HEADER_BYTES], bytes: u64) -> Result<Vec<u8>, Unusable> {
    let mut fields = Bytes(header);
    let cut = Unusable::Content("header");
    if fields.array() != Some(MAGIC) {
        return Err(Unusable::Magic);
    }
    let (Some(version), Some(crc)) = (fields.u32(), fields.u32()) else { return Err(cut) };
    if version != VERSION {
        return Err(Unusable::Version(version));
    }
    debug_assert_eq!(HEADER_CRC_START, HEADER_CRC_AT + 4);
    if !is_sound(&header[HEADER_CRC_START..], crc) {
        return Err(Unusable::Checksum("header"));
    }
    let (Some(stated), Some(position), Some(len), Some(crc)) = (fields.u64(), fields.u64(), fields.u32(), fields.u32()) else {
        return Err(cut);
    };
    if stated != bytes {
        return Err(Unusable::Length { found: bytes, stated });
    }
    if position.checked_add(len.into()) != Some(bytes) || position < HEADER_BYTES as u64 {
        return Err(cut);
    }
    let mut contents = room::zeroed(len as usize)?;
    read_exact_at(file, &mut contents, position)?;
    if is_sound(&contents, crc) { Ok(contents) } else { Err(Unusable::Checksum("contents")) }
}

fn is_sound(bytes: &[u8], crc: u32) -> bool {
    crc32c(bytes) == crc || is_planted(Defect::SkipSnapshotChecksums)
}

impl Section {
    /// Reads it: it lies within the file.
    fn read(&self, file: &dyn File, bytes: &mut Vec<u8>) -> Result<(), Unusable> {
        room::resize(bytes, self.len as usize)?;
        read_exact_at(file, bytes, self.position)?;
        if is_sound(bytes, self.crc) { Ok(()) } else { Err(Unusable::Checksum("sections")) }
    }
}

impl Contents {
    /// Of a file of `file_bytes` bytes.
    fn decode(bytes: &[u8], file_bytes: u64) -> Option<Self> {
        let mut left = Bytes(bytes);
        let from_offset = left.u64()?;
        let has_base = left.flag()?;
        let base = (left.i64()?, left.u64()?);
        let counts = ReplayCounts {
            records: left.u64()?,
            tombstones: left.u64()?,
            unknown_types: left.u64()?,
            newer_values: left.u64()?,
            old_keys: left.u64()?,
        };
        let (unreadable_keys, blocks, entries) = (left.u64()?, left.u64()?, left.u64()?);
        let ReplayCounts { records, tombstones, unknown_types, newer_values, old_keys } = counts;
        // They are counted on from here.
        if [records, tombstones, unknown_types, newer_values, old_keys, unreadable_keys].iter().any(|count| *count > COUNT_MAX) {
            return None;
        }
        let fingerprint = Fingerprint::decode(left.sized()?)?;
        let count = left.u32()?;
        let mut sections = Vec::new();
        let mut end = HEADER_BYTES as u64;
        for _ in 0..count {
            let section = Section { kind: Kind::of(left.u8()?)?, position: left.u64()?, len: left.u32()?, crc: left.u32()? };
            if section.position != end {
                return None;
            }
            end = end.checked_add(section.len.into())?;
            sections.push(section);
        }
        let is_whole = left.is_empty() && end.checked_add(bytes.len() as u64) == Some(file_bytes);
        let fits = blocks.checked_mul(BLOCK_BYTES as u64)? <= file_bytes && blocks <= entries;
        let base = has_base.then_some(base);
        (is_whole && fits).then_some(Self { from_offset, base, counts, unreadable_keys, blocks, entries, fingerprint, sections })
    }
}

/// What those who read a file share.
struct Crew<'a> {
    file: &'a dyn File,
    sections: &'a [Section],
    state: Mutex<State>,
    advanced: Condvar,
    progress: &'a (dyn Fn(u64) + Sync),
}

struct State {
    /// The first section that nobody reads.
    next: usize,
    /// The one whose turn it is.
    turn: usize,
    build: Build,
    failure: Option<Unusable>,
}

impl Crew<'_> {
    fn work(&self) {
        let _fails = FailsOnPanic(self);
        let mut bytes = Vec::new();
        loop {
            let number = {
                let mut state = self.state();
                if state.failure.is_some() || state.next == self.sections.len() {
                    return;
                }
                state.next += 1;
                state.next - 1
            };
            let section = self.sections[number];
            let read = section.read(self.file, &mut bytes);
            let mut state = self.state();
            while state.failure.is_none() && state.turn != number {
                state = self.advanced.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.failure.is_some() {
                return;
            }
            let taken = read.and_then(|()| state.build.section(section.kind, Bytes(&bytes)).ok_or(Unusable::Content("sections")));
            state.turn += 1;
            state.failure = taken.err();
            drop(state);
            self.advanced.notify_all();
            (self.progress)(section.len.into());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic ends the read, and nothing of it is used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the others go when one panics, so that the panic ends the read.
struct FailsOnPanic<'c>(&'c Crew<'c>);

impl Drop for FailsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state().failure.get_or_insert(Unusable::Content("sections"));
            self.0.advanced.notify_all();
        }
    }
}

/// What the sections so far come to.
struct Build {
    rebuild: Rebuild,
    replay: Replay,
    groups: Vec<NameId>,
    topics: Vec<(NameId, Option<TopicId>)>,
    texts: Texts,
    blocks: u64,
    entries: u64,
}

impl Build {
    fn new(rebuild: Rebuild) -> Self {
        let (replay, texts) = (Replay::new(), Texts::default());
        Self { rebuild, replay, groups: Vec::new(), topics: Vec::new(), texts, blocks: 0, entries: 0 }
    }

    /// Takes in a section. `None` if it is not what it should be.
    fn section(&mut self, kind: Kind, mut bytes: Bytes<'_>) -> Option<()> {
        while !bytes.is_empty() {
            match kind {
                Kind::Groups => self.groups.push(self.rebuild.group(bytes.text()?)),
                Kind::Topics => {
                    let topic = self.rebuild.topic(bytes.text()?);
                    self.topics.push((topic, id_in(&mut bytes)?));
                }
                Kind::Texts => self.texts.push(bytes.text()?),
                Kind::Blocks => self.blocks(&mut bytes)?,
                Kind::Records => {
                    let offset = bytes.u64()?;
                    let (key, value) = (bytes.sized()?, bytes.sized()?);
                    self.replay.groups_mut().record(offset, key, Some(value)).ok()?;
                }
                Kind::Waiting => self.waiting(&mut bytes)?,
                Kind::Open => self.replay.resume_open(bytes.i64()?),
            }
        }
        Some(())
    }

    fn blocks(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let (block_count, entry_count, odd_count) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let mut blocks = Bytes(bytes.take(usize::try_from(block_count).ok()?.checked_mul(BLOCK_BYTES)?)?);
        let mut entries = Bytes(bytes.take(usize::try_from(entry_count).ok()?.checked_mul(ENTRY_BYTES)?)?);
        let mut odd = Vec::new();
        for _ in 0..odd_count {
            let commit = commit_in(bytes)?;
            odd.push((commit, bytes.u32()?));
        }
        // The texts are written to while the commits look at them: few are odd, so theirs are copied.
        let texts = odd.iter().map(|(_, text)| self.texts.get(*text).map(Box::from)).collect::<Option<Vec<Box<str>>>>()?;
        let odd: Vec<_> = odd.iter().zip(&texts).map(|((commit, _), metadata)| Commit { metadata, ..*commit }).collect();
        for _ in 0..block_count {
            let group = *self.groups.get(usize::try_from(blocks.u32()?).ok()?)?;
            let (topic, topic_id) = *self.topics.get(usize::try_from(blocks.u32()?).ok()?)?;
            let (span, present) = (blocks.i32()?, blocks.u64()?);
            if present == 0 || !SPANS.contains(&span) {
                return None;
            }
            let entries = entries.take(present.count_ones() as usize * ENTRY_BYTES)?;
            let incoming = Incoming { place: Place { group, topic, span }, present, topic_id, entries, odd: &odd };
            self.rebuild.put(&incoming, &mut self.texts)?;
        }
        self.blocks += u64::from(block_count);
        self.entries += u64::from(entry_count);
        entries.is_empty().then_some(())
    }

    fn waiting(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let (group, topic, partition) = (bytes.text()?, bytes.text()?, bytes.i32()?);
        let (producer_id, record_offset) = (bytes.i64()?, bytes.u64()?);
        let committed = if bytes.flag()? {
            let commit = commit_in(bytes)?;
            Some(Commit { metadata: bytes.text()?, ..commit }.to_owned())
        } else {
            None
        };
        self.replay.resume_pending(producer_id, &OffsetKey { group, topic, partition }, record_offset, committed);
        Some(())
    }

    fn finish(self, contents: &Contents) -> Option<Replay> {
        let mut replay = self.replay;
        replay.groups_mut().resume(contents.unreadable_keys);
        replay.resume(self.rebuild.finish(), contents.counts);
        ((self.blocks, self.entries) == (contents.blocks, contents.entries)).then_some(replay)
    }
}

fn id_in(bytes: &mut Bytes<'_>) -> Option<Option<TopicId>> {
    let (has_id, id) = (bytes.flag()?, bytes.array()?);
    Some(has_id.then_some(id))
}

/// All of a commit but its metadata.
fn commit_in(bytes: &mut Bytes<'_>) -> Option<Commit<'static>> {
    Some(Commit {
        offset: bytes.u64()?,
        record_offset: bytes.u64()?,
        commit_timestamp_ms: bytes.i64()?,
        expire_timestamp_ms: Some(bytes.i64()?).filter(|ms| *ms != -1),
        leader_epoch: Some(bytes.i32()?).filter(|epoch| *epoch != -1),
        topic_id: id_in(bytes)?,
        metadata: "",
    })
}
