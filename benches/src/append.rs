//! Appends: buffered and synced, by one writer and by sixteen.

use std::time::Instant;

use keeplog::{Durability, Log, LogOptions, Record};

use crate::options::Options;
use crate::report::{Figure, print};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (dir, _guard) = options.work_dir()?;
    let cases = [
        ("buffered, 1 writer, 100 a batch", Durability::Buffered, 1, 100, options.records),
        ("buffered, 1 writer, 1 a batch", Durability::Buffered, 1, 1, options.records),
        ("synced, 1 writer, 1 a batch", Durability::Synced, 1, 1, options.records / 100),
        ("synced, 16 writers, 1 a batch", Durability::Synced, 16, 1, options.records / 10),
    ];
    let mut figures = Vec::new();
    for (name, durability, writers, batch, records) in cases {
        let mut figure = Figure { name: name.into(), seconds: Vec::new(), bytes: 0, records: 0, note: String::new() };
        for run in 0..options.runs {
            let path = dir.join(format!("append-{run}")).join("bench-0");
            let log = Log::open(&path, LogOptions::new().segment_bytes(options.segment_mib << 20))?;
            let began = Instant::now();
            std::thread::scope(|scope| {
                let write = |writer: u64| write(&log, durability, writer, batch, records / writers);
                let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
                threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a writer panicked")?)
            })?;
            figure.seconds.push(began.elapsed().as_secs_f64());
            figure.bytes = log.segments().all().iter().map(|s| s.size_bytes()).sum();
            figure.records = log.end_offset();
            log.close()?;
            std::fs::remove_dir_all(dir.join(format!("append-{run}")))?;
        }
        figures.push(figure);
    }
    print(&figures, options.json);
    Ok(())
}

fn write(log: &Log, durability: Durability, writer: u64, batch: u64, records: u64) -> Result<(), Failure> {
    let mut at = 0;
    while at < records {
        let records: Vec<_> = (at..at + batch).map(|i| Record::new(format!("key-{writer}-{:06}", i % 10_000), vec![b'v'; 100])).collect();
        log.append(&records, durability)?;
        at += batch;
    }
    Ok(())
}
