//! The judge: a real Kafka behind two scripts, beside the project.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Where the oracle is, if not in `../shared/oracle` from the project's root.
const PLACE: &str = "KEEPLOG_ORACLE";
const JAVA_OPTIONS: &str = "ORACLE_JAVA_OPTS";
/// A heap that fits beside other work, and no more compiler threads than it takes.
const JAVA_OPTIONS_DEFAULT: &str = "-Xms256m -Xmx2g -XX:+UseSerialGC";
/// Bytes of one argument at most: Linux takes 128 KiB.
const ARGUMENT_BYTES_MAX: usize = 100_000;

/// The oracle's directory.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    dir: PathBuf,
}

impl Oracle {
    /// Finds it.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let dir = env::var_os(PLACE).map_or_else(|| root.join("../shared/oracle"), PathBuf::from);
        ensure!(
            dir.join("oracle").is_file(),
            "no real Kafka to judge by: {} holds no `oracle`. Set {PLACE} to the directory that does",
            dir.display()
        );
        let dir = dir.canonicalize().with_context(|| format!("could not find {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Runs one of its commands and returns what it printed.
    pub(crate) fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        finish(self.command("oracle", arguments).output(), arguments)
    }

    /// Starts one of its commands; [`Running::finish`] waits for it.
    pub(crate) fn start(&self, arguments: &[impl AsRef<OsStr>]) -> Result<Running> {
        let mut command = self.command("oracle", arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| said(arguments))?;
        Ok(Running { child: Some(child), what: said(arguments) })
    }

    /// Runs the script that starts and stops brokers. Its broker outlives it, so nothing of it is piped.
    pub(crate) fn broker(&self, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
        let status = self.command("broker", arguments).stdout(Stdio::null()).status().with_context(|| said(arguments))?;
        ensure!(status.success(), "broker {} failed: {status}", said(arguments));
        Ok(())
    }

    /// Runs Kafka's `DumpLogSegments` over `files` with `flags`, in as few processes as the command line allows.
    pub(crate) fn dump_log_segments(&self, flags: &[&str], files: &[PathBuf]) -> Result<String> {
        let mut printed = String::new();
        let mut rest = files;
        while !rest.is_empty() {
            let mut list = String::new();
            let mut taken = 0;
            for file in rest {
                let name = file.to_str().context("a path that is no UTF-8")?;
                if taken > 0 && list.len() + name.len() > ARGUMENT_BYTES_MAX {
                    break;
                }
                list.push_str(if taken > 0 { "," } else { "" });
                list.push_str(name);
                taken += 1;
            }
            let mut arguments = vec!["main", "org.apache.kafka.tools.DumpLogSegments", "--files", &list];
            arguments.extend(flags);
            printed.push_str(&self.run(&arguments)?);
            rest = &rest[taken..];
        }
        Ok(printed)
    }

    /// The class path of Kafka and of the oracle's own classes.
    pub(crate) fn class_path(&self) -> Result<String> {
        Ok(self.run(&["classpath"])?.trim().to_owned())
    }

    fn command(&self, script: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(self.dir.join(script));
        command.args(arguments).stdin(Stdio::null());
        if env::var_os(JAVA_OPTIONS).is_none() {
            command.env(JAVA_OPTIONS, JAVA_OPTIONS_DEFAULT);
        }
        command
    }
}

/// A command under way. It is stopped if it is dropped before it has ended.
#[derive(Debug)]
pub(crate) struct Running {
    child: Option<Child>,
    what: String,
}

impl Running {
    /// Waits for its end and returns what it printed.
    pub(crate) fn finish(mut self) -> Result<String> {
        let Some(child) = self.child.take() else { bail!("{} was waited for already", self.what) };
        finish(child.wait_with_output(), &[&self.what])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The script has become the JVM itself (`exec`). If that has ended meanwhile, there is nothing to stop.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn finish(output: std::io::Result<Output>, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
    let what = said(arguments);
    let output = output.with_context(|| format!("could not run {what}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        bail!("{what} failed ({}):\n{}\n{}", output.status, tail(&printed), tail(&errors));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{what} printed no UTF-8"))
}

fn said(arguments: &[impl AsRef<OsStr>]) -> String {
    let text: Vec<_> = arguments.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect();
    let mut text = format!("oracle {}", text.join(" "));
    if text.len() > 300 {
        text.truncate(text.char_indices().map(|(i, _)| i).take_while(|i| *i <= 300).last().unwrap_or(0));
        text.push_str(" ...");
    }
    text
}

/// The last lines of what a process said.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
