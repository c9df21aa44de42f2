//! A record of a piece, as far as the fold has to know it.

use crate::cache::{NONE, NameId};

pub(super) const NO_EPOCH: i32 = -1;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A commit that its item holds whole.
    Commit,
    /// A commit whose topic id is where brokers put it.
    CommitWithId,
    /// A commit with more to it: `value_at` and `value_len` are those of the record's value.
    LongCommit,
    Tombstone,
    /// Of the groups themselves; `number` is the length of its key.
    Group,
    GroupTombstone,
    /// The ends of transactions; `number` is the producer.
    CommitMarker,
    AbortMarker,
}

/// Which bytes the positions of an item are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Read,
    Decompressed,
    Copied,
}

/// A record. One cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) record_offset: u64,
    /// The offset that is committed.
    pub(super) number: i64,
    pub(super) commit_timestamp_ms: i64,
    pub(super) partition: i32,
    /// -1 for none.
    pub(super) leader_epoch: i32,
    pub(super) group: NameId,
    pub(super) topic: NameId,
    /// Where the name of the group begins, or the key of a group's record. The name of the topic is two bytes behind.
    pub(super) key_at: u32,
    /// Where the metadata begins.
    pub(super) value_at: u32,
    pub(super) value_len: u32,
    /// Place of the producer among those of the piece, from 1 on; 0 outside of transactions.
    pub(super) producer: u32,
    pub(super) group_len: u16,
    pub(super) topic_len: u16,
    pub(super) kind: Kind,
    pub(super) source: Source,
}

const _: () = assert!(size_of::<Item>() <= 64);

/// Items that are written where they stay: built elsewhere and copied, each would wait for its own parts.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<Item>,
    used: usize,
}

impl Items {
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn all(&self) -> &[Item] {
        &self.items[..self.used]
    }

    pub(super) fn all_mut(&mut self) -> &mut [Item] {
        &mut self.items[..self.used]
    }

    /// One more, which holds whatever was there before.
    #[inline(always)]
    pub(super) fn next(&mut self) -> &mut Item {
        if self.used == self.items.len() {
            self.grow();
        }
        self.used += 1;
        &mut self.items[self.used - 1]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let longer = (self.items.len() * 2).max(1 << 10);
        self.items.resize(longer, Item::new(0, Kind::Group, Source::Read, 0));
    }
}

impl Item {
    /// An item without what its record says.
    #[inline(always)]
    pub(super) fn new(record_offset: u64, kind: Kind, source: Source, key_at: usize) -> Self {
        Self {
            record_offset,
            number: 0,
            commit_timestamp_ms: 0,
            partition: 0,
            leader_epoch: NO_EPOCH,
            group: NONE,
            topic: NONE,
            key_at: key_at as u32,
            value_at: 0,
            value_len: 0,
            producer: 0,
            group_len: 0,
            topic_len: 0,
            kind,
            source,
        }
    }

    /// Whether it is about a committed offset.
    #[inline]
    pub(super) fn is_keyed(&self) -> bool {
        matches!(self.kind, Kind::Commit | Kind::CommitWithId | Kind::LongCommit | Kind::Tombstone)
    }

    /// Whether it is a commit without anything more to it.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.kind == Kind::Commit && self.value_len == 0
    }
}
