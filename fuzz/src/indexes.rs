//! The three indexes, against entries read and searched one by one.

use arbitrary::{Arbitrary, Unstructured};
use keeplog_index::{AbortedTxn, OffsetEntry, OffsetIndex, RELATIVE_OFFSET_MAX, TimeEntry, TimeIndex, TxnIndex};

/// The segment that an index is checked against.
#[derive(Arbitrary, Debug)]
struct Segment {
    base: u64,
    /// Added to the base.
    span: u32,
    log_bytes: u32,
    target: u64,
}

impl Segment {
    /// With the first bytes of `data` as its fields; the rest is the index.
    fn take(data: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = data.split_at_checked(24)?;
        let mut segment = Self::arbitrary(&mut Unstructured::new(head)).ok()?;
        segment.base &= i64::MAX as u64;
        Some((segment, rest))
    }

    fn next(&self) -> u64 {
        self.base + u64::from(self.span)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn rises<T: PartialOrd>(values: impl Iterator<Item = T>) -> bool {
    values.is_sorted_by(|a, b| a < b)
}

/// Any `.index`.
pub fn offset_index(data: &[u8]) {
    let Some((segment, bytes)) = Segment::take(data) else { return };
    assert_eq!(OffsetIndex::new(segment.base, bytes).is_ok(), bytes.len() % 8 == 0);
    let (base, bytes) = (segment.base, &bytes[..bytes.len() / 8 * 8]);
    let index = OffsetIndex::new(base, bytes).expect("whole entries");
    let slow: Vec<OffsetEntry> =
        bytes.chunks_exact(8).map(|e| OffsetEntry { offset: base + u64::from(u32_at(e, 0)), position: u32_at(e, 4) }).collect();
    assert!(index.iter().eq(slow.iter().copied()) && index.len() == slow.len() && index.last() == slow.last().copied());

    let sound = rises(slow.iter().map(|e| e.offset))
        && rises(slow.iter().map(|e| e.position))
        && slow.iter().all(|e| e.offset < segment.next() && e.offset - base <= RELATIVE_OFFSET_MAX)
        && slow.iter().all(|e| (1..segment.log_bytes).contains(&e.position) && i32::try_from(e.position).is_ok());
    assert_eq!(index.check(segment.log_bytes, segment.next()).is_ok(), sound, "{slow:?}");

    let start = OffsetEntry { offset: base, position: 0 };
    let around = slow.iter().flat_map(|e| [e.offset.saturating_sub(1), e.offset, e.offset.saturating_add(1)]);
    for target in around.chain([0, base, segment.target, u64::MAX]) {
        let found = index.lookup(target);
        assert!(found == start || slow.contains(&found), "an entry from nowhere");
        if sound {
            assert_eq!(found, slow.iter().rev().find(|e| e.offset <= target).copied().unwrap_or(start));
        }
    }
    let around = slow.iter().flat_map(|e| [e.position.saturating_sub(1), e.position, e.position.saturating_add(1)]);
    for position in around.chain([0, segment.log_bytes, u32::MAX]) {
        let found = index.lookup_position(position);
        if sound {
            assert_eq!(found, slow.iter().find(|e| e.position >= position).copied());
        }
    }
    if sound {
        let mut built = OffsetIndex::empty(base);
        slow.iter().for_each(|e| built.append(e.offset, e.position).expect("a sound entry"));
        assert_eq!(built.as_bytes(), bytes);
        built.truncate_to(segment.target);
        assert!(built.iter().eq(slow.iter().copied().filter(|e| e.offset < segment.target)));
    }
}

/// Any `.timeindex`.
pub fn time_index(data: &[u8]) {
    let Some((segment, bytes)) = Segment::take(data) else { return };
    assert_eq!(TimeIndex::new(segment.base, bytes).is_ok(), bytes.len() % 12 == 0);
    let (base, bytes) = (segment.base, &bytes[..bytes.len() / 12 * 12]);
    let index = TimeIndex::new(base, bytes).expect("whole entries");
    let slow: Vec<TimeEntry> =
        bytes.chunks_exact(12).map(|e| TimeEntry { timestamp: i64_at(e, 0), offset: base + u64::from(u32_at(e, 8)) }).collect();
    assert!(index.iter().eq(slow.iter().copied()) && index.len() == slow.len() && index.last() == slow.last().copied());

    let sound = rises(slow.iter().map(|e| e.timestamp))
        && slow.is_sorted_by_key(|e| e.offset)
        && slow.iter().all(|e| e.timestamp >= 0 && e.offset < segment.next() && e.offset - base <= RELATIVE_OFFSET_MAX);
    assert_eq!(index.check(segment.next()).is_ok(), sound, "{slow:?}");

    let start = TimeEntry { timestamp: -1, offset: base };
    let around = slow.iter().flat_map(|e| [e.timestamp.saturating_sub(1), e.timestamp, e.timestamp.saturating_add(1)]);
    for timestamp in around.chain([i64::MIN, -1, 0, segment.target.cast_signed(), i64::MAX]) {
        let found = index.lookup(timestamp);
        assert!(found == start || slow.contains(&found), "an entry from nowhere");
        if sound {
            assert_eq!(found, slow.iter().rev().find(|e| e.timestamp <= timestamp).copied().unwrap_or(start));
        }
    }
    if sound {
        let mut built = TimeIndex::empty(base);
        for e in &slow {
            assert_eq!(built.maybe_append(e.timestamp, e.offset), Ok(true));
            assert_eq!(built.maybe_append(e.timestamp, e.offset), Ok(false), "the last entry once more");
        }
        assert_eq!(built.as_bytes(), bytes);
        built.truncate_to(segment.target);
        assert!(built.iter().eq(slow.iter().copied().filter(|e| e.offset < segment.target)));
    }
}

/// Any `.txnindex`.
pub fn txn_index(data: &[u8]) {
    const ENTRY: usize = 34;
    let Some((segment, bytes)) = Segment::take(data) else { return };
    let index = TxnIndex::new(bytes);
    let slow: Vec<Option<AbortedTxn>> = bytes
        .chunks_exact(ENTRY)
        .map(|e| {
            let offset = |at| u64::try_from(i64_at(e, at)).ok();
            let (first_offset, last_offset, last_stable_offset) = (offset(10)?, offset(18)?, offset(26)?);
            let known = e[0].cast_signed() <= 0;
            known.then_some(AbortedTxn { producer_id: i64_at(e, 2), first_offset, last_offset, last_stable_offset })
        })
        .collect();
    assert!(index.iter().map(Result::ok).eq(slow.iter().copied()) && index.len() == slow.len());
    assert_eq!(index.fragment_bytes(), bytes.len() - slow.len() * ENTRY);

    let known: Option<Vec<AbortedTxn>> = slow.iter().copied().collect();
    let inside = segment.base..segment.next();
    let sound = |all: &[AbortedTxn]| {
        rises(all.iter().map(|t| t.last_offset))
            && all.iter().all(|t| t.first_offset < t.last_offset && t.last_offset < i64::MAX as u64)
            && all.iter().all(|t| t.last_stable_offset <= t.last_offset + 1 && inside.contains(&t.last_offset))
    };
    let all = known.filter(|all| sound(all));
    assert_eq!(index.check(segment.base, segment.next()).is_ok(), all.is_some() && index.fragment_bytes() == 0, "{slow:?}");

    for (from, to) in [(0, u64::MAX), (segment.base, segment.next()), (segment.target, segment.next()), (segment.base, segment.target)] {
        let mut found = Vec::new();
        let complete = index.collect(from, to, &mut found);
        let Some(all) = &all else { continue };
        let needed = all.iter().position(|t| t.last_stable_offset >= to).map_or(all.len(), |at| at + 1);
        assert_eq!(complete, Ok(needed > 0 && all[needed - 1].last_stable_offset >= to));
        assert!(found.iter().eq(all[..needed].iter().filter(|t| t.last_offset >= from && t.first_offset < to)));
    }
    let Some(all) = all else { return };
    let mut built = TxnIndex::empty();
    all.iter().for_each(|&txn| built.append(txn).expect("a sound entry"));
    assert!(built.iter().map(Result::ok).eq(all.iter().copied().map(Some)));
    built.truncate_to(segment.target);
    assert!(built.iter().map(Result::ok).eq(all.iter().copied().filter(|t| t.last_offset < segment.target).map(Some)));
}
