//! Random histories of a log: everything that Keeplog can write, and every way in which it can be left.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use keeplog::inspect::record::{BatchSpec, BatchWriter};
use keeplog::inspect::storage::{FixedClock, RealStorage, Storage};
use keeplog::{
    CleanOptions, Codec, Durability, ErrorKind, Header, Log, LogOptions, Overflow, Record, TimestampType, TransactionEnd, TxnResult, clean,
};

use crate::directory::{self, PARTITION, describe};
use crate::dump;

/// When the histories begin, ms: the time by which Kafka opens logs.
pub(crate) const T0: i64 = 1_760_000_000_000;
const STEPS: RangeInclusive<u32> = 60..=260;
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// A log as a history has left it.
#[derive(Debug)]
pub(crate) struct Left {
    /// The partition directory.
    pub(crate) dir: PathBuf,
    pub(crate) options: LogOptions,
    /// It was closed.
    pub(crate) clean: bool,
    /// Below this offset everything is on stable storage.
    pub(crate) recovery_point: u64,
    /// Its end was damaged after it was left.
    pub(crate) torn: bool,
    /// First offset that could be read.
    pub(crate) start_offset: u64,
    /// Where it ended and was stable up to, if that can be told from what lies there.
    pub(crate) ends: Option<Ends>,
}

/// The end and the last stable offset of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ends {
    end_offset: u64,
    /// `None` if a transaction is open that began at or below the start: once the snapshots down there are gone, nothing tells of it.
    last_stable_offset: Option<u64>,
}

impl Ends {
    /// Those of a log that starts at `start_offset`, or will be taken to.
    pub(crate) fn new(start_offset: u64, end_offset: u64, last_stable_offset: u64) -> Self {
        Self { end_offset, last_stable_offset: Some(last_stable_offset).filter(|stable| *stable > start_offset) }
    }

    fn of(log: &Log) -> Self {
        Self::new(log.start_offset(), log.end_offset(), log.last_stable_offset())
    }

    /// Whether a log with these ends can come back with `later`.
    pub(crate) fn allow(self, later: Self) -> bool {
        self.end_offset == later.end_offset && (self.last_stable_offset.is_none() || self == later)
    }
}

/// A producer with an id, as it sees itself.
struct Producer {
    id: i64,
    epoch: i16,
    sequence: i32,
    in_transaction: bool,
    /// The last batch that it sent, with the offset that it got.
    last: Option<(Vec<u8>, u64)>,
}

/// One history under way.
struct History {
    rng: Rng,
    root: PathBuf,
    /// Data directories used so far: a crash goes on in a copy.
    roots: u32,
    clock: Arc<FixedClock>,
    now_ms: i64,
    options: LogOptions,
    log: Log,
    producers: Vec<Producer>,
    producer_ids: i64,
    coordinator_epoch: i32,
    leader_epoch: i32,
    /// The cleaner has been below this offset. A broker never truncates there: what it cleans is replicated.
    cleaned_below: u64,
    /// A truncation may have left an end offset that no batch bears witness of.
    end_is_witnessed: bool,
}

/// The history of `seed`, written below the new directory `root`.
pub(crate) fn write(seed: u64, root: &Path) -> Result<Left> {
    let mut history = History::begin(seed, root)?;
    for _ in 0..history.rng.u32(STEPS) {
        history.step()?;
    }
    history.leave()
}

impl History {
    fn begin(seed: u64, root: &Path) -> Result<Self> {
        let mut rng = Rng::with_seed(seed);
        let options = LogOptions::new()
            .segment_bytes(*choose(&mut rng, &[4096, 8192, 20_000, 1 << 20]))
            .index_interval_bytes(*choose(&mut rng, &[0, 256, 1000, 4096]))
            .segment_index_bytes(*choose(&mut rng, &[240, 1200, 10 << 20]))
            .message_timestamp_type(*choose(&mut rng, &[TimestampType::Create, TimestampType::Create, TimestampType::LogAppend]))
            .compression(*choose(&mut rng, &CODECS))
            .delete_retention_ms(*choose(&mut rng, &[0, 500, 86_400_000]));
        let clock = Arc::new(FixedClock::new(Arc::new(RealStorage::new()), T0));
        let first = root.join("0");
        let log = Log::open_with(Arc::clone(&clock) as Arc<dyn Storage>, &first.join(PARTITION), options.clone()).map_err(describe)?;
        let mut history = Self {
            rng,
            root: root.to_owned(),
            roots: 1,
            clock,
            now_ms: T0,
            options,
            log,
            producers: Vec::new(),
            producer_ids: 1000,
            coordinator_epoch: 0,
            leader_epoch: 0,
            cleaned_below: 0,
            end_is_witnessed: true,
        };
        history.renew_producers();
        Ok(history)
    }

    fn step(&mut self) -> Result<()> {
        self.now_ms += self.rng.i64(0..60);
        self.clock.set_now_ms(self.now_ms);
        match self.rng.u32(0..100) {
            0..38 => self.append(),
            38..66 => self.append_of_producer(),
            66..74 => self.end_transaction(),
            74..81 => self.append_as_follower(),
            81..85 => self.send_again(),
            85..88 => self.log.roll().map_err(describe),
            88..92 => self.clean(),
            92..94 => self.truncate(),
            94..96 => self.advance_start(),
            96..98 => self.reopen(),
            _ => self.crash(),
        }
        .context("in the history")
    }

    /// Leaves the log closed, or as a crash does.
    fn leave(mut self) -> Result<Left> {
        let ends = Some(Ends::of(&self.log)).filter(|_| self.end_is_witnessed);
        let start_offset = self.log.start_offset();
        let closed = self.rng.u8(0..5) < 3;
        let (root, torn) = if closed {
            self.log.close().map_err(describe)?;
            (self.current_root(), false)
        } else {
            self.crash_image()?
        };
        let dir = root.join(PARTITION);
        let recovery_point = recovery_point(&root)?;
        let clean = root.join(".kafka_cleanshutdown").exists();
        ensure!(clean == closed, "the mark of a clean stop is there: {clean}, closed: {closed}");
        Ok(Left { dir, options: self.options, clean, recovery_point, torn, start_offset, ends: ends.filter(|_| !torn) })
    }

    fn append(&mut self) -> Result<()> {
        let records: Vec<Record> = (0..self.rng.usize(1..8)).map(|i| self.record(i)).collect();
        let durability = self.durability();
        self.log.append(&records, durability).map_err(describe)?;
        self.end_is_witnessed = true;
        Ok(())
    }

    fn append_of_producer(&mut self) -> Result<()> {
        let at = self.rng.usize(..self.producers.len());
        let transactional = self.producers[at].in_transaction || self.rng.bool();
        let count = self.rng.usize(1..6);
        let producer = &self.producers[at];
        let spec = BatchSpec {
            codec: *choose(&mut self.rng, &CODECS),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence: producer.sequence,
            transactional,
            ..BatchSpec::default()
        };
        let batch = self.batch(spec, count, false)?;
        let durability = self.durability();
        let placed = match self.log.append_batch(batch.clone(), durability) {
            Err(error) if error.kind() == ErrorKind::OutOfOrderSequence => return self.expect_forgotten(at, error),
            other => other.map_err(describe)?,
        };
        ensure!(!placed.duplicate, "a new batch was taken for a duplicate");
        let producer = &mut self.producers[at];
        // Sequence numbers go from 2^31 - 1 to 0.
        producer.sequence = ((i64::from(producer.sequence) + count as i64) % (1 << 31)) as i32;
        producer.in_transaction = transactional;
        producer.last = Some((batch, placed.base_offset));
        self.end_is_witnessed = true;
        Ok(())
    }

    fn end_transaction(&mut self) -> Result<()> {
        let open: Vec<usize> = (0..self.producers.len()).filter(|i| self.producers[*i].in_transaction).collect();
        if open.is_empty() {
            return Ok(());
        }
        let at = *choose(&mut self.rng, &open);
        self.coordinator_epoch += i32::from(self.rng.u8(..) < 20);
        let end = TransactionEnd {
            producer_id: self.producers[at].id,
            producer_epoch: self.producers[at].epoch,
            result: *choose(&mut self.rng, &[TxnResult::Committed, TxnResult::Aborted]),
            coordinator_epoch: self.coordinator_epoch,
        };
        let durability = self.durability();
        self.log.end_transaction(&end, durability).map_err(describe)?;
        self.producers[at].in_transaction = false;
        self.end_is_witnessed = true;
        Ok(())
    }

    /// Batches of another leader, with its epoch, gaps between offsets, and records without keys.
    fn append_as_follower(&mut self) -> Result<()> {
        self.leader_epoch += i32::from(self.rng.u8(..) < 60);
        let mut entries = Vec::new();
        let mut offset = self.log.end_offset();
        for _ in 0..self.rng.u32(1..4) {
            offset += u64::from(self.rng.u32(0..20));
            let timestamp_type = *choose(&mut self.rng, &[TimestampType::Create, TimestampType::LogAppend]);
            let count = self.rng.usize(1..6);
            let spec = BatchSpec {
                base_offset: offset,
                leader_epoch: self.leader_epoch,
                codec: *choose(&mut self.rng, &CODECS),
                timestamp_type,
                max_timestamp: (timestamp_type == TimestampType::LogAppend).then_some(self.now_ms),
                last_offset: Some(offset + count as u64 - 1 + u64::from(self.rng.u32(0..3))),
                ..BatchSpec::default()
            };
            offset = spec.last_offset.unwrap_or(offset) + 1;
            entries.extend(self.batch(spec, count, true)?);
        }
        let durability = self.durability();
        self.log.append_as_follower(&entries, durability).map_err(describe)?;
        self.end_is_witnessed = true;
        Ok(())
    }

    /// A producer that has heard nothing sends its last batch once more.
    fn send_again(&mut self) -> Result<()> {
        let at = self.rng.usize(..self.producers.len());
        // Behind an end marker the batch would be of the next transaction.
        let Some((batch, offset)) = self.producers[at].last.clone() else { return Ok(()) };
        let end_before = self.log.end_offset();
        match self.log.append_batch(batch, Durability::Buffered) {
            Ok(placed) => ensure!(
                placed.duplicate && placed.base_offset == offset && self.log.end_offset() == end_before,
                "a batch that was there at offset {offset} was appended again: {placed:?}"
            ),
            Err(error) => self.expect_forgotten(at, error)?,
        }
        Ok(())
    }

    /// Of a transaction that lies below the start, its marker may be all that is left after a crash. Then the sequence numbers of its
    /// producer are not known any more and it is refused, as by Kafka; another takes its place.
    fn expect_forgotten(&mut self, at: usize, error: keeplog::Error) -> Result<()> {
        let below_start = self.producers[at].last.as_ref().is_some_and(|(_, offset)| *offset < self.log.start_offset());
        ensure!(below_start && error.kind() == ErrorKind::OutOfOrderSequence, "{}", describe(error));
        self.renew_producers();
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        let name = self.log.topic_partition().clone();
        let mut options = CleanOptions::new(self.now_ms);
        options.first_dirty = self.log.data_dir().cleaner_offset(&name).unwrap_or(0).max(self.log.start_offset());
        options.segment_bytes = self.options.segment_bytes;
        options.segment_index_bytes = self.options.segment_index_bytes;
        options.delete_retention_ms = self.options.delete_retention_ms;
        options.dedupe_keys_max = Some(*choose(&mut self.rng, &[15, 40, 1_000_000]));
        options.overflow = *choose(&mut self.rng, &[Overflow::EndPass, Overflow::ReadAgain]);
        options.chunk_bytes = *choose(&mut self.rng, &[500, 512 << 10]);
        let report = clean(&self.log, &options, &()).map_err(describe)?;
        self.log.data_dir().set_cleaner_offset(&name, Some(report.new_dirty));
        self.cleaned_below = self.cleaned_below.max(report.first_uncleanable);
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let (start, end) = (self.log.start_offset(), self.log.end_offset());
        let lowest = start.max(end.saturating_sub(80)).max(self.cleaned_below.min(end));
        let offset = self.rng.u64(lowest..=end);
        if offset < end {
            self.log.truncate_to(offset).map_err(describe)?;
            self.end_is_witnessed = false;
            self.renew_producers();
        }
        Ok(())
    }

    fn advance_start(&mut self) -> Result<()> {
        let (start, end) = (self.log.start_offset(), self.log.end_offset());
        let offset = self.rng.u64(start..=start + (end - start) / 3);
        self.log.advance_start(offset).map_err(describe)?;
        self.log.apply_retention().map_err(describe)?;
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        let ends = Ends::of(&self.log);
        self.log.close().map_err(describe)?;
        let root = self.current_root();
        self.open(&root)?;
        let report = self.log.recovery_report();
        ensure!(report.clean && report.segments_scanned == 0, "closed in order, but opened with work to do: {report}");
        let later = Ends::of(&self.log);
        ensure!(!self.end_is_witnessed || ends.allow(later), "closing changed {ends:?} to {later:?}");
        Ok(())
    }

    /// Goes on with what a killed process leaves behind.
    fn crash(&mut self) -> Result<()> {
        let ends = Ends::of(&self.log);
        let (root, torn) = self.crash_image()?;
        self.open(&root)?;
        let report = self.log.recovery_report();
        ensure!(report.damage.is_empty() && !report.clean, "after a crash: {report}");
        if torn {
            self.renew_producers();
        } else if self.end_is_witnessed {
            let later = Ends::of(&self.log);
            ensure!(ends.allow(later), "a crash changed {ends:?} to {later:?}: {report}");
        }
        self.end_is_witnessed = true;
        Ok(())
    }

    fn open(&mut self, root: &Path) -> Result<()> {
        let storage = Arc::clone(&self.clock) as Arc<dyn Storage>;
        self.log = Log::open_with(storage, &root.join(PARTITION), self.options.clone()).map_err(describe)?;
        Ok(())
    }

    fn current_root(&self) -> PathBuf {
        self.root.join((self.roots - 1).to_string())
    }

    /// A copy of the directory as it is at this moment, and whether its end was torn off.
    fn crash_image(&mut self) -> Result<(PathBuf, bool)> {
        let old = self.current_root();
        self.roots += 1;
        let new = self.current_root();
        directory::copy(&old, &new)?;
        directory::copy(&old.join(PARTITION), &new.join(PARTITION))?;
        let torn = self.rng.bool();
        if torn {
            self.tear(&new)?;
        }
        Ok((new, torn))
    }

    /// Cuts the last segment somewhere near its end, or leaves rubbish there.
    fn tear(&mut self, root: &Path) -> Result<()> {
        let dir = root.join(PARTITION);
        let path = dir.join(dump::names(&dir, &["log"])?.pop().context("a log without segments")?);
        let mut bytes = fs::read(&path)?;
        match self.rng.u8(0..3) {
            0 => bytes.truncate(bytes.len() - self.rng.usize(0..=bytes.len().min(400))),
            1 => bytes.extend(std::iter::repeat_n(0, self.rng.usize(1..5000))),
            // Less than a header, so that it never stands for a whole batch.
            _ => bytes.extend((0..self.rng.usize(1..60)).map(|_| self.rng.u8(..))),
        }
        fs::write(&path, bytes)?;
        // A tear below the recovery point is no tear but damage.
        fs::write(root.join("recovery-point-offset-checkpoint"), "0\n0\n")?;
        Ok(())
    }

    /// Producers that know nothing of those before them, some of whose transactions stay open.
    fn renew_producers(&mut self) {
        self.producers.clear();
        for i in 0..3 {
            self.producer_ids += 1;
            self.producers.push(Producer {
                id: self.producer_ids,
                epoch: self.rng.i16(0..3),
                sequence: if i == 0 { i32::MAX - 7 } else { 0 },
                in_transaction: false,
                last: None,
            });
        }
    }

    fn durability(&mut self) -> Durability {
        if self.rng.u8(0..12) == 0 { Durability::Synced } else { Durability::Buffered }
    }

    /// A batch of random records, at the offsets that `spec` begins with.
    fn batch(&mut self, spec: BatchSpec, count: usize, keyless: bool) -> Result<Vec<u8>> {
        let mut writer = BatchWriter::new();
        writer.begin(spec);
        for i in 0..count {
            let record = self.record(i);
            let key = record.key.filter(|_| !(keyless && self.rng.u8(0..10) == 0));
            let timestamp = self.now_ms - self.rng.i64(0..100);
            writer.push(spec.base_offset + i as u64, timestamp, key.as_deref(), record.value.as_deref(), &record.headers)?;
        }
        let mut batch = Vec::new();
        writer.finish(&mut batch)?;
        Ok(batch)
    }

    /// A random record, the `i`-th of its batch; only the first may be large, so that the smallest segment takes the batch.
    fn record(&mut self, i: usize) -> Record {
        let rng = &mut self.rng;
        let key = if rng.u8(0..40) == 0 { String::new() } else { format!("key-{}", rng.u32(0..60)) };
        let value_bytes = if i == 0 && rng.u8(0..10) == 0 { rng.usize(0..2000) } else { rng.usize(0..120) };
        let value: Vec<u8> = (0..value_bytes).map(|i| if i % 4 == 0 { rng.u8(..) } else { b'a' + (i % 7) as u8 }).collect();
        let mut record = if rng.u8(0..7) == 0 { Record::tombstone(key) } else { Record::new(key, value) };
        if rng.u8(0..5) == 0 {
            let name = *choose(rng, &["trace", "", "größe-組-🚀"]);
            let value = *choose(rng, &[None, Some(&b""[..]), Some(&b"\x00\xff"[..])]);
            record.headers.push(Header { key: name.to_owned(), value: value.map(bytes::Bytes::from_static) });
            record.headers.push(Header { key: name.to_owned(), value: None });
        }
        if rng.bool() { record.timestamp_ms(self.now_ms - self.rng.i64(0..1000)) } else { record }
    }
}

fn choose<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

/// What the checkpoint beside the log says of it; 0 if it says nothing.
fn recovery_point(root: &Path) -> Result<u64> {
    let text = fs::read_to_string(root.join("recovery-point-offset-checkpoint")).unwrap_or_default();
    let entry = text.lines().find_map(|line| line.strip_prefix("t 0 "));
    entry.map_or(Ok(0), |offset| offset.parse().context("a recovery point that is no number"))
}
