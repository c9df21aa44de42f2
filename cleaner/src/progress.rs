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

    /// So many bytes are still to be read, as far as is known, in all readings of the log.
    pub(crate) fn announce(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.progress.bytes_total = state.progress.bytes_done + bytes;
        self.watch.progress(state.progress);
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
        self.tell(&mut state);
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
    }

    /// After `bytes` were read.
    pub(crate) fn after(&self, bytes: u32) {
        let mut state = lock(&self.state);
        state.progress.bytes_done += u64::from(bytes);
        state.progress.bytes_total = state.progress.bytes_total.max(state.progress.bytes_done);
        self.tell(&mut state);
    }

    /// Tells how far it is. Under the lock, so that it never goes back.
    fn tell(&self, state: &mut State) {
        let State { progress, segments, bytes_again } = state;
        // Those that were read as a whole; the oldest one is at hand until the end.
        while segments.len() > 1 && segments.last().is_some_and(|(_, end)| end + *bytes_again <= progress.bytes_done) {
            segments.pop();
        }
        progress.segment = segments.last().map(|(base, _)| *base);
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
        pace.announce(50);
        pace.after(7);
        pace.announce(260);
        pace.begin(segments.into_iter());
        [20, 10, 60].into_iter().for_each(|bytes| pace.after(bytes));
        pace.expect(30);
        [30, 40].into_iter().for_each(|bytes| pace.after(bytes));
        pace.begin(segments.into_iter());
        [30, 100].into_iter().for_each(|bytes| pace.after(bytes));
        let expected = [
            (None, 0, 50),
            (None, 7, 50),
            (None, 7, 267),
            (Some(60), 7, 267),
            (Some(60), 27, 267),
            (Some(0), 37, 267),
            (Some(0), 97, 267),
            (Some(0), 127, 297),
            (Some(0), 167, 297),
            (Some(60), 167, 297),
            (Some(0), 197, 297),
            (Some(0), 297, 297),
        ];
        let all = lock(&seen.0);
        assert_eq!(all.iter().map(|p| (p.segment, p.bytes_done, p.bytes_total)).collect::<Vec<_>>(), expected);
    }
}
