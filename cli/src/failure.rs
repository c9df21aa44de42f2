//! Why a command could not run: what was being done, the causes, and what to do next.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::door::{Error, ErrorKind};
use crate::output;

/// Ends a command with exit status 2.
#[derive(Debug)]
pub(crate) struct Failure {
    /// With all causes.
    text: String,
    advice: Option<String>,
    broken_pipe: bool,
    corrupt: bool,
}

impl Failure {
    /// A failure whose `text` starts with "could not".
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: output::name(&text.into()), advice: None, broken_pipe: false, corrupt: false }
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

    /// Whoever read our output has heard enough: a reason to stop, not to complain.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { text: one_line(&error), advice: advice_for(&error), broken_pipe: false, corrupt: error.is_corruption() }
    }
}

fn advice_for(error: &Error) -> Option<String> {
    let text = match error.kind() {
        ErrorKind::Locked => "stop the process that uses this directory, or work on a copy",
        ErrorKind::NotFound => "check the path",
        ErrorKind::StorageFull => "free some space and run it again; what was there is still there",
        ErrorKind::Corrupt => "keeplog verify says what is damaged, keeplog recover mends what can be mended",
        ErrorKind::Unsupported => "this was written by a newer version: upgrade keeplog",
        ErrorKind::Io if is_denied(error) => "run it as a user who may read (and for recover and compact, write) the directory",
        ErrorKind::Io => "check the device and the kernel log, then run it again",
        _ => return None,
    };
    Some(text.to_owned())
}

fn is_denied(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(e) = cause {
        if e.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied) {
            return true;
        }
        cause = e.source();
    }
    false
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
