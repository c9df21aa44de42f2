//! Many directories opened or dumped by Kafka in one process: starting it costs more than what it does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::oracle::Oracle;

/// What Kafka is to do with a directory.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Open it as a broker would after a stop, clean or not. It mends what it finds: `dir` is a copy.
    Open { dir: PathBuf, recovery_point: u64, clean: bool },
    /// Dump it into the file `out`.
    Dump { dir: PathBuf, out: PathBuf },
}

impl Task {
    fn line(&self) -> String {
        match self {
            Self::Open { dir, recovery_point, clean } => {
                format!("open\t{}\t{recovery_point}\t{}\n", dir.display(), if *clean { "clean" } else { "unclean" })
            }
            Self::Dump { dir, out } => format!("dump\t{}\t{}\n", dir.display(), out.display()),
        }
    }
}

/// Does all of `tasks` and returns one line of JSON for each.
pub(crate) fn run(oracle: &Oracle, tasks: &[Task]) -> Result<Vec<String>> {
    let work = tempfile::tempdir()?;
    let class_path = oracle.class_path()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/oracle/Many.java");
    let compiled = Command::new("javac").args(["-nowarn", "-cp", &class_path, "-d"]).arg(work.path()).arg(source).output();
    let compiled = compiled.context("could not run javac")?;
    ensure!(compiled.status.success(), "Many.java does not fit this oracle:\n{}", String::from_utf8_lossy(&compiled.stderr));

    // From a file, so that neither side ever waits for the other.
    let input = work.path().join("tasks");
    fs::File::create(&input)?.write_all(tasks.iter().map(Task::line).collect::<String>().as_bytes())?;
    let class_path = format!("{}:{class_path}", work.path().display());
    let options = ["-Xmx2g", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"];
    let mut command = Command::new("java");
    command.args(options).args(["-cp", &class_path, "oracle.Many"]).stdin(Stdio::from(fs::File::open(&input)?));
    let output = command.output().context("could not run java")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let answers: Vec<String> = String::from_utf8(output.stdout).context("answers that are no UTF-8")?.lines().map(str::to_owned).collect();
    ensure!(output.status.success(), "Kafka stopped at {}{errors}", tasks.get(answers.len()).map_or_else(String::new, Task::line));
    ensure!(answers.len() == tasks.len(), "{} answers to {} tasks", answers.len(), tasks.len());
    Ok(answers)
}
