//! The cleaner's dedup set by itself, with more keys than a bench in a loop can have.

use std::sync::Arc;
use std::time::Duration;

use keeplog_benches::median;
use keeplog_benches::report::{Cell, Column, Report, Table, Taken};
use keeplog_cleaner::keys::{DedupSet, KeyHasher, Place, SEARCHES_AHEAD};
use keeplog_engine::storage::{RealStorage, Storage};
use serde::Serialize;

use crate::Outcome;
use crate::args::{Common, Dedup};

const ABOUT: &str = "The set of the keys seen so far, on one thread: every key is added once, and then again, as a pass does it (memory \
is asked for some searches ahead). Hashing is not counted. The set that grows is the one of a pass, which knows only how many records there are, here two of each key; the other one has all its memory from \
the start.";

/// Keys that are hashed at a time, before they are added.
const BLOCK: u64 = 1 << 16;
/// Spreads numbers without meeting one twice.
const PRIME: u64 = 1_000_000_007;

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Filled {
    ns_new: f64,
    ns_known: f64,
    bytes_per_key: f64,
}

/// Fills sets of each size.
pub(crate) fn run(args: &Dedup, common: &Common) -> Outcome<Report> {
    let mut report = Report::new("dedup", "The dedup set", ABOUT, Taken::now());
    let columns = vec![
        Column::number("keys", 0),
        Column::text("set"),
        Column::number("ns an insert, new", 1),
        Column::number("ns an insert, known", 1),
        Column::number("bytes a key", 1),
    ];
    let mut rows = Vec::new();
    for &keys in &args.keys {
        for grows in [true, false] {
            let name = if grows { "grows" } else { "of its size from the start" };
            let runs = (0..common.runs).map(|_| fill(keys, grows)).collect::<Outcome<Vec<Filled>>>()?;
            let of = |value: fn(&Filled) -> f64| Cell::from(Some(median(runs.iter().map(value))));
            rows.push(vec![
                Cell::Number(keys as f64),
                Cell::Text(name.to_owned()),
                of(|run| run.ns_new),
                of(|run| run.ns_known),
                of(|run| run.bytes_per_key),
            ]);
            report.runs.push(serde_json::json!({"keys": keys, "grows": grows, "runs": runs}));
        }
    }
    report.tables.push(Table { title: String::new(), columns, rows });
    Ok(report)
}

fn fill(keys: u64, grows: bool) -> Outcome<Filled> {
    let clock: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let hasher = KeyHasher::random();
    let began = clock.monotonic();
    let mut set = if grows { DedupSet::growing(2 * keys)? } else { DedupSet::with_capacity(keys)? };
    let made = clock.monotonic() - began;
    let mut round = |expected: bool| -> Outcome<Duration> {
        let mut time = Duration::ZERO;
        let mut places = Vec::with_capacity(BLOCK as usize);
        for first in (0..keys).step_by(BLOCK as usize) {
            places.clear();
            let block = first..(first + BLOCK).min(keys);
            places.extend(block.clone().map(|i| Place::new(hasher.hash(&(i * PRIME % keys).to_be_bytes()))));
            let began = clock.monotonic();
            let new = add(&mut set, &places)?;
            time += clock.monotonic() - began;
            if new != if expected { block.end - block.start } else { 0 } {
                return Err(format!("{new} of {} keys were new", block.end - block.start).into());
            }
        }
        Ok(time)
    };
    // Its memory is part of what a new key costs.
    let (new, known) = (made + round(true)?, round(false)?);
    let ns = |time: Duration| time.as_secs_f64() * 1e9 / keys as f64;
    Ok(Filled { ns_new: ns(new), ns_known: ns(known), bytes_per_key: set.bytes() as f64 / keys as f64 })
}

/// Adds keys as a pass does; returns how many were new.
fn add(set: &mut DedupSet, places: &[Place]) -> Outcome<u64> {
    let mut new = 0;
    for (i, &place) in places.iter().enumerate() {
        if let Some(&ahead) = places.get(i + SEARCHES_AHEAD) {
            set.prefetch(ahead);
        }
        new += u64::from(set.insert(place).map_err(|refused| format!("the set refused a key: {refused:?}"))?);
    }
    Ok(new)
}
