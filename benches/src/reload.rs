//! Loading the offset cache after a restart, from a log as it was written and from one that was cleaned.

use std::time::Instant;

use keeplog::{Durability, OffsetAndMetadata, OffsetOptions, OffsetStore, StoreOptions};

use crate::options::Options;
use crate::report::{Figure, print};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PARTITIONS_A_COMMIT: u64 = 20;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (dir, _guard) = options.work_dir()?;
    let store = StoreOptions::new().log_cleaner_enable(false);
    let settings =
        OffsetOptions::new().durability(Durability::Buffered).offsets_topic_segment_bytes(options.segment_mib << 20).store(store);
    let offsets = OffsetStore::open(&dir, settings.clone())?;
    let groups = options.keys.div_ceil(PARTITIONS_A_COMMIT).max(1);
    for n in 0..options.commits.div_ceil(PARTITIONS_A_COMMIT) {
        let commit: Vec<_> = (0..PARTITIONS_A_COMMIT).map(|p| ("orders", p as i32, OffsetAndMetadata::new(n * 10 + p))).collect();
        // A prime step: consecutive commits are those of different groups.
        offsets.commit(&format!("group-{:07}", n * 7919 % groups), &commit)?;
    }
    let mut figures = vec![measure("as written", &offsets, options)?];
    for log in offsets.store().logs() {
        log.roll()?;
        offsets.store().clean(&log)?;
    }
    figures.push(measure("cleaned", &offsets, options)?);
    offsets.close()?;
    print(&figures, options.json);
    Ok(())
}

fn measure(name: &str, offsets: &OffsetStore, options: &Options) -> Result<Figure, Failure> {
    let mut figure = Figure { name: format!("reload, {name}"), seconds: Vec::new(), bytes: 0, records: 0, note: String::new() };
    for _ in 0..options.runs {
        let began = Instant::now();
        let report = offsets.reload()?;
        figure.seconds.push(began.elapsed().as_secs_f64());
        (figure.bytes, figure.records) = (report.bytes, report.records);
        figure.note = format!("{} entries", report.entries);
    }
    Ok(figure)
}
