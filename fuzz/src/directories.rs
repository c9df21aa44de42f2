//! A partition directory with structured damage: opened, read, closed, opened again.
//!
//! What must hold whatever was done to the files:
//! - Nothing panics. An open that fails fails again in the same way.
//! - Records come in rising offsets, and reading from an offset gives what reading from the start gives.
//! - After a close, the second open finds the same records, offsets and producers, and cuts nothing. So does an open
//!   after a crash, unless the first had to trust what it did not read (a clean mark, a recovery point).
//! - Looked over before and after, cleaned, and loaded as a log of commits, it keeps what `upkeep` says.
//! - While only indexes, snapshots and checkpoints were touched, every record is still there: none of them is
//!   trusted ahead of the log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Unstructured};
use keeplog_engine::record::{BatchHeader, BatchSpec, BatchWriter, Codec, Record, TxnResult};
use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::{Durability, ErrorKind, Log, LogOptions, RecoveryMode, TransactionEnd};

use crate::entries::Plain;
use crate::upkeep;
use crate::world::{read, write};

const DATA: &str = "/data";
const LOG: &str = "/data/t-0";
const T0: i64 = 1_760_000_000_000;
const CHECKPOINTS: [&str; 4] =
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"];

#[derive(Arbitrary, Debug)]
struct Input {
    /// From a log that was closed, or one whose process died.
    closed: bool,
    mode: u8,
    full_scan: bool,
    recovery_point: Option<u16>,
    /// Few: a directory in ruins has little left to go wrong.
    damage: [Option<Damage>; 4],
    /// After the first open, write on before it is closed.
    append: bool,
}

/// One thing done to one file; `file` and other places are taken modulo what is there.
#[derive(Arbitrary, Debug)]
enum Damage {
    Flip {
        file: u8,
        at: u16,
        bits: u8,
    },
    Overwrite {
        file: u8,
        at: u16,
        bytes: [u8; 8],
    },
    Zero {
        file: u8,
        at: u16,
        len: u16,
    },
    Cut {
        file: u8,
        at: u16,
    },
    Extend {
        file: u8,
        bytes: Vec<u8>,
    },
    ExtendZeros {
        file: u8,
        len: u16,
    },
    Remove {
        file: u8,
    },
    /// As a cleaner, a swap or a removal would name it.
    Suffix {
        file: u8,
        suffix: u8,
    },
    Renumber {
        file: u8,
        number: u16,
    },
    CopyOver {
        from: u8,
        to: u8,
    },
    /// A header field of a batch is changed and the checksum made to fit: damage that only reason can see.
    Reseal {
        log: u8,
        batch: u8,
        at: u8,
        byte: u8,
    },
    /// A copy of some of a log's bytes at its own end, as a write that was repeated.
    Repeat {
        log: u8,
        at: u16,
        len: u16,
    },
    Checkpoint {
        which: u8,
        offset: u16,
    },
    Stray {
        name: u8,
        bytes: Vec<u8>,
    },
}

/// Any damage to a small directory.
pub fn directory(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let _shown = ShownOnPanic(&input);
    let disk = if input.closed { CLOSED.image() } else { KILLED.image() };
    if let Some(offset) = input.recovery_point {
        set_checkpoint(&disk, CHECKPOINTS[0], u64::from(offset));
    }
    let mut records_touched = false;
    for damage in input.damage.iter().flatten() {
        records_touched |= inflict(&disk, damage);
    }

    upkeep::look_over(&disk, Path::new(LOG));
    let log = match open(&disk, &input) {
        Ok(log) => log,
        Err(error) => {
            let again = open(&disk.image(), &input).expect_err("an open that failed succeeds");
            assert_eq!(again.kind(), error.kind(), "first {error:?}, then {again:?}");
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{error:?}");
            return;
        }
    };
    let is_sound = log.recovery_report().damage.is_empty();
    // Its end is not that of what was scanned: then a snapshot of a clean close may be the newest below it.
    let ends_elsewhere = log.recovery_report().ended_below_start.is_some();
    let faith = Faith {
        consistent: is_sound && !(input.trusts() && records_touched),
        indexes: !input.trusts() && !(input.closed && records_touched) && (is_sound || !ends_elsewhere),
        salvages_more: !is_sound && (log.options().recovery_mode == RecoveryMode::Salvage || log.recovery_report().lost.is_some()),
    };
    let contents = Contents::of(&log, &input, faith);
    let report = log.recovery_report().to_string();
    if !records_touched {
        assert_eq!(contents.records, SOUND.records, "records are lost though no log was touched\n{report}");
        assert_eq!(contents.end_offset, SOUND.end_offset);
    }
    if !input.trusts() || !records_touched {
        opens_alike(&disk.image(), &input, faith, &contents, &format!("after a crash; first:\n{report}"));
        // A transaction index that was believed unread, or that nobody knows is missing, shows readers what was aborted. And a
        // pass reads what they do not: what lies below the start, and what is aborted.
        let begins = log.segments().all()[0].base_offset() == contents.start_offset;
        let whole = faith.consistent && faith.indexes && input.full_scan && contents.error_at.is_none() && begins && !input.reseals();
        let copy = disk.image();
        upkeep::keeps_what_counts(&copy, || open(&copy, &input).expect("it opened before"), whole, T0 + 10_000);
    }

    let contents = if input.append && !contents.read_only {
        let appended = log.append(&[Record::new("fuzz", "more").timestamp_ms(T0 + 5000)], Durability::Synced).expect("it is writable");
        assert_eq!((appended.base_offset, log.end_offset()), (contents.end_offset, contents.end_offset + 1));
        Contents::of(&log, &input, faith)
    } else {
        contents
    };
    if let Err(error) = log.close() {
        assert!(contents.read_only, "{error:?}\n{report}");
    }
    drop(log);
    if !(input.trusts() && contents.read_only) {
        opens_alike(&disk.image(), &input, faith, &contents, &format!("after a close; first:\n{report}"));
    }
}

impl Input {
    /// Whether the first open takes some of the log as sound without reading it.
    fn trusts(&self) -> bool {
        !self.full_scan && (self.closed || self.recovery_point.is_some())
    }

    /// Whether headers may say what their records do not.
    fn reseals(&self) -> bool {
        self.damage.iter().flatten().any(|damage| matches!(damage, Damage::Reseal { .. }))
    }
}

/// What the first open leaves to be sure of.
#[derive(Clone, Copy, Debug)]
struct Faith {
    /// No damage stayed: no segment holds what is not its own, so that every way to read must agree.
    consistent: bool,
    /// The time and transaction indexes and the snapshots were checked or made anew. (What an offset index says is
    /// checked whenever it is asked.) The snapshot of a clean close speaks of the batches that were there then, until a
    /// crash takes its word away.
    indexes: bool,
    /// Damage below the recovery point stayed, and may be cut next time, when the recovery point has come down with
    /// the end of the log.
    salvages_more: bool,
}

impl Faith {
    const FULL: Self = Self { consistent: true, indexes: true, salvages_more: false };
}

struct ShownOnPanic<'a>(&'a Input);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}", self.0);
        }
    }
}

fn opens_alike(disk: &MemoryStorage, input: &Input, faith: Faith, before: &Contents, when: &str) {
    let log = open(disk, input).unwrap_or_else(|e| panic!("the second open fails {when}: {e:?}"));
    let report = log.recovery_report();
    assert!(faith.salvages_more || report.cuts.is_empty(), "the second open cuts {when}\nthen:\n{report}");
    // Whether all ways to read agree was seen when it was opened first.
    let mut after = Contents::of(&log, input, Faith { consistent: false, ..faith });
    let mut before = before.clone();
    if faith.salvages_more {
        // What stopped readers may have been cut now.
        (before.error_at, after.error_at) = (None, None);
    }
    if faith.indexes {
        assert_eq!(after, before, "{when}\nthen:\n{report}");
    } else {
        let readable = |c: &Contents| (c.start_offset, c.end_offset, c.records.clone(), c.error_at);
        assert_eq!(readable(&after), readable(&before), "{when}\nthen:\n{report}");
    }
}

fn options(input: &Input) -> LogOptions {
    let mode = [RecoveryMode::TruncateTail, RecoveryMode::Salvage, RecoveryMode::Strict][usize::from(input.mode % 3)];
    small().recovery_mode(mode).recovery_full_scan(input.full_scan)
}

fn small() -> LogOptions {
    LogOptions::new().segment_bytes(4096).index_interval_bytes(256).segment_index_bytes(4096).decompressed_bytes_max(1 << 20)
}

fn open(disk: &MemoryStorage, input: &Input) -> keeplog_engine::Result<Log> {
    Log::open_with(Arc::new(disk.clone()), Path::new(LOG), options(input))
}

/// Everything that a reader can see.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    start_offset: u64,
    end_offset: u64,
    last_stable_offset: u64,
    records: Vec<Plain>,
    /// Where reading ended early.
    error_at: Option<(u64, ErrorKind)>,
    committed: usize,
    producers: Vec<(i64, i16, i32, Option<u64>)>,
    read_only: bool,
}

impl Contents {
    fn of(log: &Log, input: &Input, faith: Faith) -> Self {
        let (start_offset, end_offset) = (log.start_offset(), log.end_offset());
        let mut records = Vec::new();
        let mut error_at = None;
        for record in log.read_from(start_offset).expect("the start can be read") {
            match record {
                Ok(record) => records.push(Plain::of(&record)),
                Err(error) => error_at = Some((records.last().map_or(0, |r| r.offset), error.kind())),
            }
        }
        assert!(records.is_sorted_by(|a, b| a.offset < b.offset), "offsets do not rise");
        let committed = log.read_committed_from(start_offset).map_or(0, |records| records.filter(Result::is_ok).count());
        if error_at.is_none() && faith.consistent {
            assert!(
                records.iter().all(|r| (start_offset..end_offset).contains(&r.offset)),
                "a record outside {start_offset}..{end_offset}"
            );
            assert!(committed <= records.len());
            every_offset_reads_alike(log, &records);
            // An offset beyond the reach of an index entry is in no index.
            if faith.indexes && !input.reseals() && end_offset <= 1 << 31 {
                the_latest_time_is_found(log, &records);
            }
        }
        let producers = log.active_producers().iter().map(|p| (p.id, p.epoch, p.last_sequence, p.last_data_offset)).collect();
        let read_only = log.recovery_report().read_only;
        let last_stable_offset = log.last_stable_offset();
        assert!(last_stable_offset <= end_offset);
        Self { start_offset, end_offset, last_stable_offset, records, error_at, committed, producers, read_only }
    }
}

/// From whichever offset reading starts, through whatever index entry: the same records.
fn every_offset_reads_alike(log: &Log, records: &[Plain]) {
    let step = 1 + records.len() / 16;
    for record in records.iter().step_by(step) {
        let first = log.read_from(record.offset).expect("an offset of the log").next().expect("it was read before");
        let first = first.unwrap_or_else(|e| panic!("offset {} is read from the start, not from itself: {e:?}", record.offset));
        assert_eq!(&Plain::of(&first), record, "skipped when reading from its offset");
    }
}

fn the_latest_time_is_found(log: &Log, records: &[Plain]) {
    if let Some(latest) = records.iter().map(|r| r.timestamp).max() {
        let found = log.find_by_timestamp(latest).expect("every batch can be read");
        let expected = records.iter().find(|r| r.timestamp >= latest).map(|r| (r.offset, r.timestamp));
        assert_eq!(found, expected, "by time {latest}");
    }
}

fn names(disk: &MemoryStorage) -> Vec<String> {
    disk.list(Path::new(LOG)).expect("the directory is there").into_iter().map(|e| e.name).collect()
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log")
}

/// Does the damage; returns whether it may have taken, added or hidden records.
fn inflict(disk: &MemoryStorage, damage: &Damage) -> bool {
    let all = names(disk);
    let pick = |file: u8| all.get(usize::from(file) % all.len().max(1)).cloned();
    let logs: Vec<&String> = all.iter().filter(|n| is_log(n)).collect();
    let pick_log = |log: u8| logs.get(usize::from(log) % logs.len().max(1)).map(|name| (*name).clone());
    match damage {
        Damage::Flip { file, at, bits } => edit(disk, pick(*file), |bytes| {
            if let Some(byte) = place(bytes, *at) {
                *byte ^= bits;
            }
        }),
        Damage::Overwrite { file, at, bytes: new } => edit(disk, pick(*file), |bytes| {
            let start = usize::from(*at) % (bytes.len() + 1);
            bytes.iter_mut().skip(start).zip(new).for_each(|(old, new)| *old = *new);
        }),
        Damage::Zero { file, at, len } => edit(disk, pick(*file), |bytes| {
            let start = usize::from(*at) % (bytes.len() + 1);
            bytes.iter_mut().skip(start).take((*len).into()).for_each(|byte| *byte = 0);
        }),
        Damage::Cut { file, at } => edit(disk, pick(*file), |bytes| bytes.truncate(usize::from(*at) % (bytes.len() + 1))),
        Damage::Extend { file, bytes: more } => edit(disk, pick(*file), |bytes| bytes.extend_from_slice(more)),
        Damage::ExtendZeros { file, len } => edit(disk, pick(*file), |bytes| bytes.resize(bytes.len() + usize::from(*len), 0)),
        Damage::Remove { file } => {
            let Some(name) = pick(*file) else { return false };
            disk.remove_file(&at(&name)).expect("it was listed");
            is_log(&name)
        }
        Damage::Suffix { file, suffix } => {
            let suffix = [".cleaned", ".swap", ".deleted", ".tmp"][usize::from(suffix % 4)];
            rename(disk, pick(*file), |name| format!("{name}{suffix}"))
        }
        Damage::Renumber { file, number } => rename(disk, pick(*file), |name| match name.split_once('.') {
            Some((_, kind)) => format!("{number:020}.{kind}"),
            None => format!("{name}-"),
        }),
        Damage::CopyOver { from, to } => {
            let (Some(from), Some(to)) = (pick(*from), pick(*to)) else { return false };
            let bytes = read(disk, &at(&from)).expect("it was listed");
            write(disk, &at(&to), &bytes);
            is_log(&to) && from != to
        }
        Damage::Reseal { log, batch, at, byte } => edit(disk, pick_log(*log), |bytes| reseal(bytes, *batch, *at, *byte)),
        Damage::Repeat { log, at, len } => edit(disk, pick_log(*log), |bytes| {
            let start = usize::from(*at) % (bytes.len() + 1);
            let end = (start + usize::from(*len)).min(bytes.len());
            bytes.extend_from_within(start..end);
        }),
        Damage::Checkpoint { which, offset } => {
            let name = CHECKPOINTS[usize::from(which % 4)];
            set_checkpoint(disk, name, u64::from(*offset));
            name == CHECKPOINTS[1]
        }
        Damage::Stray { name, bytes } => {
            let names = ["notes.txt", "00000000000000000007.log", "00000000000000000007.index", "00000000000000099999.log.swap", "x.swap"];
            let name = names[usize::from(*name) % names.len()];
            write(disk, &at(name), bytes);
            name.contains(".log")
        }
    }
}

fn at(name: &str) -> PathBuf {
    Path::new(LOG).join(name)
}

fn place(bytes: &mut [u8], at: u16) -> Option<&mut u8> {
    let len = bytes.len().max(1);
    bytes.get_mut(usize::from(at) % len)
}

fn edit(disk: &MemoryStorage, name: Option<String>, change: impl FnOnce(&mut Vec<u8>)) -> bool {
    let Some(name) = name else { return false };
    let before = read(disk, &at(&name)).expect("it was listed");
    let mut bytes = before.clone();
    change(&mut bytes);
    write(disk, &at(&name), &bytes);
    is_log(&name) && bytes != before
}

fn rename(disk: &MemoryStorage, name: Option<String>, change: impl FnOnce(&str) -> String) -> bool {
    let Some(name) = name else { return false };
    let to = change(&name);
    disk.rename(&at(&name), &at(&to)).expect("both are files");
    name != to && (is_log(&name) || is_log(&to) || to.contains(".log"))
}

/// Changes byte `at` of the header of a batch, and makes the checksum fit.
fn reseal(bytes: &mut [u8], batch: u8, at: u8, byte: u8) {
    let mut starts = Vec::new();
    let mut position = 0;
    while let Ok(header) = BatchHeader::parse(&bytes[position..])
        && position + header.size as usize <= bytes.len()
    {
        starts.push((position, header.size as usize));
        position += header.size as usize;
    }
    let Some(&(start, size)) = starts.get(usize::from(batch) % starts.len().max(1)) else { return };
    let entry = &mut bytes[start..start + size];
    entry[usize::from(at) % 61] = byte;
    let crc = crc32c::crc32c(&entry[21..]);
    entry[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn set_checkpoint(disk: &MemoryStorage, name: &str, offset: u64) {
    write(disk, &Path::new(DATA).join(name), format!("0\n1\nt 0 {offset}\n").as_bytes());
}

/// The directory after a clean close.
static CLOSED: LazyLock<MemoryStorage> = LazyLock::new(|| {
    let (disk, log) = build();
    log.close().expect("memory can be written");
    drop(log);
    disk.image()
});

/// The same after a crash at its end.
static KILLED: LazyLock<MemoryStorage> = LazyLock::new(|| {
    let (disk, log) = build();
    let image = disk.image();
    drop(log);
    image
});

/// What both hold.
static SOUND: LazyLock<Contents> = LazyLock::new(|| {
    let input = Input { closed: false, mode: 0, full_scan: true, recovery_point: None, damage: [const { None }; 4], append: false };
    Contents::of(&open(&KILLED.image(), &input).expect("an undamaged log opens"), &input, Faith::FULL)
});

/// Four segments with a bit of everything: plain and compressed batches, commits of offsets, a committed, an
/// aborted and an open transaction, an idempotent producer, tombstones, offsets with gaps.
fn build() -> (MemoryStorage, Log) {
    let disk = MemoryStorage::new();
    disk.set_now_ms(T0);
    disk.create_dir(Path::new(DATA)).expect("a new directory");
    let log = Log::open_with(Arc::new(disk.clone()), Path::new(LOG), small()).expect("a new log");
    for round in 0..12_u32 {
        for i in 0..5 {
            let key = format!("key-{:02}", (round * 5 + i) % 17);
            let record = if i == 4 { Record::tombstone(key) } else { Record::new(key, format!("value {round}.{i} {}", "x".repeat(40))) };
            log.append(&[record.timestamp_ms(T0 + i64::from(round))], Durability::Buffered).expect("a plain record");
        }
        let codec = Codec::from_bits((round % 5) as u8).expect("five codecs");
        let spec = BatchSpec { codec, producer_id: 7, producer_epoch: 0, base_sequence: (round * 8) as i32, ..BatchSpec::default() };
        log.append_batch(batch(spec, 8, round), Durability::Buffered).expect("the next batch of its producer");
        let id = 100 + i64::from(round % 3);
        let spec = BatchSpec {
            producer_id: id,
            producer_epoch: 1,
            base_sequence: (round / 3 * 2) as i32,
            transactional: true,
            ..BatchSpec::default()
        };
        log.append_batch(batch(spec, 2, round), Durability::Buffered).expect("the next batch of its producer");
        let result = if round % 2 == 0 { TxnResult::Aborted } else { TxnResult::Committed };
        if round < 11 {
            let end = TransactionEnd { producer_id: id, producer_epoch: 1, result, coordinator_epoch: 3 };
            log.end_transaction(&end, Durability::Buffered).expect("its transaction is open");
        }
    }
    log.sync().expect("memory can be synced");
    assert!(log.segments().all().len() >= 3 && log.last_stable_offset() < log.end_offset());
    (disk, log)
}

fn batch(spec: BatchSpec, records: u64, round: u32) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(spec);
    for i in 0..records {
        let (key, value) = upkeep::commit(round, (u64::from(round) + i) % 11);
        let timestamp = T0 + i64::from(round) * 10 + i as i64;
        writer.push(i, timestamp, Some(&key), Some(&value), &[]).expect("a small record");
    }
    let mut out = Vec::new();
    writer.finish(&mut out).expect("a small batch");
    out
}
