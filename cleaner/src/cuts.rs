//! Where a segment is cut into chunks: always between two entries.
//!
//! The offset index names starts of entries, but nothing vouches for it. So its positions are used on trust, and
//! the trust is checked: a chunk must end exactly where an entry ends, the first chunk begins at 0, and all
//! chunks of a log are read before any output takes its place. A chain of chunks that fit is a chain of entries;
//! where one does not fit, the pass starts over without the indexes ([`Trust::Headers`]).

use keeplog_engine::Result;
use keeplog_engine::storage::File;

use crate::source::Source;
use crate::walk::HeaderWalk;

/// Where cut positions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The offset index; headers only where it is too sparse.
    Indexes,
    /// The headers alone.
    Headers,
}

/// Ascending positions, from 0 to the size of the segment, that cut it into chunks of about `chunk_bytes`: more
/// only where one entry is larger, or up to twice as many where the index offers no better place.
pub(crate) fn cut(source: &dyn Source, file: &dyn File, chunk_bytes: u32, trust: Trust) -> Result<Vec<u32>> {
    let size = source.size_bytes();
    let mut cuts = vec![0];
    if size <= chunk_bytes {
        cuts.push(size);
        cuts.dedup();
        return Ok(cuts);
    }
    let mut known = match trust {
        Trust::Indexes => source.index_positions()?,
        Trust::Headers => Vec::new(),
    };
    if !known.is_sorted_by(|a, b| a < b) || known.last().is_some_and(|last| *last >= size) {
        known.clear();
    }
    known.push(size);
    let mut candidate = None;
    for position in known {
        let from = cuts[cuts.len() - 1];
        if position - from <= chunk_bytes {
            candidate = Some(position);
            continue;
        }
        if let Some(best) = candidate.take() {
            cuts.push(best);
        }
        let from = cuts[cuts.len() - 1];
        if position - from <= chunk_bytes {
            candidate = Some(position);
        } else if position - from <= chunk_bytes.saturating_mul(2) {
            cuts.push(position);
        } else {
            by_headers(source, file, from, position, chunk_bytes, &mut cuts)?;
        }
    }
    cuts.extend(candidate);
    Ok(cuts)
}

/// Cuts `from..to`, which the headers chain through, and adds the cuts, `to` included.
fn by_headers(source: &dyn Source, file: &dyn File, from: u32, to: u32, chunk_bytes: u32, cuts: &mut Vec<u32>) -> Result<()> {
    let mut walk = HeaderWalk::new(source, file, from, to);
    let mut start = from;
    while let Some((position, header)) = walk.next()? {
        let end = position + header.size;
        if end - start > chunk_bytes && position > start {
            cuts.push(position);
            start = position;
        }
    }
    cuts.push(to);
    Ok(())
}
