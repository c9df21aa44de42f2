//! A real broker over offset partitions that Keeplog wrote, and Keeplog over those that the broker wrote.

mod history;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use keeplog::inspect::checkpoint::{read_offsets, write_offsets};
use keeplog::inspect::storage::RealStorage;
use keeplog::{CONSUMER_OFFSETS, OffsetOptions, OffsetStore, StoreOptions};
use serde::Deserialize;
use serde_json::Value;

use crate::directory::{self, describe};
use crate::kafka::{Kafka, Release, java};
use crate::tally::{Row, Tally};

/// Partitions of the broker's `__consumer_offsets`.
const PARTITIONS: u32 = 4;
/// What a broker keeps beside the log of a partition, and knows the partition by.
const PARTITION_METADATA: &str = "partition.metadata";
/// What a data directory remembers of its partitions.
const CHECKPOINTS: [&str; 4] =
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", CLEANED];
const CLEANED: &str = "cleaner-offset-checkpoint";
/// A broker that has just started serves its coordinators one after the other.
const ATTEMPTS: u32 = 30;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
const START_ATTEMPTS: u32 = 600;
const START_PAUSE: Duration = Duration::from_millis(200);
/// Any cluster id will do.
const CLUSTER: &str = "a2VlcGxvZy1pbnRlcm9wLg";

/// What a broker says is committed: a line for each group and partition.
#[derive(Debug, Deserialize)]
struct Committed {
    lines: String,
}

/// The whole exchange, with one broker.
pub(crate) fn run(kafka: &Kafka) -> Result<Row> {
    let mut tally = Tally::new("broker");
    let work = tempfile::tempdir()?;
    let mut broker = Broker::new(kafka, work.path().join("broker"))?;

    broker.start()?;
    let _: Value = kafka.ask("fill", &[("address", &broker.address())])?;
    let answers = broker.answers()?;
    broker.stop()?;
    let listed = list_copy(&broker.dir, &work.path().join("first"))?;
    tally.judge("Keeplog over the broker's own partitions", &differences(&listed, &answers));

    let ours = work.path().join("ours");
    let committed = history::write(&ours)?;
    replace_partitions(&broker.dir, &ours)?;
    broker.start()?;
    tally.judge("the broker over Keeplog's partitions, after a clean stop", &broker.expect(&committed)?);

    broker.kill()?;
    broker.start()?;
    tally.judge("the broker over Keeplog's partitions, after a crash", &broker.expect(&committed)?);

    let _: Value = kafka.ask("bulk", &[("address", &broker.address()), ("groups", &40), ("rounds", &3)])?;
    let answers = broker.answers()?;
    broker.wait_for_cleaning(&ours)?;
    broker.stop()?;
    let listed = list_copy(&broker.dir, &work.path().join("second"))?;
    let mut found = differences(&listed, &answers);
    let lost = committed.difference(&answers).count();
    if lost > 0 || answers.len() == committed.len() {
        found.push(format!("{} lines after {} and the broker's own commits, {lost} of them lost", answers.len(), committed.len()));
    }
    tally.judge("Keeplog over the partitions of both, cleaned by the broker", &found);
    Ok(tally.finish(&format!("exchanges, {} committed offsets", committed.len())))
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

fn differences(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<String> {
    let only_ours = ours.difference(theirs).map(|line| format!("only Keeplog says: {line}"));
    only_ours.chain(theirs.difference(ours).map(|line| format!("only the broker says: {line}"))).collect()
}

/// A broker over a directory, on loopback. It is killed if it is dropped while it runs.
struct Broker<'a> {
    kafka: &'a Kafka,
    dir: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl<'a> Broker<'a> {
    fn new(kafka: &'a Kafka, dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir)?;
        let broker = Self { kafka, dir, port: free_port()?, process: None };
        fs::write(broker.beside("properties"), broker.settings())?;
        let _: Value = kafka.ask("format", &[("conf", &broker.beside("properties").display()), ("cluster", &CLUSTER)])?;
        Ok(broker)
    }

    /// Of a single node that is its own controller.
    fn settings(&self) -> String {
        let (port, controller, dir) = (self.port, self.port + 1, self.dir.display());
        format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             inter.broker.listener.name=PLAINTEXT\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={dir}\nlog.retention.hours=876000\nlog.cleaner.backoff.ms=200\nlog.cleaner.min.cleanable.ratio=0.01\n\
             auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions={PARTITIONS}\noffsets.topic.segment.bytes=1048576\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=2\n\
             share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n\
             share.coordinator.state.topic.num.partitions=2\n"
        )
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A file beside its directory.
    fn beside(&self, extension: &str) -> PathBuf {
        self.dir.with_extension(extension)
    }

    fn start(&mut self) -> Result<()> {
        let log = File::create(self.beside("log"))?;
        let mut command = java(Release::Current)?;
        command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "kafka.Kafka"]).arg(self.beside("properties"));
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("could not run java")?;
        // For whoever cleans up after a run that was killed.
        fs::write(self.beside("pid"), process.id().to_string())?;
        let process = self.process.insert(process);
        for _ in 0..START_ATTEMPTS {
            let said = fs::read_to_string(self.dir.with_extension("log"))?;
            if said.contains("Kafka Server started") {
                return Ok(());
            }
            if let Some(status) = process.try_wait()? {
                let lines: Vec<_> = said.lines().collect();
                bail!("the broker ended with {status}:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
            thread::sleep(START_PAUSE);
        }
        bail!("the broker did not start; see {}", self.beside("log").display())
    }

    /// Asks it to end, and waits until it has.
    fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no broker runs")?;
        let asked = Command::new("kill").arg(process.id().to_string()).status().context("could not run kill")?;
        ensure!(asked.success(), "kill ended with {asked}");
        process.wait()?;
        self.forget()
    }

    fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no broker runs")?;
        process.kill()?;
        process.wait()?;
        self.forget()
    }

    /// The process is gone, and its number may soon be another's.
    fn forget(&self) -> Result<()> {
        fs::remove_file(self.beside("pid")).context("the broker left no pid file")
    }

    /// Returns once its cleaner has been over each offsets partition, further than the store in `ours` had cleaned it.
    fn wait_for_cleaning(&self, ours: &Path) -> Result<()> {
        let cleaned = |dir: &Path| -> Result<Vec<u64>> {
            let offsets = read_offsets(&RealStorage::new(), &dir.join(CLEANED)).map_err(describe)?.or_empty();
            let of = |partition| offsets.iter().find(|(name, _)| name.topic() == CONSUMER_OFFSETS && name.partition() == partition);
            Ok((0..PARTITIONS).map(|partition| of(partition).map_or(0, |(_, offset)| *offset)).collect())
        };
        let before = cleaned(ours)?;
        for _ in 0..ATTEMPTS {
            if cleaned(&self.dir)?.iter().zip(&before).all(|(now, before)| now > before) {
                return Ok(());
            }
            thread::sleep(ATTEMPT_PAUSE);
        }
        bail!("the broker has not cleaned its offsets partitions; see {}", self.beside("log").display())
    }

    fn answers(&self) -> Result<BTreeSet<String>> {
        let answer: Committed = self.kafka.ask("committed", &[("address", &self.address())])?;
        Ok(answer.lines.lines().map(str::to_owned).collect())
    }

    /// How its answers differ from `committed`, once it has had the time to load, and what it had against our partitions when it did.
    fn expect(&self, committed: &BTreeSet<String>) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            found = differences(committed, &self.answers()?);
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
        if self.process.is_some() {
            // What went wrong before is what counts.
            let _ = self.kill();
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
