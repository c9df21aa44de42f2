//! A log's life by a script, and what must be true of the log at any moment of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::DataDir;
use keeplog::inspect::record::{BatchSpec, BatchWriter};
use keeplog::inspect::storage::Storage;
use keeplog::{CleanOptions, CleanOutcome, Durability, Log, LogOptions, Record, Result, TransactionEnd, TxnResult, clean};

use super::disk::{Dice, Disk};

pub(crate) const T0: i64 = 1_760_000_000_000;
const TOMBSTONES_STAY_MS: i64 = 1000;
const IDEMPOTENT: i64 = 7;
const TRANSACTIONAL: i64 = 9;

/// What was written, and what of it must be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    records: BTreeMap<u64, Written>,
    /// Offsets of the batches of the idempotent producer, of one record each.
    of_producer: BTreeSet<u64>,
    /// Everything below was acknowledged as synced, and no truncation has been asked for since.
    must_end: u64,
    /// One past the last offset that was ever given.
    end: u64,
    start_min: u64,
    start_max: u64,
    /// From here on unsynced ends of segments may be damaged.
    holes_from: Option<u64>,
}

#[derive(Clone, Debug)]
struct Written {
    key: String,
    value: Option<String>,
    gone: Gone,
    /// Part of a transaction; where its fate is decided, and whether it holds.
    transaction: Option<Option<(u64, bool)>>,
}

/// Whether the cleaner may have removed a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    No,
    /// For the sake of the newer record with this offset, which must be there then.
    For(u64),
    Yes,
}

pub(crate) struct World {
    pub(crate) disk: Disk,
    dir: Arc<DataDir>,
    pub(crate) log: Log,
}

pub(crate) fn options() -> LogOptions {
    LogOptions::new().segment_bytes(4096).index_interval_bytes(256).delete_retention_ms(TOMBSTONES_STAY_MS)
}

impl World {
    pub(crate) fn open(disk: &Disk) -> Result<Self> {
        let storage = Arc::new(disk.clone()) as Arc<dyn Storage>;
        let dir = Arc::new(DataDir::open_or_create(storage, Path::new("/data"))?);
        let log = Log::open_in(&dir, &"t-0".parse().unwrap(), options())?;
        Ok(Self { disk: disk.clone(), dir, log })
    }

    pub(crate) fn close(self) -> Result<()> {
        self.log.close()?;
        assert!(self.dir.close()?);
        Ok(())
    }

    fn clean(&self) -> Result<()> {
        let name = self.log.topic_partition();
        let options = CleanOptions::for_log(self.log.options(), self.disk.now_ms())
            .first_dirty(self.dir.cleaner_offset(name).unwrap_or(self.log.start_offset()))
            .dedupe_buffer_bytes(1 << 16)
            .hash_seed(Some(1));
        let report = clean(&self.log, &options, &())?;
        if report.outcome == CleanOutcome::Cleaned {
            self.dir.set_cleaner_offset(name, Some(report.new_dirty));
            self.dir.write_checkpoints()?;
        }
        Ok(())
    }
}

/// One life: `steps` of them, or until something fails. The model is up to date at any moment.
pub(crate) fn live(disk: &Disk, seed: u64, steps: usize, model: &mut Model) -> Result<()> {
    let mut dice = Dice(seed);
    let mut world = World::open(disk)?;
    for _ in 0..steps {
        let step = dice.roll(30);
        match step {
            0..=10 => append(&world.log, &mut dice, model)?,
            11..=13 => append_idempotent(&world.log, &mut dice, model)?,
            14 | 15 => transact(&world.log, &mut dice, model)?,
            16 => {
                world.log.sync()?;
                model.must_end = end_of_last_batch(&world.log);
            }
            17 => world.log.roll()?,
            18..=20 => {
                model.cleaned_below(world.log.segments().active().base_offset());
                let cleaned = world.clean();
                // It syncs before it takes anything away.
                model.must_end = model.must_end.max(end_of_last_batch_below(&world.log, world.log.recovery_point()));
                cleaned?;
            }
            21 => truncate(&world.log, &mut dice, model)?,
            22 => {
                let (start, end) = (world.log.start_offset(), world.log.end_offset());
                let to = start + dice.roll(end - start + 1) / 2;
                model.start_max = model.start_max.max(to);
                world.log.advance_start(to)?;
                model.start_min = world.log.start_offset();
                assert_eq!(model.start_min, to);
            }
            23 | 24 => {
                world.log.apply_retention()?;
                assert_eq!(world.log.start_offset(), model.start_min);
            }
            25 | 26 => {
                world.log.note_offsets();
                world.log.data_dir().write_checkpoints()?;
            }
            27 => {
                let end = end_of_last_batch(&world.log);
                world.close()?;
                model.must_end = end;
                world = World::open(disk)?;
                model.check(&world.log).unwrap_or_else(|why| panic!("seed {seed}: after a clean close: {why}"));
            }
            _ => disk.advance_ms(TOMBSTONES_STAY_MS as u64 / 2),
        }
    }
    Ok(())
}

fn value(dice: &mut Dice) -> Option<String> {
    (dice.roll(4) > 0).then(|| format!("{:x}", dice.roll(u64::MAX)).repeat(1 + dice.roll(20) as usize))
}

fn append(log: &Log, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let written: Vec<_> = (0..=dice.roll(4)).map(|_| (format!("k{}", dice.roll(6)), value(dice))).collect();
    let records: Vec<_> =
        written.iter().map(|(k, v)| Record { value: v.clone().map(Into::into), ..Record::tombstone(k.clone()) }).collect();
    let durability = if dice.roll(3) == 0 { Durability::Synced } else { Durability::Buffered };
    model.note(log.end_offset(), written, false);
    log.append(&records, durability)?;
    model.acknowledge(log, durability);
    Ok(())
}

fn batch(spec: BatchSpec, written: &[(String, Option<String>)], now_ms: i64) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(spec);
    for (i, (key, value)) in written.iter().enumerate() {
        writer.push(i as u64, now_ms, Some(key.as_bytes()), value.as_deref().map(str::as_bytes), &[]).unwrap();
    }
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

fn append_idempotent(log: &Log, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let written = vec![(format!("i{}", dice.roll(3)), value(dice))];
    let last = log.active_producers().into_iter().find(|p| p.id == IDEMPOTENT).map_or(-1, |p| p.last_sequence);
    let spec = BatchSpec { producer_id: IDEMPOTENT, producer_epoch: 0, base_sequence: last + 1, ..BatchSpec::default() };
    let end = log.end_offset();
    model.of_producer.insert(end);
    let bytes = batch(spec, &written, log.storage().now_ms());
    model.note(end, written, false);
    log.append_batch(bytes, Durability::Buffered)?;
    Ok(())
}

/// A whole transaction of one batch, in an epoch of its own.
fn transact(log: &Log, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let written: Vec<_> = (0..2).map(|_| (format!("x{}", dice.roll(3)), value(dice))).collect();
    let epoch = (model.end % 30_000) as i16;
    let spec =
        BatchSpec { producer_id: TRANSACTIONAL, producer_epoch: epoch, base_sequence: 0, transactional: true, ..BatchSpec::default() };
    let bytes = batch(spec, &written, log.storage().now_ms());
    let base = log.end_offset();
    model.note(base, written, true);
    log.append_batch(bytes, Durability::Buffered)?;
    let holds = dice.roll(2) == 0;
    let marker = log.end_offset();
    for (_, record) in model.records.range_mut(base..marker) {
        record.transaction = Some(Some((marker, holds)));
    }
    model.end = marker + 1;
    let result = if holds { TxnResult::Committed } else { TxnResult::Aborted };
    let end = TransactionEnd { producer_id: TRANSACTIONAL, producer_epoch: epoch, result, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Synced)?;
    model.acknowledge(log, Durability::Synced);
    Ok(())
}

fn truncate(log: &Log, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let end = log.end_offset();
    let to = end - dice.roll(end.min(40) + 1);
    // The batch that holds the offset goes as a whole. What goes may still be there if this does not return.
    let whole = end_of_last_batch_below(log, to);
    model.must_end = model.must_end.min(whole);
    model.start_min = model.start_min.min(to);
    for record in model.records.values_mut() {
        if matches!(record.gone, Gone::For(newer) if newer >= whole) {
            record.gone = Gone::Yes;
        }
    }
    log.truncate_to(to)?;
    assert_eq!(log.end_offset(), to);
    // A transaction whose marker went is open again: one more marker ends it.
    model.records.retain(|offset, _| *offset < whole);
    model.of_producer.retain(|offset| *offset < whole);
    model.end = to;
    model.start_min = log.start_offset();
    model.start_max = log.start_offset();
    let mut cut_open = false;
    for record in model.records.values_mut() {
        if matches!(record.transaction, Some(Some((marker, _))) if marker >= whole) {
            record.transaction = Some(None);
            cut_open = true;
        }
    }
    if !cut_open {
        return Ok(());
    }
    // Of one that the cleaner took away, being aborted, nothing may be left to end.
    let open = log.active_producers().into_iter().find(|p| p.id == TRANSACTIONAL && p.open_txn_first_offset.is_some());
    if let Some(producer) = open {
        let epoch = producer.epoch;
        let marker = log.end_offset();
        model.end = marker + 1;
        for record in model.records.values_mut().filter(|r| r.transaction == Some(None)) {
            record.transaction = Some(Some((marker, false)));
        }
        let end = TransactionEnd { producer_id: TRANSACTIONAL, producer_epoch: epoch, result: TxnResult::Aborted, coordinator_epoch: 0 };
        log.end_transaction(&end, Durability::Buffered)?;
    }
    model.records.values_mut().filter(|r| r.transaction == Some(None)).for_each(|r| r.transaction = Some(Some((0, false))));
    Ok(())
}

fn end_of_last_batch(log: &Log) -> u64 {
    end_of_last_batch_below(log, log.end_offset())
}

/// Where the last batch ends that ends at or below `offset`.
fn end_of_last_batch_below(log: &Log, offset: u64) -> u64 {
    let start = log.start_offset().min(offset);
    let ends = log.batches_from(log.start_offset()).unwrap().map(|b| b.unwrap().header.next_offset());
    ends.take_while(|end| *end <= offset).last().unwrap_or(start)
}

impl Model {
    fn note(&mut self, base: u64, written: Vec<(String, Option<String>)>, transactional: bool) {
        for (offset, (key, value)) in (base..).zip(written) {
            let transaction = transactional.then_some(None);
            self.records.insert(offset, Written { key, value, gone: Gone::No, transaction });
            self.end = offset + 1;
        }
    }

    fn acknowledge(&mut self, log: &Log, durability: Durability) {
        assert_eq!(log.end_offset(), self.end);
        if durability == Durability::Synced {
            self.must_end = self.end;
        }
    }

    /// A pass over what lies below `bound` begins.
    fn cleaned_below(&mut self, bound: u64) {
        let mut newer: BTreeMap<String, u64> = BTreeMap::new();
        for (offset, record) in self.records.range_mut(..bound).rev() {
            if matches!(record.transaction, Some(Some((_, false)))) {
                record.gone = Gone::Yes;
                continue;
            }
            if record.gone == Gone::No {
                record.gone = match newer.get(&record.key) {
                    Some(newer) => Gone::For(*newer),
                    None if record.value.is_none() => Gone::Yes,
                    None => Gone::No,
                };
            }
            newer.entry(record.key.clone()).or_insert(*offset);
        }
    }

    /// Of what was never acknowledged, some may be missing with later records there: what lay in a segment that was
    /// closed, but not synced, goes by itself when the machine stops.
    pub(crate) fn without_holes(&self, log: &Log) -> Self {
        let mut model = self.clone();
        let Ok(records) = log.read_from(log.start_offset()) else { return model };
        let held: BTreeSet<u64> = records.filter_map(|r| r.ok().map(|r| r.offset())).collect();
        let is_lost = |offset: &u64| *offset >= self.must_end.max(log.start_offset()) && !held.contains(offset);
        let lost: BTreeSet<u64> = self.records.keys().copied().filter(is_lost).collect();
        model.records.retain(|offset, _| !lost.contains(offset));
        model.of_producer.retain(|offset| !is_lost(offset));
        for record in model.records.values_mut() {
            if matches!(record.gone, Gone::For(newer) if lost.contains(&newer)) {
                record.gone = Gone::No;
            }
        }
        model.holes_from = Some(self.must_end);
        model
    }

    /// What is wrong with a log that was opened after this.
    pub(crate) fn check(&self, log: &Log) -> std::result::Result<(), String> {
        let (start, end) = (log.start_offset(), log.end_offset());
        let report = log.recovery_report();
        let tolerated = |offset: u64| self.holes_from.is_some_and(|from| offset >= from);
        if report.damage.iter().any(|d| !tolerated(d.offset)) || report.read_only {
            return Err(format!("damage: {:?}", report.damage));
        }
        if !(self.start_min..=self.start_max.max(self.start_min)).contains(&start) {
            return Err(format!("it starts at {start}, not within {}..={}", self.start_min, self.start_max));
        }
        if end < self.must_end || end > self.end.max(start) {
            return Err(format!("it ends at {end}, not within {}..={}", self.must_end, self.end));
        }
        let mut newest: BTreeMap<String, (u64, Option<String>)> = BTreeMap::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for record in log.read_from(start).map_err(|e| format!("{e:?}"))? {
            let record = record.map_err(|e| format!("{e:?}"))?;
            let (key, value) = (text(record.key().unwrap()), record.value().map(|v| text(v)));
            let Some(written) = self.records.get(&record.offset()).filter(|w| (&w.key, &w.value) == (&key, &value)) else {
                return Err(format!("{key} = {value:?} at {} was not written there, or was cut off", record.offset()));
            };
            if !matches!(written.transaction, Some(Some((_, false)) | None)) {
                newest.insert(key, (record.offset(), value));
            }
        }
        for record in log.read_committed_from(start).map_err(|e| format!("{e:?}"))? {
            let offset = record.map_err(|e| format!("{e:?}"))?.offset();
            if matches!(self.records[&offset].transaction, Some(None | Some((_, false)))) {
                return Err(format!("the record at {offset} was never committed"));
            }
        }
        self.check_newest(start, end, &newest)?;
        self.check_producers(log, start, end)
    }

    fn check_newest(&self, start: u64, end: u64, newest: &BTreeMap<String, (u64, Option<String>)>) -> std::result::Result<(), String> {
        let mut expected: BTreeMap<&str, (u64, &Written)> = BTreeMap::new();
        for (offset, written) in self.records.range(start..end.max(start)) {
            if !matches!(written.transaction, Some(Some((_, false)) | None)) {
                expected.insert(&written.key, (*offset, written));
            }
        }
        for (key, (offset, written)) in expected {
            let found = newest.get(key).map(|(offset, _)| *offset);
            let may_be_gone = match written.gone {
                Gone::No => false,
                Gone::For(newer) => newer < end,
                Gone::Yes => true,
            };
            if found != Some(offset) && !(found.is_none() && may_be_gone) {
                return Err(format!("the newest {key} is that of {found:?}, written were {offset} {written:?}; it ends at {end}"));
            }
        }
        Ok(())
    }

    fn check_producers(&self, log: &Log, start: u64, end: u64) -> std::result::Result<(), String> {
        let known = log.active_producers().into_iter().find(|p| p.id == IDEMPOTENT).map(|p| p.last_data_offset);
        // What the cleaner took away before a truncation is known no more: then an earlier batch may be the last.
        let kept = self.of_producer.range(..end).filter(|o| **o >= start && self.records.get(o).is_some_and(|w| w.gone == Gone::No));
        let (may_be_old, last) = (kept.copied().next_back(), self.of_producer.range(..end).next_back().copied());
        match (known.flatten(), last) {
            (known, last) if known == last => Ok(()),
            (known, last) if known < last && known >= may_be_old => Ok(()),
            (known, last) => Err(format!("the last offset of the producer is {known:?}, {last:?} is right")),
        }
    }

    /// The log as it was opened is the truth from now on, and everything in it is safe.
    pub(crate) fn take_over(&mut self, log: &Log) {
        let end = log.end_offset();
        self.records.retain(|offset, _| *offset < end);
        self.of_producer.retain(|offset| *offset < end);
        (self.end, self.must_end) = (end, end);
        (self.start_min, self.start_max) = (log.start_offset(), log.start_offset());
        self.holes_from = None;
        for record in self.records.values_mut() {
            if matches!(record.transaction, Some(Some((marker, _))) if marker >= end) {
                record.transaction = Some(None);
            }
        }
        let held: BTreeSet<_> = log.read_from(log.start_offset()).unwrap().map(|r| r.unwrap().offset()).collect();
        self.records.retain(|offset, _| held.contains(offset));
    }
}

/// Goes on with a log that was recovered: what was deleted must not come back when the cleaner has been there again.
#[allow(clippy::needless_pass_by_value)] // its life ends here
pub(crate) fn afterlife(world: World, mut model: Model) -> std::result::Result<(), String> {
    model.take_over(&world.log);
    let disk = world.disk.clone();
    let mut go_on = || -> Result<Log> {
        let open = model.records.values().any(|r| r.transaction == Some(None));
        if open {
            let epoch = world.log.active_producers().into_iter().find(|p| p.id == TRANSACTIONAL).unwrap().epoch;
            let end =
                TransactionEnd { producer_id: TRANSACTIONAL, producer_epoch: epoch, result: TxnResult::Aborted, coordinator_epoch: 0 };
            let marker = world.log.end_transaction(&end, Durability::Synced)?.base_offset;
            model.end = marker + 1;
            model.records.values_mut().filter(|r| r.transaction == Some(None)).for_each(|r| r.transaction = Some(Some((marker, false))));
        }
        for key in ["k0", "k1", "i0"] {
            model.note(world.log.end_offset(), vec![(key.to_owned(), None)], false);
            world.log.append(&[Record::tombstone(key)], Durability::Synced)?;
        }
        for _ in 0..3 {
            world.log.roll()?;
            model.note(world.log.end_offset(), vec![("last".to_owned(), Some("1".to_owned()))], false);
            world.log.append(&[Record::new("last", "1")], Durability::Synced)?;
            model.cleaned_below(world.log.segments().active().base_offset());
            world.clean()?;
            disk.advance_ms(2 * TOMBSTONES_STAY_MS as u64);
        }
        model.must_end = model.end;
        world.log.close()?;
        world.dir.close()?;
        let world = World::open(&disk)?;
        Ok(world.log)
    };
    let log = go_on().map_err(|e| format!("going on: {e:?}"))?;
    model.check(&log)
}
