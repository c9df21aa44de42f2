//! Why a command could not run: what was being done, the causes, and what to do next.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::door::{Error, ErrorKind};
use crate::output;

/// Too many open files, here and on the machine, and too large a file: the same numbers on all systems that it runs on.
const LIMITS: [i32; 3] = [24, 23, 27];

/// Ends a command with exit status 2.
#[derive(Debug)]
pub(crate) struct Failure {
    /// With all causes.
    text: String,
    advice: Option<String>,
    broken_pipe: bool,
    corrupt: bool,
    missing: bool,
}

impl Failure {
    /// A failure whose `text` starts with "could not".
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: output::name(&text.into()), advice: None, broken_pipe: false, corrupt: false, missing: false }
    }

    /// A failure that the data is to blame for.
    pub(crate) fn damaged(text: impl Into<String>) -> Self {
        Self { corrupt: true, ..Self::new(text) }
    }

    pub(crate) fn caused_by(self, cause: &dyn StdError) -> Self {
        Self { text: chain(&self.text, Some(cause)), ..self }
    }

    /// What the user can do about it: a sentence without a full stop.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Writing to stdout failed.
    pub(crate) fn output(cause: &io::Error) -> Self {
        let broken_pipe = cause.kind() == io::ErrorKind::BrokenPipe;
        Self { broken_pipe, ..Self::new("could not write to stdout").caused_by(cause) }
    }

    /// Whether it is the data that is to blame: exit status 1, not 2.
    pub(crate) fn is_corruption(&self) -> bool {
        self.corrupt
    }

    /// Whether something was not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.missing
    }

    /// Whoever read our output has heard enough: a reason to stop, not to complain.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            text: one_line(&error),
            advice: advice_for(&error),
            broken_pipe: false,
            corrupt: error.is_corruption(),
            missing: error.kind() == ErrorKind::NotFound,
        }
    }
}

fn advice_for(error: &Error) -> Option<String> {
    let system = system_error(error);
    let text = match error.kind() {
        // What is to be done is said with the limit.
        _ if system.is_some_and(|e| LIMITS.contains(&e.raw_os_error().unwrap_or(0))) => return None,
        ErrorKind::Locked => "stop the process that uses this directory, or work on a copy",
        ErrorKind::NotFound => "check the path",
        ErrorKind::StorageFull => "free some space and run it again; what was there is still there",
        ErrorKind::Corrupt => "keeplog verify says what is damaged, keeplog recover mends what can be mended",
        ErrorKind::Unsupported => "this was written by a newer version: upgrade keeplog",
        ErrorKind::TooLarge => "leave this log uncleaned, or copy its records into a new one",
        ErrorKind::OutOfMemory => "give it more memory (ulimit -v, the limit of its cgroup), or take fewer --threads",
        ErrorKind::Io if system.is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied) => {
            "run it as a user who may read (and for recover and compact, write) the directory"
        }
        ErrorKind::Io => "check the device and the kernel log, then run it again",
        _ => return None,
    };
    Some(text.to_owned())
}

/// What the system said, if it was the system.
fn system_error(error: &Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = e.source();
    }
    None
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  what to do: {advice}")?;
        }
        Ok(())
    }
}

/// `text` and the texts of all causes on one line, safe to print; a cause that only repeats what is there is left out.
pub(crate) fn chain(text: &str, mut cause: Option<&dyn StdError>) -> String {
    let mut all = output::name(text);
    while let Some(e) = cause {
        let next = output::name(&e.to_string());
        if !all.contains(&next) {
            all.push_str(": ");
            all.push_str(&next);
        }
        cause = e.source();
    }
    all
}

/// An engine error with all its causes, on one line.
pub(crate) fn one_line(error: &Error) -> String {
    chain(&error.to_string(), error.source())
}
