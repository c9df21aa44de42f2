//! The engine's one error type: what was being done, to which file, at which position, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::record::DecodeError;

/// Shorthand for results of this crate and of the crates above it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call asks for something that can't be: fix the call.
    InvalidInput,
    /// An offset outside the log: seek to the start or the end offset.
    OutOfRange,
    /// No such log, file or group.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// Another process (or another handle of this one) owns the directory.
    Locked,
    /// The device is full: free space, then reopen.
    StorageFull,
    /// The operating system failed a call: reopen.
    Io,
    /// Bytes on storage are not what they should be: run `keeplog verify`.
    Corrupt,
    /// Written by a newer format: upgrade.
    Unsupported,
    /// It is more than the format can hold that it would be written in: leave it as it is, or copy it elsewhere.
    TooLarge,
    /// There is not enough memory for what is to be read: give the process more, or let fewer run at a time.
    OutOfMemory,
    /// An earlier failure of a write or a sync stopped this log: reopen it.
    Poisoned,
    /// The handle was closed.
    Closed,
    /// A producer's sequence number does not follow its last one.
    OutOfOrderSequence,
    /// A newer instance of this producer has taken over.
    ProducerFenced,
    /// It took longer than allowed. It may have been done, may still be, or not: what it would have shown tells.
    TimedOut,
    /// What is asked for is being loaded: ask again.
    Loading,
    /// Somebody else leads what is asked for: ask there, or lead it.
    NotLeader,
}

/// An error with its context. One pointer wide; `source()` gives the cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    op: &'static str,
    path: Option<PathBuf>,
    position: Option<u64>,
    offset: Option<u64>,
    resume_offset: Option<u64>,
    detail: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` while doing `op` (a verb phrase, such as `"append to"`).
    #[must_use]
    pub fn new(kind: ErrorKind, op: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            op,
            path: None,
            position: None,
            offset: None,
            resume_offset: None,
            detail: detail.into(),
            source: None,
        }))
    }

    /// The call itself is wrong.
    #[must_use]
    pub fn invalid(op: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, op, detail)
    }

    /// Damage at `position` of `path`; `detail` says what is wrong there.
    #[must_use]
    pub fn corrupt(op: &'static str, path: &Path, position: u64, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, op, detail).at(path).position_at(position)
    }

    /// An operating system error on `path`; its kind follows from `cause`.
    #[must_use]
    pub fn io(op: &'static str, path: &Path, cause: io::Error) -> Self {
        let kind = match cause.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => ErrorKind::StorageFull,
            io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            _ => ErrorKind::Io,
        };
        Self::new(kind, op, advice(&cause)).at(path).caused_by(cause)
    }

    /// The same error as one of another kind.
    #[must_use]
    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Adds the file or directory concerned.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.0.path = Some(path.to_path_buf());
        self
    }

    /// Adds the byte position in the file.
    #[must_use]
    pub fn position_at(mut self, position: u64) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Adds the record offset concerned.
    #[must_use]
    pub fn offset_at(mut self, offset: u64) -> Self {
        self.0.offset = Some(offset);
        self
    }

    /// Adds where reading can go on.
    #[must_use]
    pub(crate) fn resume_at(mut self, offset: Option<u64>) -> Self {
        self.0.resume_offset = offset;
        self
    }

    /// Adds the cause. Whatever was made of it: for want of memory nothing is known to be damaged.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        let decoding = (&source as &(dyn std::error::Error + 'static)).downcast_ref::<DecodeError>();
        if let Some(DecodeError::OutOfMemory { .. }) = decoding {
            self.0.kind = ErrorKind::OutOfMemory;
        }
        self.0.source = Some(Box::new(source));
        self
    }

    /// What can be done about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    #[must_use]
    pub fn op(&self) -> &'static str {
        self.0.op
    }

    /// The file or directory concerned.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte position in [`Error::path`].
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.0.position
    }

    /// The record offset concerned.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Of damage that a reader met: the offset from which the log can be read on, at the next segment. `None` if nothing
    /// follows.
    #[must_use]
    pub fn resume_offset(&self) -> Option<u64> {
        self.0.resume_offset
    }

    /// Whether the same call may succeed later without anyone mending anything.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Locked | ErrorKind::TimedOut | ErrorKind::Loading | ErrorKind::NotLeader)
    }

    /// Whether bytes on storage are damaged.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        self.0.kind == ErrorKind::Corrupt
    }
}

/// What can be done about what the system says, where it says it in a way that few know.
fn advice(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EMFILE) => "too many files are open in this process: raise its limit (ulimit -n; LimitNOFILE in a systemd unit)",
        Some(libc::ENFILE) => "too many files are open on this machine: raise its limit (sysctl fs.file-max)",
        Some(libc::EFBIG) => "the file would become larger than this process may make one: raise the limit (ulimit -f)",
        _ if cause.kind() == io::ErrorKind::OutOfMemory => "there is not enough memory: give the process more, or let fewer run at a time",
        _ => "",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        write!(f, "could not {}", inner.op)?;
        if let Some(path) = &inner.path {
            write!(f, " {}", path.display())?;
        }
        if let Some(position) = inner.position {
            write!(f, " at byte {position}")?;
        }
        if let Some(offset) = inner.offset {
            write!(f, " (offset {offset})")?;
        }
        if !inner.detail.is_empty() {
            write!(f, ": {}", inner.detail)?;
        }
        if let Some(offset) = inner.resume_offset {
            write!(f, "; the log can be read on from offset {offset}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        // The detail often is the cause in words.
        if let Some(source) = self.0.source.as_ref().map(ToString::to_string).filter(|s| !self.0.detail.contains(s.as_str())) {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}
