//! A live broker over a directory of its own.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use keeplog::CONSUMER_OFFSETS;
use keeplog::inspect::checkpoint::read_offsets;
use keeplog::inspect::storage::RealStorage;
use serde::Deserialize;
use serde_json::Value;

use super::{CLEANED, PARTITIONS};
use crate::directory::describe;
use crate::kafka::{JAVA_OPTIONS_DEFAULT, Kafka, Release, java};

/// A broker that has just started serves its coordinators one after the other.
const ATTEMPTS: u32 = 60;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);
const START_ATTEMPTS: u32 = 1500;
const START_PAUSE: Duration = Duration::from_millis(200);
/// Any cluster id will do.
const CLUSTER: &str = "a2VlcGxvZy1pbnRlcm9wLg";

/// Which protocol of transactions a cluster speaks: 0, 1, or 2, in which every transaction has an epoch of its own (KIP-890).
#[derive(Clone, Copy, Debug)]
pub(super) struct TransactionVersion(pub(super) u8);

/// What is known of the groups, a line each: what a broker answers, or what Keeplog finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// What is committed.
    pub(super) committed: BTreeSet<String>,
    /// Groups that somebody is or was a member of, and their members.
    pub(super) groups: BTreeSet<String>,
}

impl Known {
    /// How this, which is ours, differs from what a broker knows.
    pub(super) fn differences(&self, theirs: &Self) -> Vec<String> {
        let mut found = differences(&self.committed, &theirs.committed);
        found.extend(differences(&self.groups, &theirs.groups));
        found
    }
}

fn differences(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<String> {
    let only_ours = ours.difference(theirs).map(|line| format!("only Keeplog says: {line}"));
    only_ours.chain(theirs.difference(ours).map(|line| format!("only the broker says: {line}"))).collect()
}

#[derive(Debug, Deserialize)]
struct Lines {
    lines: String,
}

/// A broker over a directory, on loopback. It is killed if it is dropped while it runs.
pub(super) struct Broker<'a> {
    kafka: &'a Kafka,
    pub(super) dir: PathBuf,
    port: u16,
    process: Option<Child>,
    /// Its memory.
    java_options: &'a [&'a str],
}

impl<'a> Broker<'a> {
    pub(super) fn new(kafka: &'a Kafka, dir: PathBuf, transactions: TransactionVersion) -> Result<Self> {
        fs::create_dir(&dir)?;
        let broker = Self { kafka, dir, port: free_port()?, process: None, java_options: &JAVA_OPTIONS_DEFAULT };
        fs::write(broker.beside("properties"), broker.settings())?;
        let conf = broker.beside("properties");
        let arguments: [(&str, &dyn Display); 3] =
            [("conf", &conf.display()), ("cluster", &CLUSTER), ("feature", &format!("transaction.version={}", transactions.0))];
        let _: Value = kafka.ask("format", &arguments)?;
        Ok(broker)
    }

    pub(super) fn run_by(mut self, java_options: &'a [&'a str]) -> Self {
        self.java_options = java_options;
        self
    }

    /// Has more settings from its next start on: `NAME=VALUE`.
    pub(super) fn set(&self, settings: &[&str]) -> Result<()> {
        let mut file = File::options().append(true).open(self.beside("properties"))?;
        Ok(file.write_all(format!("{}\n", settings.join("\n")).as_bytes())?)
    }

    /// Has its clients do something.
    pub(super) fn ask(&self, command: &str, arguments: &[(&str, &dyn Display)]) -> Result<()> {
        let address = self.address();
        let mut all: Vec<(&str, &dyn Display)> = vec![("address", &address)];
        all.extend_from_slice(arguments);
        let _: Value = self.kafka.ask(command, &all)?;
        Ok(())
    }

    /// Has commits for `partitions` partitions of a topic, by each of `groups` groups, `rounds` times.
    pub(super) fn bulk(&self, groups: u64, partitions: u64, rounds: u64) -> Result<()> {
        self.ask("bulk", &[("groups", &groups), ("partitions", &partitions), ("rounds", &rounds)])
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
             share.coordinator.state.topic.num.partitions=2\n\
             group.consumer.min.heartbeat.interval.ms=100\ngroup.consumer.heartbeat.interval.ms=200\n\
             group.consumer.max.session.timeout.ms=600000\ngroup.consumer.session.timeout.ms=600000\n\
             group.share.min.heartbeat.interval.ms=100\ngroup.share.heartbeat.interval.ms=200\n"
        )
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn pid(&self) -> Result<u32> {
        Ok(self.process.as_ref().context("no broker runs")?.id())
    }

    /// What it has said since its start.
    pub(super) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.beside("log"))?)
    }

    /// A file beside its directory.
    fn beside(&self, extension: &str) -> PathBuf {
        self.dir.with_extension(extension)
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let log = File::create(self.beside("log"))?;
        let mut command = java(Release::Current, self.java_options)?;
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
    pub(super) fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no broker runs")?;
        let asked = Command::new("kill").arg(process.id().to_string()).status().context("could not run kill")?;
        ensure!(asked.success(), "kill ended with {asked}");
        process.wait()?;
        self.forget()
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no broker runs")?;
        process.kill()?;
        process.wait()?;
        self.forget()
    }

    /// The process is gone, and its number may soon be another's.
    fn forget(&self) -> Result<()> {
        fs::remove_file(self.beside("pid")).context("the broker left no pid file")
    }

    /// Returns once its cleaner has been over each offsets partition, up to the offset `to` of each at least.
    pub(super) fn wait_for_cleaning(&self, to: &[u64]) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if offsets_in(&self.dir, CLEANED)?.iter().zip(to).all(|(now, to)| now >= to) {
                return Ok(());
            }
            thread::sleep(ATTEMPT_PAUSE);
        }
        let reached = offsets_in(&self.dir, CLEANED)?;
        bail!("the broker has cleaned its offsets partitions to {reached:?}, not to {to:?}; see {}", self.beside("log").display())
    }

    pub(super) fn answers(&self) -> Result<Known> {
        let lines = |command| -> Result<BTreeSet<String>> {
            let answer: Lines = self.kafka.ask(command, &[("address", &self.address())])?;
            Ok(answer.lines.lines().map(str::to_owned).collect())
        };
        Ok(Known { committed: lines("committed")?, groups: lines("groups")? })
    }

    /// How its answers differ from what is `known`, once it has had the time to load, and what it had against our partitions when it did.
    pub(super) fn expect(&self, known: &Known) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            found = match self.answers() {
                Ok(answers) => known.differences(&answers),
                Err(error) => vec![format!("{error:#}")],
            };
            if found.is_empty() {
                break;
            }
            thread::sleep(ATTEMPT_PAUSE);
        }
        let log = self.log()?;
        // Where a busy machine has its controller think that it is gone for a while, a load is stopped and begins anew.
        let complains = |line: &&str| {
            line.contains(CONSUMER_OFFSETS) && (line.contains(" WARN ") || line.contains(" ERROR ")) && !line.contains("Stopped loading")
        };
        found.extend(log.lines().filter(complains).map(|line| format!("the broker complains: {line}")));
        Ok(found)
    }
}

/// What a checkpoint file in a data directory says of each offsets partition; 0 if nothing.
pub(super) fn offsets_in(dir: &Path, checkpoint: &str) -> Result<Vec<u64>> {
    let offsets = read_offsets(&RealStorage::new(), &dir.join(checkpoint)).map_err(describe)?.or_empty();
    let of = |partition| offsets.iter().find(|(name, _)| name.topic() == CONSUMER_OFFSETS && name.partition() == partition);
    Ok((0..PARTITIONS).map(|partition| of(partition).map_or(0, |(_, offset)| *offset)).collect())
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
