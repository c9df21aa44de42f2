//! Live brokers that are filled with groups of every kind: what Keeplog finds in their partitions is what they answered, as they lie
//! there, after a pass of ours, and after one of Kafka's; and a broker over what we cleaned answers as before.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

use super::live::{Broker, Known, TransactionVersion, offsets_in};
use super::ours::Ours;
use super::replace_partitions;
use crate::kafka::Kafka;
use crate::tally::{Row, Tally};
use crate::workers::Case;
use crate::{Seeds, keeping, workers};

/// Codecs of a broker's offsets topic, by their ids.
const CODECS: u64 = 5;
/// End of each partition, up to which all replicas have it.
const ENDS: &str = "replication-offset-checkpoint";
pub(super) const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A broker for each seed.
pub(crate) fn run(kafka: &Kafka, seeds: &Seeds) -> Row {
    let mut tally = Tally::new("groups");
    let counts = Counts::default();
    workers::each(&seeds.range, seeds.jobs, &mut tally, |seed| {
        keeping(seeds, "groups", seed, |root| Exchange { kafka, root, seed, counts: &counts }.run())
    });
    let [committed, groups, gone] = [&counts.committed, &counts.groups, &counts.gone].map(|count| count.load(Ordering::Relaxed));
    tally.finish(&format!("{committed} committed offsets and {groups} groups and members compared, {gone} records cleaned away"))
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    groups: AtomicU64,
    gone: AtomicU64,
}

struct Exchange<'a> {
    kafka: &'a Kafka,
    root: &'a Path,
    seed: u64,
    counts: &'a Counts,
}

impl Exchange<'_> {
    fn run(&self) -> Result<Vec<Case>> {
        let mut broker = Broker::new(self.kafka, self.root.join("broker"), TransactionVersion((self.seed % 3) as u8))?;
        broker.set(&[&format!("offsets.topic.compression.codec={}", self.seed % CODECS)])?;
        if self.cleans_meanwhile() {
            broker.set(&["log.roll.ms=300"])?;
        }
        broker.start()?;
        broker.ask("fill", &[("seed", &self.seed)])?;
        let filled = broker.answers()?;
        broker.stop()?;
        broker.ask("dismiss", &[])?;
        let (committed, groups) = (filled.committed.len(), filled.groups.len());
        ensure!(committed > 100 && groups > 10, "the broker knows but {committed} offsets, {groups} groups and members");

        let (mut cases, ours) = self.judge_copy("filled", &broker, &filled)?;

        let to = offsets_in(&broker.dir, ENDS)?;
        broker.set(&["log.roll.ms=100", "log.cleaner.delete.retention.ms=0"])?;
        broker.start()?;
        broker.ask("settle", &[])?;
        broker.bulk(40, 2, 4)?;
        broker.wait_for_cleaning(&to)?;
        let answers = broker.answers()?;
        broker.stop()?;
        cases.push(Case::new("what Kafka keeps", lost(&filled, &answers)));
        cases.extend(self.judge_copy("cleaned by Kafka", &broker, &answers)?.0);

        replace_partitions(&broker.dir, &ours)?;
        broker.start()?;
        cases.push(Case::new("the broker over what Keeplog cleaned", broker.expect(&filled)?));
        broker.stop()?;
        Ok(cases)
    }

    /// Rolled and cleaned by the broker while it is filled.
    fn cleans_meanwhile(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    /// What a store over a copy of the broker's partitions knows, before and after it has cleaned them. Returns the copy, too.
    fn judge_copy(&self, state: &str, broker: &Broker<'_>, theirs: &Known) -> Result<(Vec<Case>, PathBuf)> {
        let copy = self.root.join(state);
        let ours = Ours::over_copy(&broker.dir, &copy, if self.cleans_meanwhile() { DAY_MS } else { 0 })?;
        let mut cases = vec![Case::new(state, ours.known()?.differences(theirs))];
        // The second pass takes what the first has given a delete horizon.
        for pass in 1..=2 {
            let gone = ours.clean()?;
            ensure!(gone > 0 || pass > 1, "nothing was cleaned away");
            self.counts.gone.fetch_add(gone, Ordering::Relaxed);
            cases.push(Case::new(format!("{state}, after pass {pass} of ours"), ours.known()?.differences(theirs)));
        }
        ours.close()?;
        let counted = cases.len() as u64;
        self.counts.committed.fetch_add(theirs.committed.len() as u64 * counted, Ordering::Relaxed);
        self.counts.groups.fetch_add(theirs.groups.len() as u64 * counted, Ordering::Relaxed);
        Ok((cases, copy))
    }
}

/// What is not committed any more.
fn lost(before: &Known, after: &Known) -> Vec<String> {
    before.committed.difference(&after.committed).map(|line| format!("the broker has lost {line}")).collect()
}
