//! How far a pass is, told to whoever watches it. Several may work on it.

use keeplog_engine::sync::Mutex;

use crate::options::{Progress, Watch};
use crate::work::lock;

/// The pace of a pass: its watcher sets it, and hears of it.
pub(crate) struct Pace<'a> {
    watch: &'a dyn Watch,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    progress: Progress,
    /// Segments that are still to be read or at hand, ascending: the base offset, and the bytes done when its last byte
    /// is read, but for `bytes_again`.
    segments: Vec<(u64, u64)>,
    /// Bytes read a second time.
    bytes_again: u64,
}

impl<'a> Pace<'a> {
    /// Nothing is done, and nothing is known of what is to be done.
    pub(crate) fn new(watch: &'a dyn Watch) -> Self {
        Self { watch, state: Mutex::default() }
    }

    /// Whether the watcher wants the pass to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    /// So many bytes are to be read, in all readings of the log.
    pub(crate) fn announce(&self, bytes: u64) {
        lock(&self.state).progress.bytes_total += bytes;
    }

    /// Segments are read from now on, once, the last of `segments` first: base offsets and bytes.
    pub(crate) fn begin(&self, segments: impl DoubleEndedIterator<Item = (u64, u32)>) {
        let mut state = lock(&self.state);
        let mut end = state.progress.bytes_done;
        let begun = segments.rev().map(|(base, bytes)| {
            end += u64::from(bytes);
            (base, end)
        });
        state.segments = begun.collect();
        state.segments.reverse();
        state.bytes_again = 0;
    }

    /// Before `bytes` are read a second time, in between.
    pub(crate) fn expect(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.progress.bytes_total += bytes;
        state.bytes_again += bytes;
    }

    /// Before `bytes` are read; may block.
    pub(crate) fn before(&self, bytes: u32) {
        self.watch.charge(u64::from(bytes));
        let mut state = lock(&self.state);
        let State { progress, segments, bytes_again } = &mut *state;
        // Those that were read as a whole before this; the oldest one is at hand until the end.
        while segments.len() > 1 && segments.last().is_some_and(|(_, end)| end + *bytes_again <= progress.bytes_done) {
            segments.pop();
        }
        progress.segment = segments.last().map(|(base, _)| *base);
        progress.bytes_done += u64::from(bytes);
        progress.bytes_total = progress.bytes_total.max(progress.bytes_done);
        // Under the lock, so that it never goes back.
        self.watch.progress(*progress);
    }

    /// Before `bytes` are written; may block.
    pub(crate) fn before_writing(&self, bytes: u64) {
        self.watch.charge(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Vec<Progress>>);

    impl Watch for Seen {
        fn progress(&self, progress: Progress) {
            lock(&self.0).push(progress);
        }
    }

    #[test]
    fn the_segment_at_hand_is_told_also_when_bytes_or_the_whole_log_are_read_twice() {
        let seen = Seen::default();
        let pace = Pace::new(&seen);
        let segments = [(0, 100), (50, 0), (60, 30)];
        pace.before(7);
        pace.announce(260);
        pace.begin(segments.into_iter());
        pace.before(20);
        pace.before(10);
        pace.before(60);
        pace.expect(30);
        pace.before(30);
        pace.before(40);
        pace.begin(segments.into_iter());
        pace.before(30);
        pace.before(100);
        let expected = [
            (None, 7, 7),
            (Some(60), 27, 267),
            (Some(60), 37, 267),
            (Some(0), 97, 267),
            (Some(0), 127, 297),
            (Some(0), 167, 297),
            (Some(60), 197, 297),
            (Some(0), 297, 297),
        ];
        let all = lock(&seen.0);
        assert_eq!(all.iter().map(|p| (p.segment, p.bytes_done, p.bytes_total)).collect::<Vec<_>>(), expected);
    }
}
