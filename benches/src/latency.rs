//! Appends while a pass runs over the same log, against appends while none does.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keeplog::{Store, StoreOptions};
use keeplog_benches::median;
use keeplog_benches::report::{Cell, Column, Report, Table, Taken};
use keeplog_engine::record::Record;
use keeplog_engine::{Durability, Log};
use serde_json::{Value, json};

use crate::append::ready;
use crate::args::{Common, Latency};
use crate::{Outcome, work};

const ABOUT: &str = "One writer appends to a log of a store, before, while and after the store cleans that same log (its sealed \
segments). Buffered appends come at a given rate, a bunch of them every millisecond; synced ones one after the other, as fast as the disk \
lets them. What is measured is how long each call takes. Medians of the percentiles of all runs.";

/// How often a bunch of buffered appends is due.
const TICK: Duration = Duration::from_millis(1);

/// Waits of one part of a run.
struct Waits {
    /// Rising.
    waits: Vec<Duration>,
    /// How far the writer was behind its rate at the most.
    behind: Duration,
}

/// A run: without a pass, and during one.
struct Pair {
    idle: Waits,
    busy: Waits,
    pass_seconds: f64,
}

/// Both kinds of appends.
pub(crate) fn run(args: &Latency, common: &Common) -> Outcome<Report> {
    let mut report = Report::new("latency", "Appends while the cleaner works", ABOUT, Taken::now());
    let dir = work::directory(common)?;
    let source = dir.path().join("source");
    let shape = args.shape.shape();
    let log = Log::open(source.join("bench-0"), shape.log_options())?;
    shape.write(&log)?;
    log.close()?;

    let per_tick = (args.records_per_s / 1000 / shape.records_per_batch).max(1);
    let mut rows = Vec::new();
    for durability in [Durability::Buffered, Durability::Synced] {
        let copy = dir.path().join("copy");
        let mut pairs = Vec::new();
        for _ in 0..common.runs {
            work::copy(&source, &copy)?;
            pairs.push(once(&copy, durability, per_tick, args)?);
            fs::remove_dir_all(&copy)?;
        }
        let name = match durability {
            Durability::Buffered => {
                let records_per_s = u64::from(per_tick) * u64::from(shape.records_per_batch) * 1000;
                format!("buffered, {} records/s", keeplog_benches::suite::thousands(records_per_s))
            }
            Durability::Synced => "synced, one after the other".to_owned(),
        };
        report.runs.push(json!({"name": name, "runs": pairs.iter().map(Pair::json).collect::<Vec<_>>()}));
        rows.push(row(name, &pairs));
    }
    let mut columns = vec![Column::text("Appends")];
    columns.extend(["p50", "p99", "p99.9"].map(|share| Column::number(format!("{share} without a pass, us"), 1)));
    columns.extend(["p50", "p99", "p99.9"].map(|share| Column::number(format!("{share} during one, us"), 1)));
    columns.extend([Column::number("p99 : p99", 2), Column::number("appends during one", 0), Column::number("pass, s", 2)]);
    columns.push(Column::number("behind the rate, at most, ms", 1));
    report.tables.push(Table { title: String::new(), columns, rows });
    Ok(report)
}

fn once(dir: &Path, durability: Durability, per_tick: u32, args: &Latency) -> Outcome<Pair> {
    let shape = args.shape.shape();
    // The pass is begun by hand, so that it is known when one runs.
    let options = StoreOptions::new().log(shape.log_options()).log_cleaner_threads(args.threads).log_cleaner_enable(false);
    let store = Store::open(dir, options)?;
    let log = store.log("bench", 0)?;
    let batches = ready(shape);
    work::settle()?;

    let half = Duration::from_secs_f64(args.seconds / 2.0);
    let (clock, never) = (log.storage(), AtomicBool::new(false));
    let mut writer = Writer { log: &log, batches: &batches, durability, per_tick };
    writer.write(half / 10, &never)?; // files and caches at hand
    let mut idle = writer.write(half, &never)?;

    let ended = AtomicBool::new(false);
    let (busy, pass) = std::thread::scope(|scope| -> Outcome<_> {
        let pass = scope.spawn(|| {
            let began = clock.monotonic();
            let pass = store.clean(&log);
            ended.store(true, Ordering::Release);
            pass.map(|report| (report, (clock.monotonic() - began).as_secs_f64()))
        });
        let busy = writer.write(Duration::MAX, &ended)?;
        Ok((busy, pass.join().map_err(|_| "the pass panicked")??))
    })?;
    let (report, pass_seconds) = pass;
    if report.bytes_kept >= report.bytes_read {
        return Err("the pass had nothing to do".into());
    }
    idle.add(writer.write(half, &never)?);
    store.close()?;
    Ok(Pair { idle, busy, pass_seconds })
}

/// Appends to a log, and takes the time of each.
struct Writer<'l> {
    log: &'l Log,
    batches: &'l [Vec<Record>],
    durability: Durability,
    /// Buffered appends every [`TICK`].
    per_tick: u32,
}

impl Writer<'_> {
    /// Until `time` is over or `ended` is set, but at least once.
    fn write(&mut self, time: Duration, ended: &AtomicBool) -> Outcome<Waits> {
        let clock = self.log.storage();
        let began = clock.monotonic();
        let mut found = Waits { waits: Vec::new(), behind: Duration::ZERO };
        let mut batches = self.batches.iter().cycle();
        let mut due = began;
        loop {
            let bunch = if self.durability == Durability::Buffered { self.per_tick } else { 1 };
            for batch in batches.by_ref().take(bunch as usize) {
                let before = clock.monotonic();
                self.log.append(batch, self.durability)?;
                found.waits.push(clock.monotonic() - before);
            }
            let now = clock.monotonic();
            if ended.load(Ordering::Acquire) || now - began >= time {
                break;
            }
            if self.durability == Durability::Buffered {
                due += TICK;
                match due.checked_sub(now) {
                    Some(rest) => std::thread::sleep(rest),
                    None => found.behind = found.behind.max(now - due),
                }
            }
        }
        found.waits.sort_unstable();
        Ok(found)
    }
}

impl Waits {
    fn add(&mut self, other: Self) {
        self.waits.extend(other.waits);
        self.waits.sort_unstable();
        self.behind = self.behind.max(other.behind);
    }

    /// The wait that a share of all do not exceed, microseconds.
    fn us(&self, share: f64) -> f64 {
        let at = (self.waits.len() as f64 * share) as usize;
        self.waits.get(at).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e6)
    }

    fn json(&self) -> Value {
        json!({
            "appends": self.waits.len(),
            "p50_us": self.us(0.5),
            "p99_us": self.us(0.99),
            "p999_us": self.us(0.999),
            "max_us": self.waits.last().map(|wait| wait.as_secs_f64() * 1e6),
            "behind_ms": self.behind.as_secs_f64() * 1e3,
        })
    }
}

impl Pair {
    fn json(&self) -> Value {
        json!({"idle": self.idle.json(), "busy": self.busy.json(), "pass_seconds": self.pass_seconds})
    }
}

fn row(name: String, pairs: &[Pair]) -> Vec<Cell> {
    let of = |value: &dyn Fn(&Pair) -> f64| Cell::from(Some(median(pairs.iter().map(value))));
    let mut row = vec![Cell::Text(name)];
    for share in [0.5, 0.99, 0.999] {
        row.push(of(&|pair| pair.idle.us(share)));
    }
    for share in [0.5, 0.99, 0.999] {
        row.push(of(&|pair| pair.busy.us(share)));
    }
    row.push(of(&|pair| pair.busy.us(0.99) / pair.idle.us(0.99)));
    row.push(of(&|pair| pair.busy.waits.len() as f64));
    row.push(of(&|pair| pair.pass_seconds));
    row.push(of(&|pair| pair.busy.behind.as_secs_f64() * 1e3));
    row
}
