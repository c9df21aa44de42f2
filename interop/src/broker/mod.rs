//! A real broker over offset partitions that Keeplog wrote, and Keeplog over those that the broker wrote.

pub(crate) mod groups;
mod history;
mod live;
pub(crate) mod load;
mod ours;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use keeplog::CONSUMER_OFFSETS;
use keeplog::inspect::checkpoint::{read_offsets, write_offsets};
use keeplog::inspect::storage::RealStorage;

use self::live::{Broker, TransactionVersion, offsets_in};
use self::ours::Ours;
use crate::directory::{self, describe};
use crate::kafka::Kafka;
use crate::tally::{Row, Tally};

/// Partitions of the broker's `__consumer_offsets`.
const PARTITIONS: u32 = 4;
/// What a broker keeps beside the log of a partition, and knows the partition by.
const PARTITION_METADATA: &str = "partition.metadata";
/// What a data directory remembers of its partitions.
const CHECKPOINTS: [&str; 4] =
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", CLEANED];
const CLEANED: &str = "cleaner-offset-checkpoint";

/// The whole exchange, with one broker.
pub(crate) fn run(kafka: &Kafka) -> Result<Row> {
    let mut tally = Tally::new("broker");
    let work = tempfile::tempdir()?;
    let mut broker = Broker::new(kafka, work.path().join("broker"), TransactionVersion(2))?;

    // It has its partitions from the first commit on.
    broker.start()?;
    broker.bulk(40, 2, 3)?;
    broker.stop()?;

    let ours = work.path().join("ours");
    let known = history::write(&ours)?;
    replace_partitions(&broker.dir, &ours)?;
    broker.start()?;
    tally.judge("the broker over Keeplog's partitions, after a clean stop", &broker.expect(&known)?);

    broker.kill()?;
    broker.start()?;
    tally.judge("the broker over Keeplog's partitions, after a crash", &broker.expect(&known)?);

    broker.bulk(40, 2, 3)?;
    let answers = broker.answers()?;
    let cleaned_by_us = offsets_in(&ours, CLEANED)?;
    broker.wait_for_cleaning(&cleaned_by_us.iter().map(|offset| offset + 1).collect::<Vec<_>>())?;
    broker.stop()?;
    let mut found = Ours::over_copy(&broker.dir, &work.path().join("copy"), groups::DAY_MS)?.known()?.differences(&answers);
    let lost = known.committed.difference(&answers.committed).count();
    if lost > 0 || answers.committed.len() == known.committed.len() {
        found.push(format!("{} lines after {} and the broker's own commits, {lost} lost", answers.committed.len(), known.committed.len()));
    }
    tally.judge("Keeplog over the partitions of both, cleaned by the broker", &found);
    Ok(tally.finish(&format!("exchanges, {} committed offsets", known.committed.len())))
}

/// Puts our offset partitions in the place of the broker's, under the identity that they have for the broker.
fn replace_partitions(broker: &Path, ours: &Path) -> Result<()> {
    for partition in 0..PARTITIONS {
        let name = format!("{CONSUMER_OFFSETS}-{partition}");
        let target = broker.join(&name);
        for entry in fs::read_dir(&target).with_context(|| format!("the broker has no {}", target.display()))? {
            let entry = entry?;
            if entry.file_name() != PARTITION_METADATA {
                fs::remove_file(entry.path())?;
            }
        }
        directory::copy(&ours.join(&name), &target)?;
    }
    let storage = RealStorage::new();
    for checkpoint in CHECKPOINTS {
        let read = |dir: &Path| Ok::<_, anyhow::Error>(read_offsets(&storage, &dir.join(checkpoint)).map_err(describe)?.or_empty());
        let mut offsets = read(broker)?;
        offsets.retain(|name, _| name.topic() != CONSUMER_OFFSETS);
        offsets.extend(read(ours)?.into_iter().filter(|(name, _)| name.topic() == CONSUMER_OFFSETS));
        write_offsets(&storage, &broker.join(checkpoint), &offsets).map_err(describe)?;
    }
    Ok(())
}
