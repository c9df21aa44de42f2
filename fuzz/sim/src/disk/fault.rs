//! What goes wrong, and when.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::path::Path;

/// What happens to calls of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All is well.
    None,
    /// The machine stops at this change or sync (counted from 0): neither it nor a later one is carried out; of a write, half.
    Crash {
        /// Which one.
        at: u64,
    },
    /// This change or sync fails, of a write after half of its bytes, and the next ones work.
    Once {
        /// Which one.
        at: u64,
        /// How.
        kind: ErrorKind,
    },
    /// This read fails.
    Read {
        /// Which one.
        at: u64,
    },
    /// From this change on, all fail that take space.
    Full {
        /// Which one.
        at: u64,
    },
    /// All work, but reads and writes are short, and some are interrupted before they begin.
    Short,
}

/// A call that changes or syncs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// What it does.
    pub operation: Operation,
    /// To which file or directory; for a rename, the new name.
    pub path: &'a Path,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the calls of the storage
pub enum Operation {
    Create,
    CreateDir,
    Write,
    SetLength,
    SetModified,
    Rename,
    Remove,
    Sync,
    SyncDir,
}

impl Operation {
    fn takes_space(self) -> bool {
        matches!(self, Self::Create | Self::CreateDir | Self::Write)
    }
}

/// The fault that is set, and what has come of it.
#[derive(Debug)]
pub(super) struct Faults {
    fault: Fault,
    /// Changes and syncs since it was set.
    pub(super) calls: u64,
    reads: u64,
    pub(super) has_struck: bool,
    /// The machine is off.
    pub(super) is_stopped: bool,
    pub(super) omitted: Option<fn(&Call<'_>) -> bool>,
    pub(super) trace: Option<Vec<String>>,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self { fault: Fault::None, calls: 0, reads: 0, has_struck: false, is_stopped: false, omitted: None, trace: None }
    }

    pub(super) fn set(&mut self, fault: Fault) {
        (self.fault, self.calls, self.reads, self.has_struck, self.is_stopped) = (fault, 0, 0, false, false);
    }

    /// Counts a change or a sync; an error if it is not to be carried out.
    pub(super) fn admit(&mut self, call: &Call<'_>) -> io::Result<()> {
        if self.is_stopped {
            return Err(stopped());
        }
        let number = self.calls;
        self.calls += 1;
        let outcome = match self.fault {
            Fault::Crash { at } if number >= at => {
                self.is_stopped = true;
                Err(stopped())
            }
            Fault::Once { at, kind } if number == at => Err(kind.into()),
            Fault::Full { at } if number >= at && call.operation.takes_space() => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        self.has_struck |= outcome.is_err();
        if let Some(trace) = &mut self.trace {
            let failed = outcome.as_ref().err().map_or(String::new(), |e| format!(": {e}"));
            trace.push(format!("{number:>5} {:?} {}{failed}", call.operation, call.path.display()));
        }
        outcome
    }

    /// An error if something can't be opened or listed now.
    pub(super) fn admit_read(&mut self, path: &Path) -> io::Result<()> {
        if ORACLE_READS.get() {
            return Ok(());
        }
        if self.is_stopped {
            return Err(stopped());
        }
        self.reads += 1;
        if self.fault == (Fault::Read { at: self.reads - 1 }) {
            self.has_struck = true;
            if let Some(trace) = &mut self.trace {
                trace.push(format!("      a read of {} fails", path.display()));
            }
            return Err(io::Error::other("the disk can't read this"));
        }
        Ok(())
    }

    /// How many of `len` bytes a read gets.
    pub(super) fn admit_bytes(&mut self, path: &Path, len: usize) -> io::Result<usize> {
        self.admit_read(path)?;
        self.shortened(len)
    }

    pub(super) fn shortened(&mut self, len: usize) -> io::Result<usize> {
        if self.fault != Fault::Short || ORACLE_READS.get() {
            return Ok(len);
        }
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(len.min(1 + self.calls as usize % 97))
    }
}

fn stopped() -> io::Error {
    io::Error::other("the machine has stopped")
}

thread_local! {
    static ORACLE_READS: Cell<bool> = const { Cell::new(false) };
}

/// Runs what the oracle does to see what is there: nothing goes wrong for it.
pub fn without_faults<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ORACLE_READS.set(self.0);
        }
    }
    let _restore = Restore(ORACLE_READS.replace(true));
    work()
}

type Visitor = Box<dyn FnMut(&Path)>;

thread_local! {
    static VISITOR: RefCell<Option<Visitor>> = const { RefCell::new(None) };
}

/// Runs `work`, and `visitor` with the path before each read of a file that it makes. So others get their turn in the
/// middle of something long that holds no lock while it reads: a pass of the cleaner.
pub fn during_reads<T>(visitor: impl FnMut(&Path) + 'static, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Visitor>);
    impl Drop for Restore {
        fn drop(&mut self) {
            VISITOR.set(self.0.take());
        }
    }
    let _restore = Restore(VISITOR.replace(Some(Box::new(visitor))));
    work()
}

pub(super) fn between_reads(path: &Path) {
    // Taken out while it runs: what it does reads files too.
    if let Some(mut visitor) = VISITOR.take() {
        visitor(path);
        VISITOR.set(Some(visitor));
    }
}
