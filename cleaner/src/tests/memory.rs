//! A log in memory, behind the same seam as a real one.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use keeplog_engine::Result;
use keeplog_engine::record::{BatchHeader, Decoder};
use keeplog_engine::storage::File;
use keeplog_index::AbortedTxn;

use crate::options::{CleanOptions, CleanOutcome, CleanReport, Watch};
use crate::pass::{Approach, Outputs, Ran, Target, run};
use crate::source::{LogView, ProducerEnd, Source};

/// One segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) log: Vec<u8>,
    pub(crate) index_positions: Vec<u32>,
    pub(crate) offset_index_bytes: u32,
    pub(crate) time_index_bytes: u32,
    pub(crate) modified_ms: i64,
    pub(crate) aborted: Vec<AbortedTxn>,
}

/// Offset, key and value.
pub(crate) type OwnedRecord = (u64, Option<Vec<u8>>, Option<Vec<u8>>);

/// A log: the last segment is the active one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryLog {
    pub(crate) segments: Vec<Segment>,
    pub(crate) last_stable_offset: Option<u64>,
    /// `None`: as the replay of the whole log leaves them.
    pub(crate) producers: Option<Vec<ProducerEnd>>,
}

impl Segment {
    pub(crate) fn new(base: u64, log: Vec<u8>) -> Self {
        Self { base, log, modified_ms: 1, ..Self::default() }
    }
}

impl MemoryLog {
    /// Cleans, and puts the outputs in place.
    pub(crate) fn clean(&mut self, options: &CleanOptions) -> Result<CleanReport> {
        self.clean_watched(options, &())
    }

    pub(crate) fn clean_watched(&mut self, options: &CleanOptions, watch: &dyn Watch) -> Result<CleanReport> {
        options.check()?;
        let mut approach = Approach::default();
        let (report, written) = loop {
            let sources = self.sources();
            let view = LogView {
                sources: &sources,
                last_stable_offset: self.last_stable_offset.unwrap_or(u64::MAX),
                producers: self.producers.clone().unwrap_or_else(|| self.replayed_producers()),
            };
            let target = MemoryTarget::default();
            match run(&view, options, watch, approach, &target)? {
                Ran::Done(report) => break (report, target.written()),
                Ran::Again(next) => {
                    assert_ne!(next, approach);
                    approach = next;
                }
            }
        };
        for (sources, outputs) in written.into_iter().filter(|_| report.outcome == CleanOutcome::Cleaned) {
            self.segments.splice(sources, outputs);
        }
        Ok(report)
    }

    pub(crate) fn sources(&self) -> Vec<Box<dyn Source + '_>> {
        let source = |segment| -> Box<dyn Source + '_> { Box::new(MemorySource::new(segment)) };
        self.segments.iter().map(source).collect()
    }

    fn replayed_producers(&self) -> Vec<ProducerEnd> {
        let mut ends: Vec<ProducerEnd> = Vec::new();
        for (_, header, _) in self.entries() {
            if !header.has_producer() || (header.is_control() && header.count == 0) {
                continue;
            }
            let (producer_id, producer_epoch) = (header.producer_id, header.producer_epoch);
            let i = ends.iter().position(|end| end.producer_id == producer_id).unwrap_or_else(|| {
                ends.push(ProducerEnd { producer_id, producer_epoch, last_data_offset: None });
                ends.len() - 1
            });
            if ends[i].producer_epoch != producer_epoch {
                ends[i] = ProducerEnd { producer_id, producer_epoch, last_data_offset: None };
            }
            if !header.is_control() {
                ends[i].last_data_offset = Some(header.last_offset);
            }
        }
        ends
    }

    /// Place of the segment, header and bytes of every entry.
    pub(crate) fn entries(&self) -> Vec<(usize, BatchHeader, &[u8])> {
        let mut all = Vec::new();
        for (i, segment) in self.segments.iter().enumerate() {
            let mut rest = &segment.log[..];
            while !rest.is_empty() {
                let header = BatchHeader::parse(rest).unwrap();
                let (entry, after) = rest.split_at(header.size as usize);
                header.verify_crc(entry).unwrap();
                all.push((i, header, entry));
                rest = after;
            }
        }
        all
    }

    /// Offset, key and value of every record that is no control record.
    pub(crate) fn records(&self) -> Vec<OwnedRecord> {
        let mut decoder = Decoder::new(1 << 30);
        let mut all = Vec::new();
        for (_, header, entry) in self.entries() {
            if !header.is_control() {
                for record in decoder.records(entry).unwrap() {
                    let record = record.unwrap();
                    all.push((record.offset, record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)));
                }
            }
        }
        all
    }
}

struct MemorySource<'a> {
    segment: &'a Segment,
    path: PathBuf,
}

impl<'a> MemorySource<'a> {
    fn new(segment: &'a Segment) -> Self {
        Self { segment, path: PathBuf::from(format!("/memory/{:020}.log", segment.base)) }
    }
}

impl Source for MemorySource<'_> {
    fn base_offset(&self) -> u64 {
        self.segment.base
    }

    fn size_bytes(&self) -> u32 {
        u32::try_from(self.segment.log.len()).unwrap()
    }

    fn offset_index_bytes(&self) -> u32 {
        self.segment.offset_index_bytes
    }

    fn time_index_bytes(&self) -> u32 {
        self.segment.time_index_bytes
    }

    fn modified_ms(&self) -> i64 {
        self.segment.modified_ms
    }

    fn age_ms(&self) -> i64 {
        self.segment.modified_ms
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        Ok(Arc::new(MemoryFile(self.segment.log.clone())))
    }

    fn index_positions(&self) -> Result<Vec<u32>> {
        Ok(self.segment.index_positions.clone())
    }

    fn aborted_txns(&self) -> Result<Vec<AbortedTxn>> {
        Ok(self.segment.aborted.clone())
    }
}

#[derive(Debug)]
struct MemoryFile(Vec<u8>);

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let rest = self.0.get(usize::try_from(position).unwrap()..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, _: u64) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

type Written = Vec<(Range<usize>, Vec<Segment>)>;

/// Keeps outputs until all are there.
#[derive(Default)]
struct MemoryTarget {
    outputs: Mutex<Written>,
}

impl MemoryTarget {
    /// The outputs, newest first, so that places of older sources stay right when they replace.
    fn written(self) -> Written {
        let mut outputs = self.outputs.into_inner().unwrap();
        outputs.sort_by_key(|(sources, _)| std::cmp::Reverse(sources.start));
        assert!(outputs.is_sorted_by(|(newer, _), (older, _)| older.end <= newer.start), "a group was written twice");
        outputs
    }
}

impl Target for MemoryTarget {
    fn begin(&self, sources: Range<usize>) -> Result<Box<dyn Outputs + '_>> {
        Ok(Box::new(MemoryOutputs { target: self, sources, segments: Vec::new() }))
    }
}

struct MemoryOutputs<'a> {
    target: &'a MemoryTarget,
    sources: Range<usize>,
    segments: Vec<Segment>,
}

impl Outputs for MemoryOutputs<'_> {
    fn start(&mut self, base_offset: u64) -> Result<()> {
        self.segments.push(Segment::new(base_offset, Vec::new()));
        Ok(())
    }

    fn append(&mut self, entries: &[u8]) -> Result<()> {
        self.segments.last_mut().unwrap().log.extend_from_slice(entries);
        Ok(())
    }

    fn finish(&mut self, aborts: &[AbortedTxn], modified_ms: i64) -> Result<()> {
        let segment = self.segments.last_mut().unwrap();
        (segment.aborted, segment.modified_ms) = (aborts.to_vec(), modified_ms);
        Ok(())
    }

    fn hand_over(self: Box<Self>, _: bool) -> Result<()> {
        self.target.outputs.lock().unwrap().push((self.sources, self.segments));
        Ok(())
    }
}
