//! A real broker over offset partitions that Keeplog wrote, and Keeplog over those that the broker wrote.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use keeplog::inspect::checkpoint::{read_offsets, write_offsets};
use keeplog::inspect::storage::RealStorage;
use keeplog::{CONSUMER_OFFSETS, Durability, OffsetAndMetadata, OffsetOptions, OffsetStore, StoreOptions};

use crate::directory::{self, describe};
use crate::oracle::Oracle;
use crate::tally::Tally;

/// Partitions of the broker's `__consumer_offsets`.
const PARTITIONS: u32 = 4;
/// What a broker keeps beside the log of a partition, and knows the partition by.
const PARTITION_METADATA: &str = "partition.metadata";
/// What a data directory remembers of its partitions.
const CHECKPOINTS: [&str; 4] =
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"];
const SEED: u64 = 7;
/// A broker that has just started serves its coordinators one after the other.
const ATTEMPTS: u32 = 30;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

/// The whole exchange, with one broker.
pub(crate) fn run(oracle: &Oracle) -> Result<()> {
    let mut tally = Tally::new("broker");
    let work = tempfile::tempdir()?;
    let mut broker = Broker::new(oracle, work.path().join("broker"))?;

    broker.start()?;
    oracle.run(&["broker-everything", &broker.address(), &SEED.to_string()])?;
    let answers = lines(&broker.answers()?);
    broker.stop()?;
    let listed = list_copy(&broker.dir, &work.path().join("first"))?;
    tally.judge("Keeplog over the broker's own partitions", &differences(&listed, &answers));

    let ours = work.path().join("ours");
    let committed = commit(&ours)?;
    replace_partitions(&broker.dir, &ours)?;
    broker.start()?;
    tally.judge("the broker over Keeplog's partitions, after a clean stop", &broker.expect(&committed)?);

    broker.kill()?;
    broker.start()?;
    tally.judge("the broker over Keeplog's partitions, after a crash", &broker.expect(&committed)?);

    oracle.run(&["broker-bulk", &broker.address(), "40", "5", "3"])?;
    let answers = lines(&broker.answers()?);
    broker.stop()?;
    let listed = list_copy(&broker.dir, &work.path().join("second"))?;
    let mut found = differences(&listed, &answers);
    let lost = committed.difference(&answers).count();
    if lost > 0 || answers.len() == committed.len() {
        found.push(format!("{} lines after {} and the broker's own commits, {lost} of them lost", answers.len(), committed.len()));
    }
    tally.judge("Keeplog over the partitions of both", &found);
    tally.finish(&format!("exchanges, {} committed offsets", committed.len()))
}

/// Commits of many groups in a store of our own, written over, deleted, rolled and cleaned. Returns what is listed at the end.
fn commit(dir: &Path) -> Result<BTreeSet<String>> {
    let mut rng = Rng::with_seed(SEED);
    // What is cleaned when is part of the history.
    let options = OffsetOptions::new()
        .offsets_topic_num_partitions(PARTITIONS)
        .offsets_topic_segment_bytes(64 << 10)
        .durability(Durability::Buffered)
        .store(StoreOptions::new().log_cleaner_enable(false));
    let store = OffsetStore::open_with(std::sync::Arc::new(RealStorage::new()), dir, options).map_err(describe)?;
    let groups: Vec<String> = (0..400).map(group_name).collect();
    for round in 0..6 {
        for group in &groups {
            let offsets: Vec<_> = (0..rng.usize(1..6)).map(|_| (topic(&mut rng), rng.i32(0..4), position(&mut rng))).collect();
            store.commit(group, &offsets).map_err(describe)?;
            if rng.u8(0..12) == 0 {
                let (topic, partition, _) = &offsets[0];
                store.delete_offsets(group, &[(*topic, *partition)]).map_err(describe)?;
            }
            if rng.u8(0..25) == 0 {
                store.delete_group(group).map_err(describe)?;
            }
        }
        if round % 2 == 1 {
            for log in store.store().logs() {
                log.roll().map_err(describe)?;
                let report = store.store().clean(&log).map_err(describe)?;
                ensure!(report.records_kept < report.records_read, "nothing was cleaned away: {report}");
            }
        }
    }
    store.reload().map_err(describe)?;
    let listed = list(&store)?;
    ensure!(listed.len() > 1000, "only {} committed offsets", listed.len());
    store.close().map_err(describe)?;
    Ok(listed)
}

fn group_name(i: usize) -> String {
    match i % 5 {
        0 => format!("größe-组-🚀-{i}"),
        1 => format!("with spaces & signs/\\\"{i}"),
        _ => format!("group-{i}"),
    }
}

fn topic(rng: &mut Rng) -> &'static str {
    // The broker has the first two, and nothing says that it must have the others.
    ["orders", "codecs", "gone", "a.topic_of-no_one"][rng.usize(0..4)]
}

fn position(rng: &mut Rng) -> OffsetAndMetadata {
    let offset = match rng.u8(0..20) {
        0 => 0,
        1 => i64::MAX as u64 - 1,
        _ => rng.u64(0..1 << 40),
    };
    let position = OffsetAndMetadata::new(offset);
    let position = if rng.bool() { position.leader_epoch(rng.i32(0..100)) } else { position };
    match rng.u8(0..8) {
        0 => position.metadata(format!("checkpoint-{} ✓ 🚀", rng.u32(..))),
        1 => position.metadata("m".repeat(rng.usize(0..4096))),
        _ => position,
    }
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

/// What Keeplog lists in a copy of the broker's directory.
fn list_copy(broker: &Path, copy: &Path) -> Result<BTreeSet<String>> {
    for partition in 0..PARTITIONS {
        let name = format!("{CONSUMER_OFFSETS}-{partition}");
        directory::copy(&broker.join(&name), &copy.join(&name))?;
    }
    directory::copy(broker, copy)?; // checkpoints, mark
    let options = OffsetOptions::new().store(StoreOptions::new().log_cleaner_enable(false));
    let store = OffsetStore::open(copy, options).map_err(describe)?;
    let listed = list(&store)?;
    store.close().map_err(describe)?;
    Ok(listed)
}

/// What `keeplog offsets list --tsv` prints, and a fetch of each line says the same.
fn list(store: &OffsetStore) -> Result<BTreeSet<String>> {
    let listed = store.list().map_err(describe)?;
    for line in &listed {
        let fetched = store.fetch(&line.group, &[(&*line.topic, line.partition)]).map_err(describe)?;
        ensure!(fetched == [Some(line.committed.clone().into())], "{line} is listed, {fetched:?} fetched");
    }
    Ok(listed.iter().map(ToString::to_string).collect())
}

/// The lines of an answer without their header.
fn lines(answers: &str) -> BTreeSet<String> {
    answers.lines().skip(1).map(str::to_owned).collect()
}

fn differences(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<String> {
    let only_ours = ours.difference(theirs).map(|line| format!("only Keeplog says: {line}"));
    only_ours.chain(theirs.difference(ours).map(|line| format!("only the broker says: {line}"))).collect()
}

/// A broker over a directory, on loopback. It is killed if it is dropped while it runs.
struct Broker<'a> {
    oracle: &'a Oracle,
    dir: PathBuf,
    port: u16,
    runs: bool,
}

impl<'a> Broker<'a> {
    fn new(oracle: &'a Oracle, dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir)?;
        Ok(Self { oracle, dir, port: free_port()?, runs: false })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn start(&mut self) -> Result<()> {
        self.runs = true;
        self.script(&["start"], Some(self.port))
    }

    fn stop(&mut self) -> Result<()> {
        self.script(&["stop"], None)?;
        self.forget()
    }

    fn kill(&mut self) -> Result<()> {
        let pid = fs::read_to_string(self.dir.with_extension("pid"))?;
        self.script(&["kill9"], None)?;
        // Its port and its lock go when it is gone.
        let process = Path::new("/proc").join(pid.trim());
        for _ in 0..ATTEMPTS {
            if !process.exists() {
                break;
            }
            thread::sleep(ATTEMPT_PAUSE);
        }
        self.forget()
    }

    /// The process is gone, and its number may soon be another's.
    fn forget(&mut self) -> Result<()> {
        self.runs = false;
        fs::remove_file(self.dir.with_extension("pid")).context("the broker left no pid file")
    }

    fn script(&self, command: &[&str], port: Option<u16>) -> Result<()> {
        let dir = self.dir.to_str().context("a temporary directory whose name is no UTF-8")?;
        let mut arguments: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        arguments.push(dir.to_owned());
        arguments.extend(port.map(|port| port.to_string()));
        self.oracle.broker(&arguments)
    }

    fn answers(&self) -> Result<String> {
        self.oracle.run(&["broker-answers", &self.address()])
    }

    /// How its answers differ from `committed`, once it has had the time to load, and what it had against our partitions when it did.
    fn expect(&self, committed: &BTreeSet<String>) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            found = differences(committed, &lines(&self.answers()?));
            if found.is_empty() {
                break;
            }
            thread::sleep(ATTEMPT_PAUSE);
        }
        let log = fs::read_to_string(self.dir.with_extension("log"))?;
        let complains = |line: &&str| line.contains(CONSUMER_OFFSETS) && (line.contains(" WARN ") || line.contains(" ERROR "));
        found.extend(log.lines().filter(complains).map(|line| format!("the broker complains: {line}")));
        Ok(found)
    }
}

impl Drop for Broker<'_> {
    fn drop(&mut self) {
        if self.runs && self.dir.with_extension("pid").exists() {
            // What went wrong before is what counts.
            let _ = self.script(&["kill9"], None);
        }
    }
}

/// A port that is free, as the next one is.
fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        if port < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no two free ports beside each other on loopback")
}
