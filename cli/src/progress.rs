//! A progress bar on stderr for work that a person is waiting for.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::door::Storage;

/// Nothing is shown before this, so that short work stays quiet.
const QUIET_FOR: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY_BYTES: u64 = 1 << 18;
const REDRAWS_PER_SECOND: u8 = 10;

/// Bytes done of bytes in all, with rate and time left. Shown only when stderr is a terminal and the work has taken over
/// a second; gone again when dropped.
pub(crate) struct Progress<'s> {
    storage: &'s dyn Storage,
    label: String,
    total: u64,
    done: u64,
    /// Bytes at which to look at the clock again.
    next_look: u64,
    started: Duration,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl<'s> Progress<'s> {
    /// Work over `total` bytes. `label` says what is being done ("verifying").
    pub(crate) fn new(storage: &'s dyn Storage, label: &str, total: u64) -> Self {
        Self {
            storage,
            label: label.to_owned(),
            total,
            done: 0,
            next_look: 0,
            started: storage.monotonic(),
            wanted: io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// As `new`, for a command that prints while it works: on a terminal the output itself is the progress.
    pub(crate) fn beside_output(storage: &'s dyn Storage, label: &str, total: u64) -> Self {
        let mut progress = Self::new(storage, label, total);
        progress.wanted &= !io::stdout().is_terminal();
        progress
    }

    /// `bytes` more are done.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if self.wanted && self.done >= self.next_look {
            self.next_look = self.done + LOOK_EVERY_BYTES;
            self.look();
        }
    }

    /// `done` of `total` bytes are done.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        (self.done, self.total) = (done, total);
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
        if self.wanted {
            self.look();
        }
    }

    fn look(&mut self) {
        let elapsed = self.storage.monotonic().saturating_sub(self.started);
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if elapsed >= QUIET_FOR {
            let bar =
                ProgressBar::with_draw_target(Some(self.total.max(self.done)), ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND));
            // invariant: the template is a constant of ours and parses (see the test).
            let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar =
                bar.with_style(style.progress_chars("=> ")).with_message(self.label.clone()).with_elapsed(elapsed).with_position(self.done);
            self.bar = Some(bar);
        }
    }
}

/// Runs `work` and shows how far `done` has come on from where it is now, of `total` bytes.
pub(crate) fn watch<T>(storage: &dyn Storage, label: &str, total: u64, done: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let mut progress = Progress::new(storage, label, total);
    let before = done.load(Ordering::Relaxed);
    if !progress.wanted {
        return work();
    }
    let (finished, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // The library starts no thread that could say how far it is.
        scope.spawn(move || {
            // Ends when the sender is dropped, also by a panic of the work.
            while wait.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress.done = (done.load(Ordering::Relaxed) - before).min(total);
                progress.look();
            }
        });
        let result = work();
        drop(finished);
        result
    })
}

const TEMPLATE: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_parses() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
