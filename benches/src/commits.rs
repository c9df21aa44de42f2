//! Commits and fetches of the offset store, beside the bare disk and, where they are given, other stores.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keeplog::{OffsetAndMetadata, OffsetOptions, OffsetStore, RequiredAcks, StoreOptions};
use keeplog_benches::median;
use keeplog_benches::report::{Cell, Column, Report, Table, Taken};
use keeplog_engine::record::Record;
use keeplog_engine::{Durability, Log, LogOptions};
use keeplog_fixtures::Dice;
use serde::{Deserialize, Serialize};

use crate::args::{Commits, Common};
use crate::latencies::Latencies;
use crate::{Outcome, work};

const ABOUT: &str = "Committed offsets in a store of four partitions, one offset a commit. Durable commits are acknowledged when they are on stable \
storage; the bare loop writes as many bytes to a file and calls `fdatasync`, and the log beneath takes appends of its own group commit. Fetches ask \
for places drawn evenly; a batch asks for 100 of one group. Other stores do what they offer for a durable write of one key, on the same disk in the same minutes.";

/// Bytes that one commit takes in a log, about.
const COMMIT_BYTES: usize = 117;
/// Commits of one thread that wait for their answers at a time.
const IN_FLIGHT: usize = 4096;
const PARTITIONS: i32 = 50;
const BATCH: usize = 100;

/// One run of one line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Rate {
    per_s: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

/// What is measured.
struct Line {
    name: String,
    threads: usize,
    run: Box<Measure>,
}

/// One run, in an empty directory.
type Measure = dyn Fn(&Path) -> Outcome<Rate>;

/// Measures every line as often as asked, in turn.
pub(crate) fn run(args: &Commits, common: &Common) -> Outcome<Report> {
    let mut report = Report::new("commits", "Commits and fetches", ABOUT, Taken::now());
    let lines = lines(args);
    let mut rates = vec![Vec::new(); lines.len()];
    for _ in 0..common.runs {
        for (line, rates) in lines.iter().zip(&mut rates) {
            let dir = work::directory(common)?;
            work::settle()?;
            rates.push((line.run)(dir.path())?);
        }
    }
    let columns = vec![
        Column::text("what"),
        Column::number("threads", 0),
        Column::number("a second", 0),
        Column::number("p50, us", 1),
        Column::number("p99, us", 1),
    ];
    let mut rows = Vec::new();
    for (line, rates) in lines.iter().zip(&rates) {
        let all = |of: fn(&Rate) -> Option<f64>| {
            let values: Vec<f64> = rates.iter().filter_map(of).collect();
            Cell::from((!values.is_empty()).then(|| median(values.into_iter())))
        };
        rows.push(vec![
            Cell::Text(line.name.clone()),
            Cell::Number(line.threads as f64),
            all(|rate| Some(rate.per_s)),
            all(|rate| rate.p50_us),
            all(|rate| rate.p99_us),
        ]);
        report.runs.push(serde_json::json!({"what": line.name, "threads": line.threads, "runs": rates}));
    }
    report.tables.push(Table { title: String::new(), columns, rows });
    Ok(report)
}

fn lines(args: &Commits) -> Vec<Line> {
    let (time, groups) = (Duration::from_secs_f64(args.seconds), args.groups);
    let mut lines = vec![line("write and fdatasync, a bare loop", 1, move |dir| bare(dir, time))];
    for threads in [1, 16] {
        lines.push(line("append to a log, synced", threads, move |dir| appends(dir, threads, time)));
        lines.push(line("commit, durable, blocking", threads, move |dir| blocking(dir, threads, groups, time)));
        for peer in &args.peer {
            let (script, seconds) = (peer.script.clone(), args.seconds);
            lines.push(line(&format!("{}: write, durable", peer.name), threads, move |dir| beside(&script, dir, threads, seconds)));
        }
    }
    lines.push(line("commit, durable, answered later", 1, move |dir| asynchronous(dir, groups, time)));
    for few in [10, 10_000] {
        lines.push(line(&format!("commit, written, {few} groups"), 1, move |dir| written(dir, few, time)));
        lines.push(line(&format!("fetch, one place, {few} groups"), 1, move |dir| fetches(dir, few, time, 1, false)));
    }
    lines.push(line(&format!("fetch, {BATCH} places at a time, places"), 1, move |dir| fetches(dir, 10_000, time, BATCH, false)));
    lines.push(line("fetch, one place, beside commits at full rate", 1, move |dir| fetches(dir, 10_000, time, 1, true)));
    lines.retain(|line| line.name.contains(&args.only));
    lines
}

fn line(name: &str, threads: usize, run: impl Fn(&Path) -> Outcome<Rate> + 'static) -> Line {
    Line { name: name.to_owned(), threads, run: Box::new(run) }
}

/// What a disk gives to a single thread.
fn bare(dir: &Path, time: Duration) -> Outcome<Rate> {
    let mut file = File::create(dir.join("file"))?;
    let bytes = [7; COMMIT_BYTES];
    on_threads(1, time, |_, _| {
        (&file).write_all(&bytes)?;
        Ok(file.sync_data()?)
    })
    .inspect(|_| _ = file.flush())
}

fn appends(dir: &Path, threads: usize, time: Duration) -> Outcome<Rate> {
    let log = Log::open(dir.join("bench-0"), LogOptions::new())?;
    on_threads(threads, time, |thread, number| {
        let record = Record::new(format!("group-{thread}"), vec![7; COMMIT_BYTES - 61 - 25]).timestamp_ms(number as i64);
        Ok(log.append(&[record], Durability::Synced).map(|_| ())?)
    })
}

fn open(dir: &Path, acks: RequiredAcks) -> Outcome<OffsetStore> {
    let options = OffsetOptions::new().offsets_commit_required_acks(acks).store(StoreOptions::new().log_cleaner_enable(false));
    Ok(OffsetStore::open(dir, options)?)
}

fn blocking(dir: &Path, threads: usize, groups: u32, time: Duration) -> Outcome<Rate> {
    let store = open(dir, RequiredAcks::Synced)?;
    let names = names(groups);
    on_threads(threads, time, |thread, number| {
        let at = (thread + number as usize * 17) % names.len();
        Ok(store.commit(&names[at], &[("topic", number as i32 % PARTITIONS, OffsetAndMetadata::new(number))])?)
    })
}

/// Without waiting, but for what has been under way for long.
fn asynchronous(dir: &Path, groups: u32, time: Duration) -> Outcome<Rate> {
    let store = open(dir, RequiredAcks::Synced)?;
    let names = names(groups);
    let answered = AtomicU64::new(0);
    let mut waiting = std::collections::VecDeque::with_capacity(IN_FLIGHT);
    let rate = on_one(time, |number| {
        let name = &names[number as usize % names.len()];
        waiting.push_back(store.commit_async(name, &[("topic", number as i32 % PARTITIONS, OffsetAndMetadata::new(number))]));
        if waiting.len() == IN_FLIGHT {
            waiting.drain(..IN_FLIGHT / 2).try_for_each(keeplog::Pending::wait)?;
            answered.fetch_add(IN_FLIGHT as u64 / 2, Ordering::Relaxed);
        }
        Ok(())
    })?;
    waiting.into_iter().try_for_each(keeplog::Pending::wait)?;
    Ok(Rate { p50_us: None, p99_us: None, ..rate })
}

fn written(dir: &Path, groups: u32, time: Duration) -> Outcome<Rate> {
    let store = open(dir, RequiredAcks::Written)?;
    let names = names(groups);
    let rate = on_one(time, |number| {
        let name = &names[number as usize % names.len()];
        Ok(store.commit(name, &[("topic", number as i32 % PARTITIONS, OffsetAndMetadata::new(number))])?)
    })?;
    Ok(Rate { p50_us: None, p99_us: None, ..rate })
}

fn fetches(dir: &Path, groups: u32, time: Duration, batch: usize, beside_commits: bool) -> Outcome<Rate> {
    let store = open(dir, RequiredAcks::Written)?;
    let names = names(groups);
    for name in &names {
        let all: Vec<_> = (0..PARTITIONS).map(|partition| ("topic", partition, OffsetAndMetadata::new(5))).collect();
        store.commit(name, &all)?;
    }
    store.flush()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = beside_commits.then(|| {
            scope.spawn(|| -> keeplog::Result<()> {
                for number in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    store.commit(&names[number as usize % names.len()], &[("topic", 1, OffsetAndMetadata::new(number))])?;
                }
                Ok(())
            })
        });
        let mut dice = Dice::new(7);
        let mut wanted = Vec::with_capacity(batch);
        let rate = on_one(time, |_| {
            wanted.clear();
            wanted.extend((0..batch).map(|_| ("topic", dice.roll(PARTITIONS as u64) as i32)));
            let found = store.fetch(&names[dice.roll(names.len() as u64) as usize], &wanted)?;
            if found.iter().any(Option::is_none) { Err("a commit is not there".into()) } else { Ok(()) }
        });
        stop.store(true, Ordering::Relaxed);
        if let Some(writer) = writer {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(Rate { per_s: rate?.per_s * batch as f64, p50_us: None, p99_us: None })
    })
}

fn beside(program: &Path, dir: &Path, threads: usize, seconds: f64) -> Outcome<Rate> {
    let output = Command::new(program).arg(dir).args([threads.to_string(), seconds.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("{} ended with {}: {}", program.display(), output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn names(groups: u32) -> Vec<String> {
    (0..groups).map(|group| format!("group-{group}")).collect()
}

/// Calls `act` with the number of the call for so long.
fn on_one(time: Duration, mut act: impl FnMut(u64) -> Outcome<()>) -> Outcome<Rate> {
    let began = Instant::now();
    let mut count = 0_u64;
    // A look at the clock is not for free beside 200 ns.
    while !count.is_multiple_of(64) || began.elapsed() < time {
        act(count)?;
        count += 1;
    }
    Ok(Rate { per_s: count as f64 / began.elapsed().as_secs_f64(), p50_us: None, p99_us: None })
}

/// Calls `act` with the number of the thread and of the call, on so many threads for so long.
fn on_threads(threads: usize, time: Duration, act: impl Fn(usize, u64) -> Outcome<()> + Sync) -> Outcome<Rate> {
    let (latencies, began) = (Latencies::new(), Instant::now());
    let work = |thread: usize| -> Result<u64, String> {
        let mut count = 0;
        while began.elapsed() < time {
            let before = Instant::now();
            act(thread, count).map_err(|error| error.to_string())?;
            latencies.note(before.elapsed());
            count += 1;
        }
        Ok(count)
    };
    let count = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        all.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?).sum::<Result<u64, String>>()
    })?;
    let taken = latencies.take();
    let per_s = count as f64 / began.elapsed().as_secs_f64();
    Ok(Rate { per_s, p50_us: taken.at_us(0.5), p99_us: taken.at_us(0.99) })
}
