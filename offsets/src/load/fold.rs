//! The fold from the newest record to the oldest.
//!
//! What counts for a place is, with a few exceptions, its newest record. A record has effect at its own offset, or, in a
//! transaction, at that of the commit marker, which comes to sight before it. So when a record comes to sight, all that has
//! newer records is known, and all that has effect later is known as well:
//! - a commit counts if no newer record did, and nothing older can change that;
//! - a tombstone, in a transaction or not, has effect at once, and also ends what waits for the same place;
//! - a negative offset is a commit of nothing: what older records say does not count, and what of them waits comes to nothing;
//! - in a transaction that has not ended a commit waits, unless a newer tombstone has ended that.

use std::ops::Range;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use keeplog_engine::planted::{Defect, is_planted};

use super::Cause;
use super::item::{Item, Kind};
use super::parse::Piece;
use crate::cache::{Blocks, CommittedOffset, KeyNames, Lookups, OffsetCache};
use crate::record::{GroupKey, OffsetKey};
use crate::replay::{Origin, Outcome, Replay, ReplayCounts};

/// A place: its block, and which partition of it.
type Spot = (u32, u32);

/// What is known of a log after its newest records.
#[derive(Default)]
pub(super) struct Fold {
    blocks: Blocks,
    /// By block, a bit for each partition that a tombstone was met for.
    tombstones: Vec<u64>,
    /// Where a negative offset counts.
    cleared: HashSet<Spot>,
    /// How the transaction ends that a record of this producer, if it is met next, is in.
    fates: HashMap<i64, Outcome>,
    /// Commits that wait, by place and producer.
    pending: HashMap<(Spot, i64), Pending>,
    /// Producers with commits whose transaction has not ended.
    open: HashSet<i64>,
    /// The newest record of each key that is not of a commit.
    groups: HashMap<Box<[u8]>, GroupRecord>,
    counts: ReplayCounts,
    bytes: u64,
    /// Where what was folded begins and ends.
    offsets: Option<Range<u64>>,
}

struct GroupRecord {
    offset: u64,
    value: Option<Box<[u8]>>,
    /// How many there are: those that cannot be read are counted.
    count: u64,
}

struct Pending {
    record_offset: u64,
    /// `None` for a negative offset.
    committed: Option<CommittedOffset>,
}

impl Fold {
    /// Whether the piece lies below all that was folded.
    pub(super) fn check_follows(&mut self, piece: &Piece) -> Result<(), Cause> {
        match (&mut self.offsets, piece.offsets()) {
            // It ends before a batch above the end of the log, and newer ones are below.
            (Some(folded), _) if piece.reaches_limit() => return Err(Cause::Overlap(folded.start)),
            (Some(folded), Some(offsets)) if offsets.end > folded.start => return Err(Cause::Overlap(folded.start)),
            (Some(folded), Some(offsets)) => folded.start = offsets.start,
            (folded @ None, offsets) => *folded = offsets,
            (Some(_), None) => {}
        }
        Ok(())
    }

    /// One past the newest that was folded.
    pub(super) fn end_offset(&self) -> u64 {
        self.offsets.as_ref().map_or(0, |offsets| offsets.end)
    }

    /// Folds all records of a piece, from its newest to its oldest.
    pub(super) fn piece(&mut self, piece: &Piece) {
        let ReplayCounts { records, tombstones, unknown_types, newer_values, old_keys } = piece.counts();
        self.counts.records += records;
        self.counts.tombstones += tombstones;
        self.counts.unknown_types += unknown_types;
        self.counts.newer_values += newer_values;
        self.counts.old_keys += old_keys;
        self.bytes += piece.bytes_read();
        let mut lookups = Lookups::default();
        for items in piece.items().rchunks(Lookups::MAX) {
            lookups.clear();
            let keyed = items.iter().filter(|item| item.is_keyed());
            keyed.for_each(|item| lookups.push(item.group, item.topic, item.partition));
            self.blocks.find_or_make_all(&mut lookups);
            for item in items.iter().rev() {
                let spot = if item.is_keyed() { lookups.pop() } else { (0, 0) };
                self.item(piece, item, spot);
            }
        }
    }

    #[inline]
    fn item(&mut self, piece: &Piece, item: &Item, spot: Spot) {
        match item.kind {
            Kind::Commit | Kind::CommitWithId | Kind::LongCommit => match piece.producer(item) {
                None => self.commit(piece, item, spot),
                Some(producer_id) => self.commit_in_transaction(piece, item, spot, producer_id),
            },
            Kind::Tombstone => self.tombstone(spot),
            Kind::Group | Kind::GroupTombstone => self.of_group(piece, item),
            Kind::CommitMarker => _ = self.fates.insert(item.number, Outcome::Commit),
            Kind::AbortMarker => _ = self.fates.insert(item.number, Outcome::Abort),
        }
    }

    /// A commit that has effect.
    #[inline]
    fn commit(&mut self, piece: &Piece, item: &Item, spot: Spot) {
        let (block, bit) = spot;
        if self.blocks.has(block, bit) || self.is_dead(spot) {
            return;
        }
        if (item.number < 0 || !self.cleared.is_empty()) && self.clears(item, spot) {
            return;
        }
        let times = (item.commit_timestamp_ms, item.record_offset);
        if !(item.is_plain() && self.blocks.insert_plain(block, bit, item.number.cast_unsigned(), item.leader_epoch, times)) {
            self.blocks.insert(block, bit, &piece.commit(item));
        }
    }

    /// Whether the place is cleared, by this commit or by a newer one.
    #[cold]
    fn clears(&mut self, item: &Item, spot: Spot) -> bool {
        (item.number < 0 && self.cleared.insert(spot)) || self.cleared.contains(&spot)
    }

    fn commit_in_transaction(&mut self, piece: &Piece, item: &Item, spot: Spot, producer_id: i64) {
        match self.fates.get(&producer_id) {
            Some(Outcome::Commit) => self.commit(piece, item, spot),
            Some(Outcome::Abort) => {}
            None => {
                self.open.insert(producer_id);
                if !self.is_dead(spot)
                    && let Entry::Vacant(vacant) = self.pending.entry((spot, producer_id))
                {
                    let counts = item.number >= 0 && !self.cleared.contains(&spot);
                    let committed = counts.then(|| piece.commit(item).to_owned());
                    vacant.insert(Pending { record_offset: item.record_offset, committed });
                }
            }
        }
    }

    fn tombstone(&mut self, (block, bit): Spot) {
        let block = block as usize;
        if self.tombstones.len() <= block {
            self.tombstones.resize(block + 1, 0);
        }
        self.tombstones[block] |= 1 << bit;
    }

    /// Whether a tombstone was met.
    #[inline]
    fn is_dead(&self, (block, bit): Spot) -> bool {
        self.tombstones.get(block as usize).is_some_and(|bits| bits >> bit & 1 == 1)
    }

    fn of_group(&mut self, piece: &Piece, item: &Item) {
        let key = piece.group_key(item);
        if let Some(newer) = self.groups.get_mut(key) {
            newer.count += 1;
        } else {
            let value = (item.kind == Kind::Group).then(|| piece.value(item).into());
            self.groups.insert(key.into(), GroupRecord { offset: item.record_offset, value, count: 1 });
        }
    }

    /// What a replay of the whole log would be, and the bytes read.
    pub(super) fn finish(self, names: KeyNames) -> (Replay, u64) {
        let mut replay = Replay::new();
        let pending = if is_planted(Defect::LoadForgetsPending) { HashMap::new() } else { self.pending };
        for (((block, bit), producer_id), Pending { record_offset, committed }) in pending {
            let (place, partition) = self.blocks.spot(block, bit);
            let key = OffsetKey { group: names.group(place), topic: names.topic(place), partition };
            replay.resume_pending(producer_id, &key, record_offset, committed);
        }
        self.open.into_iter().for_each(|producer_id| replay.resume_open(producer_id));
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_unstable_by_key(|(_, record)| record.offset);
        for (key, GroupRecord { offset, value, count }) in groups {
            let count = if GroupKey::decode(&key).is_ok() { 1 } else { count };
            for _ in 0..count {
                // invariant: it is not the key of a commit, and of others no more than the type is looked at.
                replay.record(Origin::Plain, offset, Some(&key[..]), value.as_deref()).expect("was read before");
            }
        }
        replay.resume(OffsetCache::from_parts(names, self.blocks), self.counts);
        (replay, self.bytes)
    }
}
