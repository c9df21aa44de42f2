//! `keeplog bench`: what this machine does, on data made for it.
//!
//! The log is of the same kind as those of the benches (`benches/src/shape.rs`): keys drawn evenly, values a quarter of which is
//! random. The crate of the benches itself is for those who develop Keeplog, and needs more than a command should.

use std::sync::Arc;

use serde::Serialize;

use crate::Status;
use crate::args::{self, Bench};
use crate::door::cleaner::{self, CleanOptions};
use crate::door::record::{BatchSpec, BatchWriter};
use crate::door::{Durability, Log, LogOptions, Storage};
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::pass::{self, Bound, PassBar, Passed};
use crate::progress::Progress;
use crate::signals::Temporary;

const NAME: &str = "bench-0";
const SEGMENT_BYTES: u32 = 10 << 20;
const RECORDS_PER_BATCH: u32 = 100;
const VALUE_BYTES: usize = 100;

/// The pass over the log, and what it was a pass over.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    pass: Passed,
    records_per_second: f64,
    threads: usize,
    /// Keys that records were drawn from.
    keys: u32,
    /// How long it took to make the log.
    make_seconds: f64,
}

pub(crate) fn run(command: &Bench, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    match command {
        Bench::Clean(args) => clean(args, storage),
    }
}

fn clean(args: &args::BenchClean, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let made = Temporary::new("keeplog-bench-");
    let dir = made.map_err(|e| Failure::new("could not create a temporary directory").caused_by(&e).advise("set TMPDIR"))?;
    let options = LogOptions::new().segment_bytes(SEGMENT_BYTES);
    let log = Log::open_with(Arc::clone(storage), &dir.path().join(NAME), options)?;
    let started = storage.monotonic();
    make(&log, args, &**storage)?;
    let make_seconds = storage.monotonic().saturating_sub(started).as_secs_f64();

    let threads = args.threads.map_or_else(pass::threads, usize::from);
    let options = CleanOptions::for_log(log.options(), storage.now_ms()).dedupe_buffer_bytes(pass::DEDUPE_BUFFER_BYTES).threads(threads);
    let bar = PassBar::new(&**storage, "compacting");
    let report = cleaner::clean(&log, &options, &bar)?;
    drop(bar);
    let bound = Bound::of(&log, None);
    log.close()?;
    let records_per_second = if report.seconds > 0.0 { report.records_read as f64 / report.seconds } else { 0.0 };
    let pass = Passed::new(NAME, &report, bound);
    let measured = Measured { pass, records_per_second, threads, keys: args.keys, make_seconds };
    let mut out = Out::new();
    if args.json {
        out.json(&measured)?;
    } else {
        out.text(&text(&measured))?;
    }
    out.flush()?;
    Ok(Status::Fine)
}

/// Fills `log` with whole sealed segments, all of it on stable storage.
fn make(log: &Log, args: &args::BenchClean, storage: &dyn Storage) -> Result<(), Failure> {
    let total = args.mib << 20;
    let mut progress = Progress::new(storage, "making a log", total);
    let mut random = Random(1);
    let mut writer = BatchWriter::new();
    let (mut batch, mut value) = (Vec::new(), [0; VALUE_BYTES]);
    let (mut bytes, mut offset) = (0, 0);
    while bytes < total {
        batch.clear();
        writer.begin(BatchSpec { base_offset: offset, leader_epoch: 0, ..BatchSpec::default() });
        for _ in 0..RECORDS_PER_BATCH {
            let number = random.below(args.keys);
            let key = format!("group-{:05}:topic-{:03}:{:03}", number / 1000, number / 50 % 20, number % 50);
            random.fill(&mut value);
            let pushed = writer.push(offset, log.storage().now_ms(), Some(key.as_bytes()), Some(&value), &[]);
            pushed.map_err(|e| Failure::new("could not make a record").caused_by(&e))?;
            offset += 1;
        }
        writer.finish(&mut batch).map_err(|e| Failure::new("could not make a batch").caused_by(&e))?;
        log.append_as_follower(&batch, Durability::Buffered)?;
        bytes += batch.len() as u64;
        progress.add(batch.len() as u64);
    }
    log.roll()?;
    log.sync()?;
    Ok(())
}

/// The same numbers each time (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// A quarter of `value` is random bytes, the rest are letters.
    fn fill(&mut self, value: &mut [u8]) {
        let (raw, letters) = value.split_at_mut(value.len() / 4);
        for part in raw.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
        for part in letters.chunks_mut(8) {
            for (byte, random) in part.iter_mut().zip(self.next().to_le_bytes()) {
                *byte = b'a' + (random & 7);
            }
        }
    }
}

fn text(measured: &Measured) -> String {
    let m = measured;
    let speed = format!(
        "  speed     {:.1} MB/s, {} records/s on {}\n",
        m.pass.bytes_per_second / 1e6,
        output::count(m.records_per_second as u64),
        output::counted(m.threads as u64, "thread", "threads"),
    );
    let made =
        format!("  made      a log of {} keys in {}; it is removed again\n", output::count(m.keys.into()), output::seconds(m.make_seconds));
    format!("{}{speed}{made}", m.pass.text())
}
