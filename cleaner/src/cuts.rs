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

/// Cuts segments into chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutter {
    /// About how many bytes a chunk has.
    pub(crate) chunk_bytes: u32,
    pub(crate) trust: Trust,
}

impl Cutter {
    /// Ascending positions, from 0 to the size of the segment, that cut it into chunks of about `chunk_bytes`: more
    /// only where one entry is larger, or up to twice as many where the index offers no better place.
    pub(crate) fn cut(self, source: &dyn Source, file: &dyn File) -> Result<Vec<u32>> {
        let size = source.size_bytes();
        let mut cuts = vec![0];
        if size <= self.chunk_bytes {
            cuts.push(size);
            cuts.dedup();
            return Ok(cuts);
        }
        let mut known = match self.trust {
            Trust::Indexes => source.index_positions()?,
            Trust::Headers => Vec::new(),
        };
        if !known.is_sorted_by(|a, b| a < b) || known.last().is_some_and(|last| *last >= size) {
            known.clear();
        }
        known.push(size);
        let mut candidate = None;
        for position in known {
            if let Some(best) = candidate.take_if(|_| position - cuts[cuts.len() - 1] > self.chunk_bytes) {
                cuts.push(best);
            }
            let from = cuts[cuts.len() - 1];
            if position - from <= self.chunk_bytes {
                candidate = Some(position).filter(|position| *position > from);
            } else if position - from <= self.chunk_bytes.saturating_mul(2) {
                cuts.push(position);
            } else {
                self.cut_by_headers(source, file, position, &mut cuts)?;
            }
        }
        cuts.extend(candidate);
        Ok(cuts)
    }

    /// Cuts from the last of `cuts` to `to` where the headers, which chain through to there, allow it.
    fn cut_by_headers(self, source: &dyn Source, file: &dyn File, to: u32, cuts: &mut Vec<u32>) -> Result<()> {
        let mut start = cuts[cuts.len() - 1];
        let mut walk = HeaderWalk::new(source, file, start, to);
        while let Some((position, header)) = walk.next()? {
            if position + header.size - start > self.chunk_bytes && position > start {
                cuts.push(position);
                start = position;
            }
        }
        cuts.push(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
