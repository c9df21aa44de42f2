//! Random logs: from what Kafka had before a pass, Keeplog must leave what Kafka leaves.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::directory::{self, PARTITION};
use crate::dump;
use crate::kafka::Kafka;
use crate::pass::{self, Counts, Grown};
use crate::tally::{Row, Tally};
use crate::workers::{self, Case};
use crate::{Seeds, keeping};

/// Passes over each log; before each, it grows.
const ROUNDS: u32 = 3;

/// The random logs of `seeds`.
pub(crate) fn run(kafka: &Kafka, seeds: &Seeds) -> Row {
    let mut tally = Tally::new("clean");
    workers::each(&seeds.range, seeds.jobs, &mut tally, |seed| keeping(seeds, "clean", seed, |root| judge(kafka, seed, root)));
    tally.finish(&format!("passes over logs {seeds}"))
}

/// Three rounds and a fourth pass over what both have left, each cleaning the other's.
fn judge(kafka: &Kafka, seed: u64, root: &Path) -> Result<Vec<Case>> {
    let work = root.join("work").join(PARTITION);
    let mut cases = Vec::new();
    let mut checkpoint = None;
    for round in 1..=ROUNDS {
        let grown: Grown = kafka.ask("grow", &[("dir", &work.display()), ("seed", &seed), ("round", &round)])?;
        let root = root.join(round.to_string());
        let (counts, ours, found) = match judge_pass(kafka, &grown, &work, &root, checkpoint) {
            Err(error) if pass::kafka_cannot(&error) => {
                cases.push(Case { excused: true, ..Case::new(format!("round {round}"), Vec::new()) });
                break;
            }
            judged => judged?,
        };
        let mut case = Case::new(format!("round {round}"), found);
        if !case.differences.is_empty() && pass::begins_behind_abort(&root.join("before"), checkpoint)? {
            case = Case { excused: true, differences: Vec::new(), ..case };
        }
        let excused = case.excused;
        cases.push(case);
        if round == ROUNDS && !excused {
            let found = judge_again(kafka, &grown, &work, &ours, &root.join("again"))?;
            cases.push(Case::new("cleaned again by the other", found));
        } else if seed % 2 == 1 {
            // Kafka goes on with what Keeplog has left.
            fs::remove_dir_all(&work)?;
            directory::copy(&ours, &work)?;
        }
        if counts.due {
            checkpoint = Some(counts.checkpoint());
        }
    }
    Ok(cases)
}

/// Kafka cleans `work` itself, Keeplog a copy of it. Returns what Kafka counted, our copy, and what differs.
fn judge_pass(
    kafka: &Kafka,
    grown: &Grown,
    work: &Path,
    root: &Path,
    checkpoint: Option<u64>,
) -> Result<(Counts, std::path::PathBuf, Vec<String>)> {
    let before = root.join("before");
    directory::copy(work, &before)?;
    let is_old = pass::old_batches(&before)?;
    let counts = grown.clean_by_kafka(kafka, work, checkpoint)?;
    let theirs = dump_by_kafka(kafka, work, &root.join("kafka.jsonl"))?;
    let ours = grown.clean_by_us(&before, &root.join("ours"), checkpoint)?;
    let mut found = ours.found;
    let compared = pass::compare(&ours.dir, work, &theirs, is_old)?;
    found.extend(counts.differences(&ours.counts, compared.exact));
    found.extend(compared.found);
    Ok((counts, ours.dir, found))
}

/// A pass from the start over what is clean already: Kafka's over our directory comes to what ours over Kafka's comes to, and where ours
/// finds nothing to do, neither does Kafka's.
fn judge_again(kafka: &Kafka, grown: &Grown, theirs: &Path, ours: &Path, root: &Path) -> Result<Vec<String>> {
    let by_kafka = root.join("kafka").join(PARTITION);
    directory::copy(ours, &by_kafka)?;
    let before = dump::directory(ours)?;
    let counts = grown.clean_by_kafka(kafka, &by_kafka, None)?;
    let after = dump_by_kafka(kafka, &by_kafka, &root.join("kafka.jsonl"))?;
    let by_us = grown.clean_by_us(theirs, &root.join("ours"), None)?;
    let mut found = by_us.found;
    found.extend(counts.without_sizes().differences(&by_us.counts.without_sizes(), true));
    if sizes(theirs)? == sizes(ours)? {
        found.extend(pass::compare(&by_us.dir, &by_kafka, &after, |_| false)?.found);
    } else {
        // Compressed to other sizes, segments are merged in other ways.
        found.extend(pass::survivors_differ(&dump::directory(&by_us.dir)?, &after));
    }
    if by_us.untouched && before != after {
        found.push("Kafka changes a log in which Keeplog finds nothing to do".to_owned());
    }
    Ok(found)
}

fn sizes(dir: &Path) -> Result<Vec<u64>> {
    dump::names(dir, &["log"])?.iter().map(|name| Ok(fs::metadata(dir.join(name))?.len())).collect()
}

pub(crate) fn dump_by_kafka(kafka: &Kafka, dir: &Path, out: &Path) -> Result<Vec<dump::Batch>> {
    let _: serde_json::Value = kafka.ask("dump", &[("dir", &dir.display()), ("out", &out.display())])?;
    dump::read(out)
}
