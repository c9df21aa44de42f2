//! From a cache that goes on changing to a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::crc32c;
use keeplog_engine::storage::{File, OpenMode, Storage, write_all_at};
use keeplog_engine::{Fingerprint, Log};

use super::bytes::{put_id, put_sized};
use super::{Contents, ENTRY_BYTES, HEADER_BYTES, HEADER_CRC_AT, HEADER_CRC_START, Kind, MAGIC, NAME, PIECE_BYTES, Section, VERSION};
use crate::cache::{Commit, METADATA_MAX, NameId, RawBlock, RawEntry, TopicId, odd_words};
use crate::replay::{Replay, ReplayCounts};

/// Groups whose records are taken out at a time.
const GROUPS_AT_A_TIME: usize = if cfg!(test) { 2 } else { 64 };
/// So many bytes are written before the device is told to begin.
const WRITE_BACK_BYTES: u64 = 16 << 20;

/// The blocks got other numbers: what was not seen yet may never be.
#[derive(Debug)]
pub(crate) struct Moved;

/// Takes a cache out, piece by piece. The cache must be the same all the time; it may change.
pub(crate) struct Encoder {
    from_offset: u64,
    counts: ReplayCounts,
    unreadable_keys: u64,
    /// Groups whose records are to be taken out.
    groups_left: Vec<Box<str>>,
    base: Option<(i64, u64)>,
    moves: u64,
    next_block: u32,
    groups: Numbers,
    topics: Numbers,
    texts: Numbers,
    piece: Piece,
    blocks: u64,
    entries: u64,
    /// Sections that are not written yet.
    ready: Vec<(Kind, Vec<u8>)>,
}

/// Blocks that were taken out together.
#[derive(Default)]
struct Piece {
    blocks: Vec<u8>,
    entries: Vec<u8>,
    odd: Vec<u8>,
    odd_count: u32,
}

/// The numbers of names in the file.
struct Numbers {
    /// By the number in the cache: which name had it when it was last met, and its number here.
    known: Vec<Option<Known>>,
    next: u32,
    /// New ones, to be written before what needs them.
    new: Vec<u8>,
}

struct Known {
    name: Arc<str>,
    topic_id: Option<TopicId>,
    number: u32,
}

impl Numbers {
    fn from(first: u32) -> Self {
        Self { known: Vec::new(), next: first, new: Vec::new() }
    }

    /// The number of a name; whether it is new.
    fn number(&mut self, id: NameId, name: &Arc<str>, topic_id: Option<TopicId>) -> (u32, bool) {
        let id = id as usize;
        if self.known.len() <= id {
            self.known.resize_with(id + 1, || None);
        }
        match &self.known[id] {
            // Held here, so no other name can be at this place in memory.
            Some(known) if Arc::ptr_eq(&known.name, name) && known.topic_id == topic_id => (known.number, false),
            _ => {
                let number = self.next;
                self.next += 1;
                put_sized(&mut self.new, name.as_bytes());
                self.known[id] = Some(Known { name: Arc::clone(name), topic_id, number });
                (number, true)
            }
        }
    }
}

impl Encoder {
    /// Begins with a replay that shows everything below `from_offset`.
    pub(crate) fn begin(replay: &Replay, from_offset: u64) -> Self {
        let mut encoder = Self {
            from_offset,
            counts: replay.counts(),
            unreadable_keys: replay.groups().unreadable_keys(),
            groups_left: replay.groups().names().map(Into::into).collect(),
            base: None,
            moves: replay.cache().moves(),
            next_block: 0,
            groups: Numbers::from(0),
            topics: Numbers::from(0),
            texts: Numbers::from(1),
            piece: Piece::default(),
            blocks: 0,
            entries: 0,
            ready: Vec::new(),
        };
        encoder.take_waiting(replay);
        encoder
    }

    fn take_waiting(&mut self, replay: &Replay) {
        let mut out = Vec::new();
        for (key, producer_id, record_offset, committed) in replay.waiting().filter(|_| !is_planted(Defect::SnapshotForgetsPending)) {
            put_sized(&mut out, key.group.as_bytes());
            put_sized(&mut out, key.topic.as_bytes());
            out.extend_from_slice(&key.partition.to_le_bytes());
            out.extend_from_slice(&producer_id.to_le_bytes());
            out.extend_from_slice(&record_offset.to_le_bytes());
            out.push(committed.is_some().into());
            if let Some(committed) = committed {
                put_commit(&mut out, &committed.as_commit());
                put_sized(&mut out, committed.metadata.as_bytes());
            }
        }
        self.ready.push((Kind::Waiting, out));
        self.ready.push((Kind::Open, replay.open_producers().flat_map(i64::to_le_bytes).collect()));
    }

    /// Takes out some more. Returns whether that was the last of it.
    pub(crate) fn take(&mut self, replay: &Replay) -> Result<bool, Moved> {
        let cache = replay.cache();
        if cache.moves() != self.moves {
            return Err(Moved);
        }
        while self.piece.bytes() < PIECE_BYTES {
            if self.next_block >= cache.raw_len() {
                return Ok(self.take_records(replay));
            }
            if let Some(block) = cache.raw(self.next_block) {
                self.take_block(&block);
            }
            self.next_block += 1;
        }
        // What entries count from is set with the first, and stays.
        self.base = self.base.or(cache.base());
        Ok(false)
    }

    fn take_block(&mut self, block: &RawBlock<'_>) {
        let (group_id, group) = block.group();
        let (topic_id, topic, noted) = block.topic();
        let (group, _) = self.groups.number(group_id, group, None);
        let (topic, is_new) = self.topics.number(topic_id, topic, noted);
        if is_new {
            put_id(&mut self.topics.new, noted);
        }
        let piece = &mut self.piece;
        piece.blocks.extend_from_slice(&group.to_le_bytes());
        piece.blocks.extend_from_slice(&topic.to_le_bytes());
        piece.blocks.extend_from_slice(&block.span().to_le_bytes());
        piece.blocks.extend_from_slice(&block.present().to_le_bytes());
        for (entry, metadata) in block.entries() {
            let text = metadata.map_or(0, |(id, text)| self.texts.number(id, text, None).0);
            let words = match entry {
                RawEntry::Plain([offset, time, record]) if text <= METADATA_MAX => [offset, time, record | u64::from(text)],
                RawEntry::Plain(words) => piece.put_odd(&block.commit(&words), text),
                RawEntry::Odd(commit) => piece.put_odd(&commit, text),
            };
            for word in words {
                piece.entries.extend_from_slice(&word.to_le_bytes());
            }
        }
        self.blocks += 1;
        self.entries += u64::from(block.present().count_ones());
    }

    fn take_records(&mut self, replay: &Replay) -> bool {
        self.base = self.base.or(replay.cache().base());
        let mut out = Vec::new();
        for group in self.groups_left.drain(self.groups_left.len().saturating_sub(GROUPS_AT_A_TIME)..) {
            for (offset, key, value) in replay.groups().records_of(&group) {
                out.extend_from_slice(&offset.to_le_bytes());
                put_sized(&mut out, &key);
                put_sized(&mut out, value);
            }
        }
        self.ready.push((Kind::Records, out));
        self.groups_left.is_empty()
    }

    /// Writes what was taken out. Nobody need wait for it.
    pub(crate) fn write(&mut self, writer: &mut Writer) -> io::Result<()> {
        for (kind, numbers) in [(Kind::Groups, &mut self.groups), (Kind::Topics, &mut self.topics), (Kind::Texts, &mut self.texts)] {
            writer.section(kind, &numbers.new)?;
            numbers.new.clear();
        }
        if let Some(section) = self.piece.section() {
            writer.section(Kind::Blocks, &section)?;
        }
        self.ready.drain(..).try_for_each(|(kind, bytes)| writer.section(kind, &bytes))
    }

    /// Completes the file, whose log is known by `fingerprint`.
    pub(crate) fn finish(self, writer: Writer, fingerprint: Fingerprint) -> io::Result<u64> {
        writer.finish(Contents {
            from_offset: self.from_offset,
            base: self.base,
            counts: self.counts,
            unreadable_keys: self.unreadable_keys,
            blocks: self.blocks,
            entries: self.entries,
            fingerprint,
            sections: Vec::new(),
        })
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        self.blocks.len() + self.entries.len() + self.odd.len()
    }

    fn put_odd(&mut self, commit: &Commit<'_>, text: u32) -> [u64; 3] {
        put_commit(&mut self.odd, commit);
        self.odd.extend_from_slice(&text.to_le_bytes());
        self.odd_count += 1;
        odd_words(self.odd_count - 1)
    }

    /// All of it, which is empty then; `None` if it is.
    fn section(&mut self) -> Option<Vec<u8>> {
        if self.blocks.is_empty() {
            return None;
        }
        let mut out = Vec::with_capacity(12 + self.bytes());
        for count in [(self.blocks.len() / super::BLOCK_BYTES) as u32, (self.entries.len() / ENTRY_BYTES) as u32, self.odd_count] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        for part in [&mut self.blocks, &mut self.entries, &mut self.odd] {
            out.append(part);
        }
        self.odd_count = 0;
        Some(out)
    }
}

/// 53 bytes, all but the metadata.
fn put_commit(out: &mut Vec<u8>, commit: &Commit<'_>) {
    out.extend_from_slice(&commit.offset.to_le_bytes());
    out.extend_from_slice(&commit.record_offset.to_le_bytes());
    out.extend_from_slice(&commit.commit_timestamp_ms.to_le_bytes());
    out.extend_from_slice(&commit.expire_timestamp_ms.unwrap_or(-1).to_le_bytes());
    out.extend_from_slice(&commit.leader_epoch.unwrap_or(-1).to_le_bytes());
    put_id(out, commit.topic_id);
}

/// A file that is being written, under another name.
pub(crate) struct Writer {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    file: Arc<dyn File>,
    position: u64,
    written_back: u64,
    sections: Vec<Section>,
}

impl Writer {
    /// Begins the file that is to be at `path`.
    pub(crate) fn create(storage: &Arc<dyn Storage>, path: PathBuf) -> io::Result<Self> {
        let file = storage.open(&temporary(&path), OpenMode::Truncate)?;
        let (position, storage) = (HEADER_BYTES as u64, Arc::clone(storage));
        Ok(Self { storage, path, file, position, written_back: 0, sections: Vec::new() })
    }

    fn section(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let Some(len) = u32::try_from(bytes.len()).ok().filter(|len| *len > 0) else {
            return if bytes.is_empty() { Ok(()) } else { Err(io::ErrorKind::FileTooLarge.into()) };
        };
        self.sections.push(Section { kind, position: self.position, len, crc: crc32c(bytes) });
        self.write(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all_at(&*self.file, bytes, self.position)?;
        self.position += bytes.len() as u64;
        if self.position - self.written_back > WRITE_BACK_BYTES {
            self.file.start_write_back();
            self.written_back = self.position;
        }
        Ok(())
    }

    /// Returns the length of the file, which is not under its name yet.
    fn finish(mut self, contents: Contents) -> io::Result<u64> {
        let contents = Contents { sections: std::mem::take(&mut self.sections), ..contents }.encode();
        let position = self.position;
        self.write(&contents)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.position.to_le_bytes());
        header[24..32].copy_from_slice(&position.to_le_bytes());
        header[32..36].copy_from_slice(&u32::try_from(contents.len()).map_err(|_| io::ErrorKind::FileTooLarge)?.to_le_bytes());
        header[36..40].copy_from_slice(&crc32c(&contents).to_le_bytes());
        let crc = crc32c(&header[HEADER_CRC_START..]);
        header[HEADER_CRC_AT..HEADER_CRC_START].copy_from_slice(&crc.to_le_bytes());
        write_all_at(&*self.file, &header, 0)?;
        self.file.sync_data()?;
        self.storage.rename(&temporary(&self.path), &self.path)?;
        self.storage.sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        Ok(self.position)
    }
}

/// Removes what was written of a file that was to be at `path`.
pub(crate) fn give_up(storage: &dyn Storage, path: &Path) {
    // It would be overwritten next time; on a full device its space is wanted now.
    let _ = storage.remove_file(&temporary(path));
}

/// Makes a snapshot of `log` of any bytes under right checksums.
pub(super) fn forge(log: &Log, sections: &[(u8, &[u8])], blocks: u64, entries: u64) -> io::Result<()> {
    let mut writer = Writer::create(log.storage(), log.path().join(NAME))?;
    for (code, bytes) in sections {
        writer.section(Kind::of(*code).ok_or(io::ErrorKind::InvalidInput)?, bytes)?;
    }
    let fingerprint = log.fingerprint(log.end_offset()).map_err(io::Error::other)?;
    let from_offset = fingerprint.end_offset();
    let (base, counts, unreadable_keys, sections) = (Some((0, 0)), ReplayCounts::default(), 0, Vec::new());
    writer.finish(Contents { from_offset, base, counts, unreadable_keys, blocks, entries, fingerprint, sections }).map(drop)
}

/// Puts any bytes in the place of the snapshot of `log`.
pub(super) fn put(log: &Log, bytes: &[u8]) -> io::Result<()> {
    let file = log.storage().open(&log.path().join(NAME), OpenMode::Truncate)?;
    write_all_at(&*file, bytes, 0)
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

impl Contents {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { from_offset, base, counts, unreadable_keys, blocks, entries, fingerprint, sections } = self;
        let ReplayCounts { records, tombstones, unknown_types, newer_values, old_keys } = *counts;
        let (base_ms, base_offset) = base.unwrap_or_default();
        let mut out = Vec::new();
        out.extend_from_slice(&from_offset.to_le_bytes());
        out.push(base.is_some().into());
        out.extend_from_slice(&base_ms.to_le_bytes());
        for number in [base_offset, records, tombstones, unknown_types, newer_values, old_keys, *unreadable_keys, *blocks, *entries] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_sized(&mut out, &fingerprint.encode());
        out.extend_from_slice(&(sections.len() as u32).to_le_bytes());
        for Section { kind, position, len, crc } in sections {
            out.push(*kind as u8);
            out.extend_from_slice(&position.to_le_bytes());
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&crc.to_le_bytes());
        }
        out
    }
}
