//! Signals: what would end the process half way ends it in order, or not at all.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use tempfile::TempDir;

/// How often removing is tried while others still write.
const TRIES: usize = 1000;

/// A write beyond the limit for files (`ulimit -f`) fails, and is told like any other failure, instead of ending the process.
pub(crate) fn survive_the_file_size_limit() {
    // Whatever is done about it, it does not end the process. Where that can't be had, it does, as it always did.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// A temporary directory that goes with the process, also where somebody interrupts it.
pub(crate) struct Temporary {
    dir: TempDir,
    signals: Handle,
    watching: Option<JoinHandle<()>>,
}

impl Temporary {
    /// One whose name begins with `prefix`.
    #[allow(clippy::disallowed_methods)] // the library has no part in it
    pub(crate) fn new(prefix: &str) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(prefix).tempdir()?;
        let mut arriving = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (signals, path) = (arriving.handle(), dir.path().to_owned());
        let watching = thread::Builder::new().name("keeplog-signals".into()).spawn(move || {
            if let Some(signal) = arriving.forever().next() {
                // Whatever is still written makes a try fail.
                let _ = (0..TRIES).any(|_| fs::remove_dir_all(&path).is_ok() || !path.exists());
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })?;
        Ok(Self { dir, signals, watching: Some(watching) })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.signals.close();
        if let Some(watching) = self.watching.take() {
            let _ = watching.join(); // it can't panic in a way that matters any more
        }
    }
}
