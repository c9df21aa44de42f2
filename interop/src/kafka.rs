//! The judge: a real Kafka behind a process that answers requests, as many at a time as it was given threads.

use std::collections::HashMap;
use std::env;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;

/// More options for each Java process, separated by spaces.
const JAVA_OPTIONS: &str = "KEEPLOG_JAVA_OPTIONS";
/// A heap that fits beside other work, and no more compiler threads than it takes.
pub(crate) const JAVA_OPTIONS_DEFAULT: [&str; 3] = ["-Xms256m", "-Xmx1536m", "-XX:+UseSerialGC"];

/// Which Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The one whose verdict counts.
    Current,
    /// One that still writes and cleans the formats v0 and v1.
    Older,
}

impl Release {
    fn module(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Older => "older",
        }
    }
}

/// What Kafka said instead of doing what it was told.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kafka refused: {}", self.0)
    }
}

impl std::error::Error for Refused {}

/// Answers that somebody waits for, by the number of the request; `None` once no more will come.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<String>>>>>;

/// A process of Kafka's classes. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Kafka {
    child: Child,
    /// Where requests go, and the number of the next.
    requests: Mutex<(ChildStdin, u64)>,
    waiting: Waiting,
}

impl Kafka {
    /// Starts one for `jobs` requests at a time.
    pub(crate) fn start(release: Release, jobs: usize) -> Result<Self> {
        let mut command = java(release, &JAVA_OPTIONS_DEFAULT)?;
        let main = format!("keeplog.interop.{}.Main", release.module());
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off").args([main, jobs.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("could not run java")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { bail!("java was started without pipes") };
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let receiving = Arc::clone(&waiting);
        thread::spawn(move || receive(output, &receiving));
        Ok(Self { child, requests: Mutex::new((input, 0)), waiting })
    }

    /// Has `command` done and returns the answer.
    ///
    /// # Errors
    /// [`Refused`] if Kafka could not do it.
    pub(crate) fn ask<T: DeserializeOwned>(&self, command: &str, arguments: &[(&str, &dyn fmt::Display)]) -> Result<T> {
        let mut line = command.to_owned();
        for (name, value) in arguments {
            line.push_str(&format!("\t{name}={value}"));
        }
        ensure!(!line.contains('\n'), "a line break in {line}");
        let (sender, answer) = channel();
        {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let number = requests.1;
            requests.1 += 1;
            self.waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_mut()
                .context("Kafka's process has ended")?
                .insert(number, sender);
            requests.0.write_all(format!("{number}\t{line}\n").as_bytes()).context("could not write to Kafka's process")?;
            requests.0.flush()?;
        }
        let answer = answer.recv().with_context(|| format!("Kafka's process ended at {line}"))?;
        let value: serde_json::Value = serde_json::from_str(&answer).with_context(|| format!("{command} was answered with {answer}"))?;
        if let Some(refused) = value.get("failed").and_then(|why| why.as_str()) {
            return Err(anyhow::Error::new(Refused(refused.to_owned())));
        }
        serde_json::from_value(value).with_context(|| format!("{command} was answered with {answer}"))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands out answers until there are no more.
fn receive(output: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Some((number, answer)) = line.split_once('\t') else { continue };
        let sender =
            number.parse().ok().and_then(|number: u64| waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&number));
        if let Some(sender) = sender {
            // Whoever asked may have given up.
            let _ = sender.send(answer.to_owned());
        }
    }
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Java with the class path that Kafka's classes need, and `options` for its memory.
pub(crate) fn java(release: Release, options: &[&str]) -> Result<Command> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("java").join(release.module()).join("target");
    let listed = target.join("classpath");
    let class_path = fs::read_to_string(&listed).with_context(|| {
        format!("could not read {}: run `mvn -q -f {} package` first, as interop/run does", listed.display(), java_dir().display())
    })?;
    let mut command = Command::new("java");
    command.args(options).args(env::var(JAVA_OPTIONS).unwrap_or_default().split_whitespace());
    command.arg("-cp").arg(format!("{}:{}", target.join("classes").display(), class_path.trim()));
    Ok(command)
}

fn java_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("java")
}
