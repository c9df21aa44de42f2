//! Committed offsets through crashes: what was acknowledged is answered, and nothing that was never asked for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::DataDir;
use keeplog::inspect::offsets::{CommitOptions, OffsetStore};
use keeplog::inspect::storage::Storage;
use keeplog::{CleanOptions, Log, LogOptions, OffsetAndMetadata, Result, TopicPartition, clean};

use super::disk::{Dice, Disk, Fault, Survival};
use super::history::T0;

const STEPS: usize = 80;
const PARTITIONS: u32 = 2;

/// What may be answered for a place: what was acknowledged last, then all that was asked for since.
type Answers = BTreeMap<(String, i32), Vec<Option<u64>>>;

struct Served {
    disk: Disk,
    dir: Arc<DataDir>,
    logs: Vec<Log>,
    store: OffsetStore,
}

impl Served {
    fn open(disk: &Disk) -> Result<Self> {
        let dir = Arc::new(DataDir::open_or_create(Arc::new(disk.clone()) as Arc<dyn Storage>, Path::new("/data"))?);
        let options = LogOptions::new().segment_bytes(4096).index_interval_bytes(256).delete_retention_ms(1000);
        let name = |p| TopicPartition::new("__consumer_offsets", p).unwrap();
        let logs = (0..PARTITIONS).map(|p| Log::open_in(&dir, &name(p), options.clone())).collect::<Result<Vec<_>>>()?;
        let store = OffsetStore::open(logs.clone(), CommitOptions::new())?;
        Ok(Self { disk: disk.clone(), dir, logs, store })
    }

    fn clean(&self) -> Result<()> {
        for log in &self.logs {
            log.roll()?;
            let name = log.topic_partition();
            let options = CleanOptions::for_log(log.options(), self.disk.now_ms())
                .first_dirty(self.dir.cleaner_offset(name).unwrap_or(0))
                .dedupe_buffer_bytes(1 << 16)
                .hash_seed(Some(1));
            let report = clean(log, &options, &())?;
            self.dir.set_cleaner_offset(name, Some(report.new_dirty));
        }
        self.dir.write_checkpoints()
    }

    fn close(self) -> Result<()> {
        self.logs.iter().try_for_each(Log::close)?;
        self.dir.close().map(drop)
    }
}

fn live(disk: &Disk, seed: u64, answers: &mut Answers) -> Result<()> {
    let mut dice = Dice(seed);
    let mut served = Served::open(disk)?;
    for step in 0..STEPS {
        let group = format!("g{}", dice.roll(4));
        match dice.roll(20) {
            0..=13 => {
                let places: Vec<_> = (0..=dice.roll(3)).map(|_| dice.roll(4) as i32).collect();
                let offset = step as u64;
                places.iter().for_each(|p| answers.entry((group.clone(), *p)).or_insert_with(|| vec![None]).push(Some(offset)));
                let commits: Vec<_> = places.iter().map(|p| ("orders", *p, OffsetAndMetadata::new(offset))).collect();
                served.store.commit(&group, &commits)?;
                settle(answers, |place| place.0 == group && places.contains(&place.1));
            }
            14 => {
                let place = (group.clone(), dice.roll(4) as i32);
                answers.entry(place.clone()).or_insert_with(|| vec![None]).push(None);
                served.store.delete_offsets(&group, &[("orders", place.1)])?;
                settle(answers, |p| *p == place);
            }
            15 => {
                answers.iter_mut().filter(|(place, _)| place.0 == group).for_each(|(_, may_be)| may_be.push(None));
                served.store.delete_group(&group)?;
                settle(answers, |place| place.0 == group);
            }
            16 | 17 => {
                served.clean()?;
                disk.advance_ms(700);
            }
            18 => {
                served.close()?;
                served = Served::open(disk)?;
            }
            _ => {
                served.store.reload()?;
            }
        }
        check(&served.store, answers).unwrap_or_else(|why| panic!("seed {seed} step {step}: {why}"));
    }
    Ok(())
}

/// What was asked for last was acknowledged.
fn settle(answers: &mut Answers, which: impl Fn(&(String, i32)) -> bool) {
    for (_, may_be) in answers.iter_mut().filter(|(place, _)| which(place)) {
        may_be.drain(..may_be.len() - 1);
    }
}

fn check(store: &OffsetStore, answers: &Answers) -> std::result::Result<(), String> {
    for ((group, partition), may_be) in answers {
        let answer = store.fetch(group, &[("orders", *partition)]).map_err(|e| format!("{e:?}"))?.remove(0).map(|o| o.offset);
        if !may_be.contains(&answer) {
            return Err(format!("{group} {partition} is at {answer:?}, {may_be:?} would be right"));
        }
    }
    Ok(())
}

fn crash_once(survival: Survival, seed: u64, at: u64) -> std::result::Result<(), String> {
    let disk = Disk::new(T0);
    disk.set_fault(Fault::Crash { at });
    let mut answers = Answers::new();
    let _ = live(&disk, seed, &mut answers);
    let mut dice = Dice(seed * 1_000_003 + at);
    let image = disk.after_crash(survival, &mut dice);
    let served = Served::open(&image).map_err(|e| format!("does not open: {e:?}"))?;
    check(&served.store, &answers)?;
    // What is answered now stays so, whatever the cleaner does.
    for ((group, partition), may_be) in &mut answers {
        *may_be = vec![served.store.fetch(group, &[("orders", *partition)]).unwrap().remove(0).map(|o| o.offset)];
    }
    for _ in 0..3 {
        served.clean().map_err(|e| format!("{e:?}"))?;
        image.advance_ms(2000);
    }
    served.store.reload().map_err(|e| format!("{e:?}"))?;
    check(&served.store, &answers).map_err(|e| format!("cleaned after recovery: {e}"))?;
    drop(served);
    let served = Served::open(&image.after_crash(Survival::Nothing, &mut dice)).map_err(|e| format!("does not open again: {e:?}"))?;
    check(&served.store, &answers).map_err(|e| format!("later: {e}"))
}

#[test]
fn an_acknowledged_commit_is_answered_after_any_crash() {
    let (seeds, stride) = super::seeds(1..3);
    let mut failures = Vec::new();
    for (seed, survival) in
        seeds.flat_map(|s| [Survival::Everything, Survival::Nothing, Survival::InOrder, Survival::AnyOrder].map(|how| (s, how)))
    {
        let whole = Disk::new(T0);
        live(&whole, seed, &mut Answers::new()).unwrap();
        let mut at = seed % stride;
        while at < whole.calls() {
            if let Err(why) = crash_once(survival, seed, at) {
                failures.push(format!("{survival:?} seed {seed} call {at}: {why}"));
            }
            at += stride;
        }
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures[..failures.len().min(12)].join("\n"));
}
