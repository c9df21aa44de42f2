//! Where a pass ends: at the first uncleanable offset, unless the dirty section has more keys than the dedup set
//! can take. Then Kafka stops filling its map in the middle, at the first keyed record that it meets with the map
//! full, and the pass judges nothing from there on. So does this one, at the same record.

use keeplog_engine::Result;

use crate::chunk::{Chunk, Entry, Marks};
use crate::dedup::{DedupSet, NotAdded};
use crate::pass::{Halt, Pass};
use crate::plan::DirtyRange;
use crate::source::{LogView, Source};
use crate::walk::{HeaderWalk, Order, corrupt, corrupt_order};

/// The segments that hold the dirty section, with the offset that each ends before.
fn dirty<'a>(log: &LogView<'a>, range: DirtyRange) -> impl Iterator<Item = (&'a dyn Source, u64)> {
    let sources = log.sources;
    let from = sources.partition_point(|source| source.base_offset() <= range.first_dirty).saturating_sub(1);
    let to = sources.partition_point(|source| source.base_offset() < range.first_uncleanable);
    (from..to.max(from)).map(move |i| {
        let next = sources.get(i + 1).map_or(range.first_uncleanable, |next| next.base_offset());
        (&*sources[i] as &dyn Source, next.min(range.first_uncleanable))
    })
}

/// At most so many distinct keys are in the dirty section: exact enough to take memory by, and found without
/// looking at a record if the offsets alone show that they fit into `capacity`.
pub(crate) fn keys_bound(log: &LogView<'_>, range: DirtyRange, capacity: u64) -> Result<u64> {
    let first = log.sources.first().map_or(0, |first| first.base_offset()).max(range.first_dirty);
    let offsets = range.first_uncleanable.saturating_sub(first);
    if offsets <= capacity {
        return Ok(offsets);
    }
    let mut records = 0;
    for (source, next_base) in dirty(log, range) {
        let file = source.file()?;
        let mut walk = HeaderWalk::new(source, &*file, 0, source.size_bytes());
        let mut order = Order::new(source.base_offset(), next_base);
        while let Some((position, header)) = walk.next()? {
            let next_before = order.next();
            order.check(&header).map_err(|detail| corrupt_order(source, position, &detail))?;
            if header.last_offset < range.first_dirty || header.is_control() {
                continue;
            }
            // How many messages an old wrapper holds is not in its header: at most one for each offset.
            records += if header.magic == 2 { header.count.max(0) as u64 } else { header.next_offset() - next_before };
        }
    }
    Ok(records.min(offsets))
}

/// One past the last offset that Kafka's map would take with the capacity of `set`, walking forward through the
/// dirty section. The rules of `pass` must end at the first uncleanable offset. Leaves `set` filled.
pub(crate) fn pass_end(pass: &Pass<'_>, range: DirtyRange, set: &mut DedupSet) -> Result<u64, Halt> {
    let mut scanner = pass.scanner();
    let mut chunk = Chunk::default();
    let mut end = range.first_dirty;
    for (source, next_base) in dirty(pass.log, range) {
        let file = source.file()?;
        let cuts = pass.cutter.cut(source, &*file)?;
        let mut first = source.base_offset();
        for bounds in cuts.windows(2) {
            pass.before(bounds[1] - bounds[0])?;
            scanner.scan(source, &*file, (bounds[0], bounds[1]), Order::new(first, next_base), &mut chunk)?;
            pass.pace.after(bounds[1] - bounds[0]);
            first = chunk.next_offset;
            if let Some((entry, last_put)) = fill(&chunk, range, set, &mut end).map_err(|why| pass.not_added(why, set))? {
                if let Some(record) = last_put {
                    let position = chunk.position + entry.start;
                    end = scanner.offset_of(&chunk, &entry, record).map_err(|e| corrupt(source, position, e))? + 1;
                }
                return Ok(end);
            }
        }
        // Offsets between the last record and the next segment are nobody's; they are done with.
        end = end.max(next_base);
    }
    Ok(end)
}

/// Puts the keys of `chunk` into `set`, and moves `end` behind each entry that was put as a whole. If a key comes when
/// the set is full: its entry, and which record of that was the last one put.
fn fill(chunk: &Chunk, range: DirtyRange, set: &mut DedupSet, end: &mut u64) -> Result<Option<(Entry, Option<usize>)>, NotAdded> {
    for (i, entry) in chunk.entries.iter().enumerate() {
        let mut last_put = None;
        for (record, probe) in chunk.probes_of(i).iter().enumerate() {
            if !probe.marks.has(Marks::KEYED) || probe.marks.has(Marks::ASKS) {
                continue;
            }
            // Kafka asks this before each key, even one that is there already.
            if set.is_full() {
                return Ok(Some((*entry, last_put)));
            }
            set.insert(probe.place())?;
            last_put = Some(record);
        }
        let next_offset = chunk.next_offset_of(entry);
        if next_offset > range.first_dirty {
            *end = next_offset;
        }
    }
    Ok(None)
}
