//! Reads one segment from its start: what of it is sound, and what its indexes are.

use crate::checkpoint::LeaderEpochs;
use crate::config::LogOptions;
use crate::log::marker_of;
use crate::planted::{Defect, is_planted};
use crate::producers::ProducerStates;
use crate::record::{BatchHeader, DecodeError, Decoder, HEADER_V2_BYTES};
use crate::room;
use crate::scan::{Entry, EntryScanner, SCAN_BUFFER_BYTES, ScanCause};
use crate::segment::IndexBuilder;
use crate::storage::{File, read_exact_at, read_full_at};

use super::cases::Broken;
use super::resync;

/// What the batches of a segment must respect and what they feed.
pub(super) struct Context<'a> {
    pub(super) options: &'a LogOptions,
    /// One past the largest offset that may stand in this file (the next segment's base).
    pub(super) limit: u64,
    /// The next offset so far: batches must start at or above it.
    pub(super) next_offset: u64,
    pub(super) producers: &'a mut ProducerStates,
    pub(super) epochs: &'a mut LeaderEpochs,
    /// Whether to look for sound batches behind a broken one.
    pub(super) go_on: bool,
    /// A batch that is known to be broken, and how.
    pub(super) wrong: Option<(u64, Broken)>,
}

/// A batch that can't be accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokenAt {
    pub(super) position: u64,
    /// First offset that can't be read because of it.
    pub(super) offset: u64,
    pub(super) broken: Broken,
    /// Where the next sound batch starts behind it; `None` if it is the end of what was written.
    pub(super) sound_behind: Option<u64>,
}

/// What a scan found.
pub(super) struct Scanned {
    /// Bytes of sound batches from the start.
    pub(super) valid_bytes: u64,
    pub(super) indexes: IndexBuilder,
    /// One past the last sound batch, also behind damage.
    pub(super) next_offset: u64,
    pub(super) first_timestamp: Option<i64>,
    pub(super) broken: Vec<BrokenAt>,
    /// Where offsets jump last, to a batch that is sound from what was before it.
    pub(super) jump: Option<Jump>,
}

/// A gap between the offsets of two batches: the cleaner makes them, and a flipped bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump {
    pub(super) position: u64,
    /// What the next offset was.
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Scanned {
    /// The batch whose offset jumped, if what comes behind it shows that it is the one that is wrong.
    pub(super) fn wrong_jump(&self) -> Option<(u64, Broken)> {
        let (jump, found) = (self.jump?, self.broken.first()?);
        match found.broken {
            Broken::OffsetsGoBack { base_offset: next, .. } if next >= jump.from => {
                let broken = Broken::OffsetsJump { base_offset: jump.to, after: jump.from.saturating_sub(1), next };
                Some((jump.position, broken))
            }
            _ => None,
        }
    }
}

/// Scans `file[..len]`, the segment of `base`.
pub(super) fn scan<'a>(file: &'a dyn File, base: u64, len: u64, context: Context<'a>) -> std::io::Result<Scanned> {
    let options = context.options;
    let mut walk = Walk {
        file,
        base,
        len,
        decoder: Decoder::new(options.decompressed_bytes_max),
        scanned: Scanned {
            valid_bytes: 0,
            indexes: IndexBuilder::new(base, options.index_interval_bytes, options.segment_index_bytes),
            next_offset: context.next_offset.max(base),
            first_timestamp: None,
            broken: Vec::new(),
            jump: None,
        },
        found_behind: None,
        context,
    };
    let mut position = 0;
    while position < len {
        let Some(resume) = walk.run(&mut EntryScanner::new(file, position, len, SCAN_BUFFER_BYTES))? else { break };
        position = resume;
    }
    Ok(walk.scanned)
}

struct Walk<'a> {
    file: &'a dyn File,
    base: u64,
    len: u64,
    decoder: Decoder,
    scanned: Scanned,
    /// What the last look behind damage found.
    found_behind: Option<Option<u64>>,
    context: Context<'a>,
}

impl Walk<'_> {
    /// Takes in entries until one is broken; returns where to go on behind it, if that makes sense.
    fn run(&mut self, scanner: &mut EntryScanner<'_>) -> std::io::Result<Option<u64>> {
        while let Some(entry) = scanner.next() {
            let (position, broken, size) = match entry {
                Ok(entry) => match self.check(&entry) {
                    Ok(marker) => {
                        self.take(&entry, marker);
                        continue;
                    }
                    // Nothing is known of it then, and nothing may be cut for it.
                    Err(Broken::Malformed(cause @ DecodeError::OutOfMemory { .. })) => {
                        return Err(std::io::Error::new(std::io::ErrorKind::OutOfMemory, cause));
                    }
                    Err(broken) => (entry.position, broken, Some(u64::from(entry.header.size))),
                },
                Err(error) => match error.cause {
                    ScanCause::Io(cause) => return Err(cause),
                    ScanCause::Decode(cause) => (error.position, self.judge(cause, error.position)?, None),
                },
            };
            // A wrong checksum leaves the length usable: what follows tells by its own checksum whether it was.
            let behind = size.map(|size| position + size).filter(|_| matches!(broken, Broken::Checksum(_)));
            let sound_behind = self.look_behind(position, behind)?;
            self.scanned.broken.push(BrokenAt { position, offset: self.scanned.next_offset, broken, sound_behind });
            return Ok(behind.filter(|_| self.context.go_on));
        }
        Ok(None)
    }

    /// Position of the first sound batch behind what is broken at `position`; it is looked for at `behind` first.
    fn look_behind(&mut self, position: u64, behind: Option<u64>) -> std::io::Result<Option<u64>> {
        // Each byte is looked at once, however much is broken.
        match self.found_behind {
            Some(None) => return Ok(None),
            Some(Some(found)) if found > position => return Ok(Some(found)),
            _ => {}
        }
        let offsets = self.scanned.next_offset..self.context.limit;
        let mut found = resync::find_batch(self.file, behind.unwrap_or(position + 1), self.len, offsets.clone())?;
        if let (None, Some(behind)) = (found, behind) {
            found = resync::find_batch(self.file, position + 1, behind.min(self.len), offsets)?;
        }
        self.found_behind = Some(found);
        Ok(found)
    }

    /// Noise has any byte where a magic should be. It is a format of its own, or a flipped bit, only if the rest
    /// is a batch with the right checksum.
    fn judge(&self, cause: DecodeError, position: u64) -> std::io::Result<Broken> {
        let DecodeError::Magic(_) = cause else { return Ok(Broken::of(cause)) };
        let mut head = [0; HEADER_V2_BYTES];
        let sound = read_full_at(self.file, &mut head, position)? == head.len()
            && match BatchHeader::parse_as_v2(&head) {
                Ok(header) if position + u64::from(header.size) <= self.len => {
                    let mut bytes = room::zeroed(header.size as usize)?;
                    read_exact_at(self.file, &mut bytes, position)?;
                    header.verify_crc(&bytes).is_ok()
                }
                _ => false,
            };
        Ok(if sound { Broken::UnknownMagic(cause) } else { Broken::Torn(cause) })
    }

    fn check(&mut self, entry: &Entry<'_>) -> Result<Option<crate::producers::Marker>, Broken> {
        let header = &entry.header;
        if !is_planted(Defect::SkipChecksums) {
            header.verify_crc(entry.bytes).map_err(Broken::of)?;
        }
        if let Some((_, broken)) = self.context.wrong.filter(|(position, _)| *position == entry.position) {
            return Err(broken);
        }
        let (base_offset, last_offset) = (header.base_offset, header.last_offset);
        if base_offset < self.base {
            return Err(Broken::BelowBase { last_offset, base: self.base });
        }
        if base_offset < self.scanned.next_offset {
            return Err(Broken::OffsetsGoBack { base_offset, last_offset, after: self.scanned.next_offset.saturating_sub(1) });
        }
        if header.last_offset >= self.context.limit {
            return Err(Broken::OffsetOutside { last_offset: header.last_offset, limit: self.context.limit });
        }
        marker_of(header, entry.bytes, &mut self.decoder).map_err(Broken::Malformed)
    }

    fn take(&mut self, entry: &Entry<'_>, marker: Option<crate::producers::Marker>) {
        let header = &entry.header;
        let scanned = &mut self.scanned;
        let aborted = self.context.producers.apply(header, marker);
        // An old bug could leave batches whose offsets the index can't express. They are read by scanning.
        let indexed =
            scanned.indexes.batch(header, entry.position as u32).and_then(|()| aborted.map_or(Ok(()), |txn| scanned.indexes.aborted(txn)));
        if let Err(error) = indexed {
            tracing::warn!(%error, "an index entry was left out");
        }
        // Of an epoch that is known already the checkpoint knows better where it began: its first batch may have been cleaned away.
        let latest = self.context.epochs.latest().map_or(-1, |latest| i64::from(latest.epoch));
        if header.magic == 2 && i64::from(header.leader_epoch) > latest {
            self.context.epochs.assign(header.leader_epoch, header.base_offset);
        }
        // Also that of the first batch: nothing but what follows tells whether it is right.
        if header.base_offset > scanned.next_offset {
            scanned.jump = Some(Jump { position: entry.position, from: scanned.next_offset, to: header.base_offset });
        }
        scanned.first_timestamp.get_or_insert(header.max_timestamp);
        scanned.next_offset = header.next_offset();
        if scanned.broken.is_empty() {
            scanned.valid_bytes = entry.position + u64::from(header.size);
        }
    }
}
