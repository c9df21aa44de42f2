//! Blocks as they lie in memory, for a file beside the log: out of one cache, and into another.
//!
//! Numbers of names mean nothing outside of their cache, and not for ever within it: a number is given again once its name is
//! gone. So whoever takes blocks out at different times asks for the names themselves.

use std::sync::Arc;

use super::block::{Block, NONE, SPAN};
use super::blocks::{Blocks, bits};
use super::compact::fitting;
use super::entry::{EPOCH_MASK, Entries, Entry, HAS_ID, LOW_MASK, ODD, TopicId, plain_commit};
use super::names::EMPTY;
use super::{Commit, KeyNames, NameId, OffsetCache, Place};

/// Partitions of a block, and the spans whose partitions have numbers.
pub(crate) const SPANS: std::ops::RangeInclusive<i32> = i32::MIN / SPAN..=i32::MAX / SPAN;
/// The highest number of a metadata that an entry has room for.
pub(crate) const METADATA_MAX: u32 = LOW_MASK as u32;

/// A block with its names.
pub(crate) struct RawBlock<'a> {
    cache: &'a OffsetCache,
    block: &'a Block,
}

/// An entry outside of its block.
pub(crate) enum RawEntry<'a> {
    /// The words that it is made of, but for the number of its metadata, which stands in the low bits of the last.
    Plain(Entry),
    /// A commit that does not fit.
    Odd(Commit<'a>),
}

/// The words of an entry that stands for a commit in a table.
pub(crate) fn odd_words(at: u32) -> Entry {
    [at.into(), ODD, 0]
}

/// The number of a metadata in its cache, and the text.
pub(crate) type Metadata<'a> = Option<(NameId, &'a Arc<str>)>;

impl OffsetCache {
    /// Numbers of blocks are below this.
    pub(crate) fn raw_len(&self) -> u32 {
        self.blocks.headers.len() as u32
    }

    /// How often blocks got other numbers.
    pub(crate) fn moves(&self) -> u64 {
        self.blocks.moves
    }

    /// What commit times and record offsets count from.
    pub(crate) fn base(&self) -> Option<(i64, u64)> {
        self.blocks.entries.base()
    }

    /// The block of a number; `None` if there is none, or nothing in it.
    pub(crate) fn raw(&self, id: u32) -> Option<RawBlock<'_>> {
        let block = self.blocks.headers.get(id);
        (block.present != 0 && block.group != NONE).then_some(RawBlock { cache: self, block })
    }
}

impl<'a> RawBlock<'a> {
    pub(crate) fn group(&self) -> (NameId, &'a Arc<str>) {
        (self.block.group, self.cache.names.groups.name(self.block.group))
    }

    /// With the id that is noted for it.
    pub(crate) fn topic(&self) -> (NameId, &'a Arc<str>, Option<TopicId>) {
        let topic = self.block.topic;
        (topic, self.cache.names.topics.name(topic), self.cache.blocks.topics[topic as usize].id)
    }

    pub(crate) fn span(&self) -> i32 {
        self.block.span()
    }

    pub(crate) fn present(&self) -> u64 {
        self.block.present
    }

    /// What a plain entry of it says, but for its metadata.
    pub(crate) fn commit(&self, words: &Entry) -> Commit<'static> {
        plain_commit(words, self.cache.base().unwrap_or_default(), self.topic().2, "")
    }

    /// Its entries, by partition.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (RawEntry<'a>, Metadata<'a>)> + use<'a> {
        let Self { cache, block } = *self;
        let blocks = &cache.blocks;
        let run = blocks.runs.run(block.start, block.shape().len());
        bits(block.present).map(move |bit| {
            let entry = run[block.index(bit)];
            if entry[1] & EPOCH_MASK == ODD {
                let values = blocks.values(block, &entry);
                return (RawEntry::Odd(blocks.entries.commit(&values)), blocks.entries.metadata().named(values.metadata));
            }
            let [offset, time_epoch, record_metadata] = entry;
            let metadata = blocks.entries.metadata().named((record_metadata & LOW_MASK) as NameId);
            (RawEntry::Plain([offset, time_epoch, record_metadata & !LOW_MASK]), metadata)
        })
    }
}

/// What becomes a cache, block by block.
#[derive(Default)]
pub(crate) struct Rebuild {
    names: KeyNames,
    blocks: Blocks,
}

/// A block on its way in.
pub(crate) struct Incoming<'a> {
    pub(crate) place: Place,
    pub(crate) present: u64,
    /// What its entries mean by the id of the topic.
    pub(crate) topic_id: Option<TopicId>,
    /// The words of its entries, by partition, each with the lowest byte first.
    pub(crate) entries: &'a [u8],
    /// What the words of an odd entry point to.
    pub(crate) odd: &'a [Commit<'a>],
}

/// Texts of metadata by the numbers that incoming entries have for them, from 1 on.
#[derive(Default)]
pub(crate) struct Texts(Vec<(Box<str>, NameId)>);

impl Texts {
    pub(crate) fn push(&mut self, text: &str) {
        self.0.push((text.into(), EMPTY));
    }

    /// The text of a number; that of 0 is empty.
    pub(crate) fn get(&self, number: u32) -> Option<&str> {
        match number.checked_sub(1) {
            None => Some(""),
            Some(at) => self.0.get(at as usize).map(|(text, _)| &**text),
        }
    }
}

impl Rebuild {
    /// Of about so many blocks, whose entries count from `base`.
    pub(crate) fn new(blocks: usize, base: Option<(i64, u64)>) -> Self {
        let mut rebuild = Self::default();
        rebuild.blocks.entries.set_base(base);
        rebuild.blocks.rebuild_table(blocks);
        rebuild
    }

    pub(crate) fn group(&mut self, name: &str) -> NameId {
        self.names.groups.intern(name)
    }

    pub(crate) fn topic(&mut self, name: &str) -> NameId {
        self.names.topics.intern(name)
    }

    /// Puts in a block: of one that is there already, what is missing. `None` if a number stands for nothing; then the whole
    /// is good for nothing.
    pub(crate) fn put(&mut self, incoming: &Incoming<'_>, texts: &mut Texts) -> Option<()> {
        let id = self.blocks.find_or_make(incoming.place);
        if self.blocks.headers.get(id).present != 0 {
            return self.add(id, incoming, texts);
        }
        let Blocks { headers, runs, entries, topics, len, .. } = &mut self.blocks;
        let topic = &mut topics[incoming.place.topic as usize];
        topic.id = topic.id.or(incoming.topic_id);
        let block = headers.get_mut(id);
        block.present = incoming.present;
        let shape = fitting(block);
        block.set_array(runs.take(shape.len()), shape);
        let run = runs.run_mut(block.start, shape.len());
        for (bit, words) in bits(incoming.present).zip(incoming.words()) {
            run[block.index(bit)] = match entries.take_over(words, incoming.topic_id, topic.id, texts) {
                Some(entry) => entry,
                None => entries.make(&incoming.commit(words, entries.base(), texts)?, &mut topic.id),
            };
        }
        topic.width = topic.width.max(u32::try_from(block.span()).map_or(0, |span| span * SPAN.unsigned_abs() + block.width() as u32));
        *len += block.count();
        Some(())
    }

    #[cold]
    fn add(&mut self, id: u32, incoming: &Incoming<'_>, texts: &Texts) -> Option<()> {
        for (bit, words) in bits(incoming.present).zip(incoming.words()) {
            if !self.blocks.has(id, bit) {
                let commit = incoming.commit(words, self.blocks.entries.base(), texts)?;
                self.blocks.insert(id, bit, &commit);
            }
        }
        Some(())
    }

    pub(crate) fn finish(self) -> OffsetCache {
        OffsetCache::from_parts(self.names, self.blocks)
    }
}

impl<'a> Incoming<'a> {
    fn words(&self) -> impl Iterator<Item = Entry> + use<'a> {
        let (words, _) = self.entries.as_chunks::<8>();
        let (entries, _) = words.as_chunks::<3>();
        entries.iter().map(|entry| entry.map(u64::from_le_bytes))
    }

    /// What an entry says.
    #[cold]
    fn commit<'t>(&self, words: Entry, base: Option<(i64, u64)>, texts: &'t Texts) -> Option<Commit<'t>>
    where
        'a: 't,
    {
        if words[1] & EPOCH_MASK == ODD {
            return self.odd.get(usize::try_from(words[0]).ok()?).copied();
        }
        let metadata = texts.get((words[2] & LOW_MASK) as u32)?;
        if words[1] & HAS_ID != 0 && self.topic_id.is_none() {
            return None;
        }
        Some(plain_commit(&words, base?, self.topic_id, metadata))
    }
}

impl Entries {
    /// The entry as it is, but for the number of its metadata. `None` if it must be made anew.
    #[inline]
    fn take_over(&mut self, words: Entry, meant: Option<TopicId>, noted: Option<TopicId>, texts: &mut Texts) -> Option<Entry> {
        let is_odd = words[1] & EPOCH_MASK == ODD;
        if is_odd || (words[1] & HAS_ID != 0 && (meant.is_none() || meant != noted)) {
            return None;
        }
        let number = (words[2] & LOW_MASK) as usize;
        if number == 0 {
            return Some(words);
        }
        if texts.0.len() > METADATA_MAX as usize {
            return None;
        }
        let (text, known) = texts.0.get_mut(number - 1)?;
        if *known == EMPTY {
            *known = self.metadata_mut().retain(text);
        } else {
            self.metadata_mut().retain_again(*known);
        }
        Some([words[0], words[1], words[2] & !LOW_MASK | u64::from(*known)])
    }
}
