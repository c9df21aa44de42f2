//! Write amplification: how much a pass writes over a large clean log with a little that is new, against what it has to.

use std::collections::BTreeSet;
use std::path::Path;

use keeplog_benches::report::{Cell, Column, Report, Table, Taken};
use keeplog_benches::{T0, key};
use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::record::{BatchSpec, BatchWriter};
use keeplog_engine::{Durability, Log, LogOptions};
use serde_json::json;

use crate::args::{Amplification, Common};
use crate::{Outcome, work};

const ABOUT: &str = "A log of keys that occur once, as a pass leaves it, and behind it new records of one key in a hundred; one pass \
over both. Only segments that hold a record which is replaced have to be written again; the bytes of those are what the bytes written are \
compared with. In one run the keys lie anywhere, so that every segment loses something, in the other they are neighbours.";

const RECORDS_PER_BATCH: u64 = 100;
const VALUE: [u8; 100] = [b'v'; 100];
/// What a record takes of a large batch.
const RECORD_BYTES: u64 = 133;
/// One key in so many is written again.
const KEYS_PER_TOUCHED: u64 = 100;
/// Spreads numbers without meeting one twice.
const PRIME: u64 = 1_000_000_007;

/// Which keys are written again.
#[derive(Clone, Copy)]
enum Touched {
    Anywhere,
    Neighbours,
}

/// What a pass wrote.
struct Written {
    clean_bytes: u64,
    dirty_bytes: u64,
    /// Of the segments that lost something.
    must_bytes: u64,
    bytes: u64,
    seconds: f64,
}

/// One pass over each log.
pub(crate) fn run(args: &Amplification, common: &Common) -> Outcome<Report> {
    let mut report = Report::new("amplification", "Write amplification", ABOUT, Taken::now());
    let columns = vec![
        Column::text("keys written again"),
        Column::number("clean, MB", 0),
        Column::number("dirty, MB", 1),
        Column::number("segments that lose something, MB", 1),
        Column::number("written, MB", 1),
        Column::number("written : what had to be", 2),
        Column::number("seconds", 2),
    ];
    let mut rows = Vec::new();
    for (name, touched) in [("anywhere", Touched::Anywhere), ("neighbours", Touched::Neighbours)] {
        let w = once(touched, args, common)?;
        let mb = |bytes: u64| Cell::Number(bytes as f64 / 1e6);
        let ratio = Cell::from(Some(w.bytes as f64 / w.must_bytes as f64));
        rows.push(vec![
            Cell::Text(name.to_owned()),
            mb(w.clean_bytes),
            mb(w.dirty_bytes),
            mb(w.must_bytes),
            mb(w.bytes),
            ratio,
            Cell::Number(w.seconds),
        ]);
        report.runs.push(json!({"touched": name, "clean_bytes": w.clean_bytes, "dirty_bytes": w.dirty_bytes,
            "must_bytes": w.must_bytes, "written_bytes": w.bytes, "seconds": w.seconds}));
    }
    report.tables.push(Table { title: String::new(), columns, rows });
    if args.scale < 1.0 {
        report.notes.push(format!("The log is {} times the size of the one to be quoted.", args.scale));
    }
    Ok(report)
}

fn once(touched: Touched, args: &Amplification, common: &Common) -> Outcome<Written> {
    let dir = work::directory(common)?;
    let keys = ((10_u64 << 30) as f64 * args.scale) as u64 / RECORD_BYTES;
    let keys = keys.max(KEYS_PER_TOUCHED * RECORDS_PER_BATCH);
    let log = make(&dir.path().join("bench-0"), keys, touched, args)?;
    work::settle()?;

    // The offset of a key's first record is its number.
    let replaced: Vec<u64> = touched_keys(keys, touched).collect();
    let set = log.segments();
    let clean: Vec<_> = set.sealed().iter().filter(|segment| segment.base_offset() < keys).collect();
    let clean_bytes = clean.iter().map(|segment| segment.size_bytes()).sum();
    let sealed_bytes: u64 = set.sealed().iter().map(|segment| segment.size_bytes()).sum();
    let losing: BTreeSet<u64> =
        replaced.iter().map(|offset| clean[clean.partition_point(|segment| segment.base_offset() <= *offset) - 1].base_offset()).collect();
    let must_bytes = clean.iter().filter(|segment| losing.contains(&segment.base_offset())).map(|segment| segment.size_bytes()).sum();

    let options = CleanOptions::for_log(log.options(), T0).first_dirty(keys).threads(args.threads);
    let pass = clean_once(&log, &options)?;
    // One record of each key is left, and no other.
    if pass.records_kept != keys {
        return Err(format!("{} records survived of {keys} keys", pass.records_kept).into());
    }
    let (bytes, seconds) = (pass.bytes_written, pass.seconds);
    drop(set);
    log.close()?;
    Ok(Written { clean_bytes, dirty_bytes: sealed_bytes - clean_bytes, must_bytes, bytes, seconds })
}

fn clean_once(log: &Log, options: &CleanOptions) -> Outcome<keeplog_cleaner::CleanReport> {
    let pass = clean(log, options, &())?;
    if pass.new_dirty == pass.first_uncleanable { Ok(pass) } else { Err("the keys did not fit into one pass".into()) }
}

/// Every key once, a segment's end, those that are touched once more, and a last record in the active segment.
fn make(path: &Path, keys: u64, touched: Touched, args: &Amplification) -> Outcome<Log> {
    let log = Log::open(path, LogOptions::new().segment_bytes(args.segment_mib << 20))?;
    let (mut writer, mut batch, mut offset) = (BatchWriter::new(), Vec::new(), 0);
    let mut write = |numbers: &mut dyn Iterator<Item = u64>| -> Outcome<()> {
        let mut numbers = numbers.peekable();
        while numbers.peek().is_some() {
            batch.clear();
            writer.begin(BatchSpec { base_offset: offset, leader_epoch: 0, ..BatchSpec::default() });
            for number in numbers.by_ref().take(RECORDS_PER_BATCH as usize) {
                writer.push(offset, T0, Some(key(u32::try_from(number)?).as_bytes()), Some(&VALUE), &[])?;
                offset += 1;
            }
            writer.finish(&mut batch)?;
            log.append_as_follower(&batch, Durability::Buffered)?;
        }
        Ok(())
    };
    write(&mut (0..keys))?;
    log.roll()?;
    write(&mut touched_keys(keys, touched))?;
    log.roll()?;
    write(&mut std::iter::once(0))?;
    log.sync()?;
    Ok(log)
}

fn touched_keys(keys: u64, touched: Touched) -> Box<dyn Iterator<Item = u64>> {
    let count = keys / KEYS_PER_TOUCHED;
    match touched {
        Touched::Anywhere => Box::new((0..count).map(move |i| i * PRIME % keys)),
        Touched::Neighbours => Box::new(keys / 2..keys / 2 + count),
    }
}
