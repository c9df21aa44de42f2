//! Logs that began in the formats v0 and v1: written by a Kafka that still writes them, cleaned by it, by today's and by Keeplog.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::clean::dump_by_kafka;
use crate::directory::{self, PARTITION};
use crate::dump;
use crate::kafka::Kafka;
use crate::pass::{self, Counts, Grown};
use crate::tally::{Row, Tally};
use crate::workers::{self, Case};
use crate::{Seeds, keeping};

const ROUNDS: u32 = 3;

/// The logs of `seeds`.
pub(crate) fn run(older: &Kafka, current: &Kafka, seeds: &Seeds) -> Row {
    let mut tally = Tally::new("legacy");
    workers::each(&seeds.range, seeds.jobs, &mut tally, |seed| keeping(seeds, "legacy", seed, |root| judge(older, current, seed, root)));
    tally.finish(&format!("passes of both Kafkas over logs {seeds}"))
}

/// Three rounds; each goes on with what another cleaner has left.
fn judge(older: &Kafka, current: &Kafka, seed: u64, root: &Path) -> Result<Vec<Case>> {
    let work = root.join("work").join(PARTITION);
    let mut cases = Vec::new();
    let mut checkpoint = None;
    for round in 1..=ROUNDS {
        let mut grown: Grown = older.ask("grow", &[("dir", &work.display()), ("seed", &seed), ("round", &round)])?;
        grown.log_start = 0;
        let root = root.join(round.to_string());
        let copies = [root.join("older").join(PARTITION), root.join("current").join(PARTITION)];
        for copy in &copies {
            directory::copy(&work, copy)?;
        }
        let ours = grown.clean_by_us(&work, &root.join("ours"), checkpoint)?;
        let mut found = ours.found;
        let mut left = vec![&*ours.dir];
        if let Some(by_older) = unless_impossible(grown.clean_by_kafka(older, &copies[0], checkpoint))? {
            // It keeps the old formats, so its batches are others.
            found.extend(pass::survivors_differ(&dump::directory(&ours.dir)?, &dump::directory(&copies[0])?));
            found.extend(by_older.of_pass_differ(&ours.counts));
            left.push(&copies[0]);
        }
        if let Some(by_current) = unless_impossible(grown.clean_by_kafka(current, &copies[1], checkpoint))? {
            let theirs = dump_by_kafka(current, &copies[1], &root.join("current.jsonl"))?;
            let compared = pass::compare(&ours.dir, &copies[1], &theirs, pass::old_batches(&work)?)?;
            found.extend(compared.found);
            found.extend(by_current.differences(&ours.counts, compared.exact));
            left.push(&copies[1]);
        }
        let mut case = Case::new(format!("round {round}"), found);
        if !case.differences.is_empty() && pass::begins_behind_abort(&work, checkpoint)? {
            case = Case { excused: true, differences: Vec::new(), ..case };
        }
        cases.push(case);
        fs::remove_dir_all(&work)?;
        directory::copy(left[(seed + u64::from(round)) as usize % left.len()], &work)?;
        if ours.counts.due {
            checkpoint = Some(ours.counts.checkpoint());
        }
    }
    Ok(cases)
}

/// What Kafka counted, or `None` where it cannot finish.
fn unless_impossible(counted: Result<Counts>) -> Result<Option<Counts>> {
    match counted {
        Err(error) if pass::kafka_cannot(&error) => Ok(None),
        counted => counted.map(Some),
    }
}
