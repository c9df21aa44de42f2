//! Running the binary, and looking at what it did.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use serde_json::Value;

/// What a run left behind.
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `keeplog` with `arguments`. A run that panics or is killed fails the test.
pub(crate) fn keeplog(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Run {
    finish(command(arguments).stdin(Stdio::null()).output().unwrap())
}

pub(crate) fn command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keeplog"));
    command.args(arguments).env("LC_ALL", "C").env_remove("COLUMNS");
    command
}

pub(crate) fn finish(output: Output) -> Run {
    let run = Run {
        status: output.status.code().expect("the process ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
    };
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert!(run.status <= 2, "status {}: {}", run.status, run.stderr);
    run
}

impl Run {
    /// Standard output as JSON, one value a line.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    /// Asserts that it could not run, that stdout is empty, and that the message says all of `said`.
    #[track_caller]
    pub(crate) fn assert_refused(&self, said: &[&str]) {
        assert_eq!(self.status, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        for text in said {
            assert!(self.stderr.contains(text), "no {text:?} in: {}", self.stderr);
        }
    }
}

/// Calls `work` for every item, several at a time: most runs wait for the device.
pub(crate) fn in_parallel<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    const WORKERS: usize = 8;
    let waiting = Mutex::new(items);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some(item) = next else { break };
                    work(item);
                }
            });
        }
    });
}
