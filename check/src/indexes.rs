//! Each index of a segment against the log, while the log is being scanned.
//!
//! Indexes are small beside their log but their files can have any length: no more of them is read than the log
//! can have entries for.

use std::collections::HashSet;
use std::path::Path;

use keeplog_engine::Error;
use keeplog_engine::record::BatchHeader;
use keeplog_engine::storage::{File, OpenMode, Storage, read_full_at};
use keeplog_index::{OffsetIndex, TimeEntry, TimeIndex, TxnIndex};

use crate::codes;
use crate::finding::{Code, Findings, Place};

/// The smallest entry of a log, so the most entries that an index of it can have.
const LOG_ENTRY_BYTES_MIN: u64 = 26;
const CHUNK_BYTES: usize = 1 << 16;
/// Zeros behind the entries that are looked through at most: no broker preallocates as much.
const ZEROS_MAX: u64 = 256 << 20;

/// The used part of an index file, and what follows it.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) used: Vec<u8>,
    /// Zero bytes behind the used part.
    pub(crate) zero_bytes: u64,
    /// Whether something else than zeros lies behind what a log of this size can fill.
    pub(crate) oversized: bool,
}

/// Reads an index file with entries of `entry_bytes` beside a log of `log_bytes`. Entries that are all zero at the end are
/// preallocated space; the first entry is kept if it is the only one, because in a time index it can be real.
pub(crate) fn read(storage: &dyn Storage, path: &Path, entry_bytes: usize, log_bytes: u64) -> Result<Contents, Error> {
    let io = |e| Error::io("read", path, e);
    let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(io)?;
    let most = (log_bytes / LOG_ENTRY_BYTES_MIN + 2) * entry_bytes as u64;
    let head = usize::try_from(len.min(most)).map_err(|_| Error::invalid("read", "the index is too large for this machine").at(path))?;
    let mut used = vec![0; head];
    let got = read_full_at(&*file, &mut used, 0).map_err(io)?;
    used.truncate(got);
    let looked = len.min(got as u64 + ZEROS_MAX);
    let oversized = looked < len || !rest_is_zero(&*file, got as u64, looked).map_err(io)?;
    let whole = used.len();
    while used.len() >= entry_bytes && used.len() % entry_bytes == 0 && used[used.len() - entry_bytes..].iter().all(|byte| *byte == 0) {
        used.truncate(used.len() - entry_bytes);
    }
    let zero_bytes = if oversized { 0 } else { len - used.len() as u64 };
    if used.is_empty() && whole == entry_bytes && !oversized && len == whole as u64 {
        return Ok(Contents { used: vec![0; entry_bytes], zero_bytes: 0, oversized });
    }
    Ok(Contents { used, zero_bytes, oversized })
}

/// Whether `file[from..to]` holds nothing but zeros.
pub(crate) fn rest_is_zero(file: &dyn File, mut from: u64, to: u64) -> std::io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    while from < to {
        let want = usize::try_from(to - from).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let got = read_full_at(file, &mut chunk[..want], from)?;
        if chunk[..got].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if got == 0 {
            break;
        }
        from += got as u64;
    }
    Ok(true)
}

/// The segment that the indexes belong to, before it is scanned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) dir: &'a Path,
    /// Name of the `.log` file.
    pub(crate) log: &'a str,
    pub(crate) base: u64,
    pub(crate) log_bytes: u64,
    pub(crate) active: bool,
}

/// What the scan found out, as far as indexes are measured by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Whether the scan came to the end. If not, what an index says about the rest can't be judged.
    pub(crate) complete: bool,
    /// Offset after the last batch; the base if there is none.
    pub(crate) next_offset: u64,
    pub(crate) largest_timestamp: i64,
}

/// Names of the index files of a segment that are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexFiles {
    pub(crate) offset: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) txn: Option<String>,
    /// Its transaction index is there under the name of one that is being removed, its log not yet.
    pub(crate) txn_retired: bool,
}

/// The offset and the time index of a segment, following the scan of its log.
pub(crate) struct Watches<'a> {
    owner: Owner<'a>,
    files: &'a IndexFiles,
    offset: Option<OffsetWatch>,
    time: Option<TimeWatch>,
}

impl<'a> Watches<'a> {
    /// Reads both indexes and reports what is wrong with their shape.
    pub(crate) fn open(storage: &dyn Storage, owner: Owner<'a>, files: &'a IndexFiles, findings: &mut Findings) -> Result<Self, Error> {
        let mut watches = Self { owner, files, offset: None, time: None };
        if let Some(name) = &files.offset {
            let used = watches.read(storage, name, OffsetIndex::<Vec<u8>>::ENTRY_BYTES, findings)?;
            match used.map(|used| OffsetIndex::new(owner.base, used)) {
                None => {}
                Some(Ok(index)) => watches.offset = Some(OffsetWatch { index, at: 0, last_offset: None, problem: None }),
                Some(Err(e)) => findings.add(codes::INDEX_DAMAGED, Place::file(name), e.to_string()),
            }
        }
        if let Some(name) = &files.time {
            let used = watches.read(storage, name, TimeIndex::<Vec<u8>>::ENTRY_BYTES, findings)?;
            match used.map(|used| TimeIndex::new(owner.base, used)) {
                None => {}
                Some(Ok(index)) => watches.time = Some(TimeWatch { index, at: 0, ahead: 0, largest: -1, problem: None }),
                Some(Err(e)) => findings.add(codes::INDEX_DAMAGED, Place::file(name), e.to_string()),
            }
        }
        for (file, what) in [(&files.offset, "offset"), (&files.time, "time")] {
            if file.is_none() && owner.log_bytes > 0 {
                findings.add(codes::INDEX_MISSING, Place::file(owner.log), format!("the segment has no {what} index"));
            }
        }
        Ok(watches)
    }

    /// The used part of an index file; `None` if it can't be that of this log.
    fn read(&self, storage: &dyn Storage, name: &str, entry_bytes: usize, findings: &mut Findings) -> Result<Option<Vec<u8>>, Error> {
        let contents = read(storage, &self.owner.dir.join(name), entry_bytes, self.owner.log_bytes)?;
        if contents.oversized {
            findings.add(
                codes::INDEX_AHEAD,
                Place::file(name),
                format!("it has entries for more than the {} bytes of the log", self.owner.log_bytes),
            );
            return Ok(None);
        }
        if contents.zero_bytes > 0 {
            let code = if self.owner.active { codes::INDEX_PREALLOCATED } else { codes::INDEX_NOT_CUT };
            let message = format!("{} zero bytes follow the last entry", contents.zero_bytes);
            findings.add(code, Place::file(name).at(contents.used.len() as u64), message);
        }
        Ok(Some(contents.used))
    }

    /// The next batch of the log.
    pub(crate) fn batch(&mut self, position: u64, header: &BatchHeader) {
        if let Some(watch) = &mut self.offset {
            watch.batch(position, header);
        }
        if let Some(watch) = &mut self.time {
            watch.batch(header);
        }
    }

    /// Reports what the scan has shown.
    pub(crate) fn finish(self, log_bytes: u64, extent: Extent, findings: &mut Findings) {
        let next_offset = if extent.complete { extent.next_offset } else { u64::MAX };
        if let (Some(watch), Some(name)) = (self.offset, &self.files.offset) {
            // invariant: a scan stops at 2 GiB, and a larger log has its own finding.
            let log_bytes = u32::try_from(log_bytes).unwrap_or(u32::MAX);
            if let Some((code, problem)) = watch.finish(log_bytes, next_offset) {
                findings.add(code, Place::file(name), problem);
            }
        }
        if let (Some(mut watch), Some(name)) = (self.time, &self.files.time) {
            let last = watch.index.last().map_or(-1, |entry| entry.timestamp);
            if let Some((code, problem)) = watch.finish(next_offset, extent.complete) {
                findings.add(code, Place::file(name), problem);
            } else if extent.complete && last < extent.largest_timestamp && !self.owner.active {
                let problem = format!("the last entry has timestamp {last}, the segment reaches {}", extent.largest_timestamp);
                findings.add(codes::TIME_INDEX_UNCLOSED, Place::file(name), problem);
            }
        }
    }
}

struct OffsetWatch {
    index: OffsetIndex<Vec<u8>>,
    /// Entry to come.
    at: usize,
    /// Largest last offset of the batches so far.
    last_offset: Option<u64>,
    problem: Option<String>,
}

impl OffsetWatch {
    /// Entries must point at starts of batches, and nothing before may reach their offset.
    fn batch(&mut self, position: u64, header: &BatchHeader) {
        while let Some(entry) = self.index.entry(self.at).filter(|entry| u64::from(entry.position) <= position) {
            let n = self.at;
            if u64::from(entry.position) < position {
                self.problem.get_or_insert_with(|| format!("entry {n}: no batch starts at byte {}", entry.position));
            } else if let Some(last) = self.last_offset.filter(|last| *last >= entry.offset) {
                self.problem.get_or_insert_with(|| {
                    format!("entry {n}: offset {} at byte {}, but {last} lies before that", entry.offset, entry.position)
                });
            }
            self.at += 1;
        }
        self.last_offset = self.last_offset.max(Some(header.last_offset));
    }

    fn finish(self, log_bytes: u32, next_offset: u64) -> Option<(Code, String)> {
        match self.index.check(log_bytes, next_offset) {
            // Sound in itself, so of a log that went on.
            Err(e) if self.index.check(u32::MAX, u64::MAX).is_ok() => Some((codes::INDEX_AHEAD, e.to_string())),
            Err(e) => Some((codes::INDEX_DAMAGED, e.to_string())),
            Ok(()) => self.problem.map(|problem| (codes::INDEX_DAMAGED, problem)),
        }
    }
}

struct TimeWatch {
    index: TimeIndex<Vec<u8>>,
    /// Entry to come.
    at: usize,
    /// The same, of those whose batch is still to come.
    ahead: usize,
    /// Largest timestamp of the batches so far.
    largest: i64,
    problem: Option<String>,
}

impl TimeWatch {
    /// Whatever ends at or below the offset of an entry is not newer than its timestamp, and something up to there has it.
    fn batch(&mut self, header: &BatchHeader) {
        self.pass_below(header.last_offset);
        self.pass_ahead(header.base_offset);
        self.largest = self.largest.max(header.max_timestamp);
    }

    /// Old brokers name the record that has the timestamp, and not the end of its batch: so the batch around it counts.
    fn pass_ahead(&mut self, offset: u64) {
        while let Some(entry) = self.index.entry(self.ahead).filter(|entry| entry.offset < offset) {
            if self.largest < entry.timestamp {
                self.differs(self.ahead, entry);
            }
            self.ahead += 1;
        }
    }

    fn pass_below(&mut self, offset: u64) {
        while let Some(entry) = self.index.entry(self.at).filter(|entry| entry.offset < offset) {
            if self.largest > entry.timestamp {
                self.differs(self.at, entry);
            }
            self.at += 1;
        }
    }

    fn differs(&mut self, n: usize, entry: TimeEntry) {
        let (TimeEntry { timestamp, offset }, largest) = (entry, self.largest);
        let say = || format!("entry {n}: timestamp {timestamp} up to offset {offset}, but the newest batch up to there has {largest}");
        self.problem.get_or_insert_with(say);
    }

    fn finish(&mut self, next_offset: u64, complete: bool) -> Option<(Code, String)> {
        self.pass_below(u64::MAX);
        if complete {
            self.pass_ahead(u64::MAX);
        }
        match self.index.check(next_offset) {
            Err(e) if self.index.check(u64::MAX).is_ok() => Some((codes::INDEX_AHEAD, e.to_string())),
            Err(e) => Some((codes::INDEX_DAMAGED, e.to_string())),
            Ok(()) => self.problem.take().map(|problem| (codes::INDEX_DAMAGED, problem)),
        }
    }
}

/// One transaction of the log that ended in an abort marker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    /// Offset of the marker.
    pub(crate) marker_offset: u64,
    /// Whether records of it are still in the log.
    pub(crate) has_records: bool,
}

/// Holds the aborted-transaction index of a segment against the abort markers that the scan has met in it.
pub(crate) fn check_txn_index(
    storage: &dyn Storage,
    owner: Owner<'_>,
    files: &IndexFiles,
    extent: Extent,
    aborted: &[Aborted],
    findings: &mut Findings,
) -> Result<(), Error> {
    if files.txn.is_none() && files.txn_retired {
        // A swap was interrupted, which the next open completes.
        return Ok(());
    }
    let mut listed = HashSet::new();
    if let Some(name) = &files.txn {
        let contents = read(storage, &owner.dir.join(name), TxnIndex::<Vec<u8>>::ENTRY_BYTES, owner.log_bytes)?;
        let index = TxnIndex::new(contents.used);
        let next_offset = if extent.complete { extent.next_offset } else { u64::MAX };
        let problem = match index.check(owner.base, next_offset) {
            _ if contents.oversized || contents.zero_bytes > 0 => Some((codes::INDEX_DAMAGED, "it holds more than entries".to_owned())),
            Err(e) if index.check(owner.base, u64::MAX).is_ok() => Some((codes::INDEX_AHEAD, e.to_string())),
            Err(e) => Some((codes::INDEX_DAMAGED, e.to_string())),
            Ok(()) => None,
        };
        if let Some((code, problem)) = problem {
            findings.add(code, Place::file(name), problem);
            return Ok(());
        }
        listed.extend(index.iter().map_while(Result::ok).map(|txn| (txn.producer_id, txn.last_offset)));
    }
    for txn in aborted.iter().filter(|txn| txn.has_records && !listed.contains(&(txn.producer_id, txn.marker_offset))) {
        let message =
            format!("the transaction of producer {} that was aborted at offset {} is not in the index", txn.producer_id, txn.marker_offset);
        let file = files.txn.as_deref().unwrap_or(owner.log);
        findings.add(codes::TXN_INDEX_INCOMPLETE, Place::file(file).offset(txn.marker_offset), message);
    }
    Ok(())
}
