//! A progress bar on stderr for work that a person is waiting for.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::door::Storage;
use crate::output;

/// Nothing is shown before this, so that short work stays quiet.
const QUIET_FOR: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY_BYTES: u64 = 1 << 18;

/// What is counted.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Bytes,
    Things,
}

/// Bytes done of bytes in all, with rate and time left. Shown only when stderr is a terminal and the work has taken over
/// a second; gone again when dropped.
pub(crate) struct Progress<'s> {
    storage: &'s dyn Storage,
    label: String,
    /// Shown at the end of the line, where a narrow terminal cuts it off.
    at_hand: String,
    total: u64,
    done: u64,
    /// Bytes at which to look at the clock again.
    next_look: u64,
    started: Duration,
    /// When to show something new, from `started` on.
    look_at: Duration,
    wanted: bool,
    unit: Unit,
    bar: Option<ProgressBar>,
}

impl<'s> Progress<'s> {
    /// Work over `total` bytes. `label` says what is being done ("verifying").
    pub(crate) fn new(storage: &'s dyn Storage, label: &str, total: u64) -> Self {
        Self {
            storage,
            label: label.to_owned(),
            at_hand: String::new(),
            total,
            done: 0,
            next_look: 0,
            started: storage.monotonic(),
            look_at: QUIET_FOR,
            wanted: io::stderr().is_terminal(),
            unit: Unit::Bytes,
            bar: None,
        }
    }

    /// As `new`, over `total` things that are no bytes.
    pub(crate) fn counting(storage: &'s dyn Storage, label: &str, total: u64) -> Self {
        let mut progress = Self::new(storage, label, total);
        progress.unit = Unit::Things;
        progress
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
        if self.wanted {
            self.look();
        }
    }

    /// What is at hand, from the next look on ("segment 42").
    pub(crate) fn note(&mut self, at_hand: impl FnOnce() -> String) {
        if self.wanted {
            self.at_hand = at_hand();
        }
    }

    /// Makes room for output. The next look draws it again.
    pub(crate) fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn look(&mut self) {
        let elapsed = self.storage.monotonic().saturating_sub(self.started);
        if elapsed < self.look_at {
            return;
        }
        self.look_at = elapsed + LOOK_EVERY;
        let bar = self.bar.get_or_insert_with(|| {
            // invariant: the template is a constant of ours and parses (see the test).
            let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr());
            bar.with_style(style.progress_chars("=> ")).with_prefix(self.label.clone())
        });
        let joint = if self.at_hand.is_empty() { "" } else { ", " };
        bar.set_message(format!("{}{joint}{}", self.unit.describe(self.done, self.total, elapsed.as_secs_f64()), self.at_hand));
        bar.set_length(self.total.max(self.done));
        bar.set_position(self.done);
    }
}

impl Unit {
    /// `10.0 MiB of 100.0 MiB, 5.0 MiB/s, 18 s left`: the average so far says how long it will take.
    fn describe(self, done: u64, total: u64, seconds: f64) -> String {
        let rate = done as f64 / seconds.max(f64::EPSILON);
        let left = if done == 0 { "?".to_owned() } else { whole_seconds(total.saturating_sub(done) as f64 / rate) };
        match self {
            Self::Bytes => format!("{} of {}, {}/s, {left} left", output::bytes(done), output::bytes(total), output::bytes(rate as u64)),
            Self::Things => format!("{} of {}, {}/s, {left} left", output::count(done), output::count(total), output::count(rate as u64)),
        }
    }
}

fn whole_seconds(seconds: f64) -> String {
    if seconds < 120.0 { format!("{:.0} s", seconds.ceil()) } else { output::seconds(seconds) }
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

/// Short enough for 80 columns.
const TEMPLATE: &str = "{prefix} [{bar:20}] {msg}";

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.hide();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_rate_tells_the_time_left() {
        assert_eq!(Unit::Bytes.describe(10 << 20, 100 << 20, 2.0), "10.0 MiB of 100.0 MiB, 5.0 MiB/s, 18 s left");
        assert_eq!(Unit::Things.describe(0, 1000, 1.0), "0 of 1,000, 0/s, ? left");
    }

    #[test]
    fn the_template_parses() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
