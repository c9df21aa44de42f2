//! How long appends take while they are alone, and while something else is at work beside them: measured so cheaply that it is
//! always on where somebody wants to know, and never where nobody does.
//!
//! One append in eight is timed, by the monotonic clock of the storage. Of the times an exponential average is kept, in which the
//! last sixteen or so count; a single one counts for no more than sixteen times what the average was, so that one stall of the
//! device does not hide what came before. There are no locks: where two threads note at the same moment, one of them is lost.

use std::time::Duration;

use crate::config::Durability;
use crate::storage::Storage;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Of so many samples an average is the most part.
const WEIGHT: u64 = 16;
/// A sample counts for no more than so many times the average.
const OUTLIER: u64 = 16;
/// One append in 2^3 is timed.
const SAMPLE_BITS: u32 = 3;

/// Times of the appends to all logs of a data directory.
#[derive(Debug, Default)]
pub struct AppendLatency {
    is_wanted: AtomicBool,
    /// How many are at work beside the appends.
    at_work: AtomicUsize,
    /// Until when those rest, ns of the monotonic clock.
    rest_until_ns: AtomicU64,
    /// By durability: appends that are known to be written, and to be synced.
    times: [Times; 2],
}

#[derive(Debug, Default)]
struct Times {
    alone: Average,
    beside: Average,
}

/// An exponential average, ns; 0 before the first sample.
#[derive(Debug, Default)]
struct Average {
    ns: AtomicU64,
    samples: AtomicU64,
}

impl Average {
    fn note(&self, time: Duration) {
        let sample = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let before = self.ns.load(Ordering::Relaxed);
        let after = match before {
            0 => sample,
            _ => (before - before / WEIGHT + sample.min(before.saturating_mul(OUTLIER)) / WEIGHT).max(1),
        };
        self.ns.store(after, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
    }
}

/// An append that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    at: Duration,
    is_beside: bool,
}

impl AppendLatency {
    /// Whether appends are to be timed. Nobody wants it, to begin with.
    pub fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// Somebody is at work from now on. To be ended by [`AppendLatency::end_work`].
    pub fn begin_work(&self) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
    }

    /// One of those at work is not any more.
    pub fn end_work(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// All that are at work rest until `moment` of the monotonic clock: appends until then are alone.
    pub fn rest_until(&self, moment: Duration) {
        self.rest_until_ns.store(nanos(moment), Ordering::Relaxed);
    }

    /// How many times as long appends take beside the work as alone, the worse of buffered and synced ones; `None` while
    /// that is not known.
    #[must_use]
    pub fn rise(&self) -> Option<f64> {
        let rise = |times: &Times| {
            let [alone, beside] = [&times.alone, &times.beside].map(|average| average.ns.load(Ordering::Relaxed));
            (alone > 0 && beside > 0).then(|| beside as f64 / alone as f64)
        };
        self.times.iter().filter_map(rise).reduce(f64::max)
    }

    /// How many appends were timed beside the work so far.
    #[must_use]
    pub fn samples_beside(&self) -> u64 {
        self.times.iter().map(|times| times.beside.samples.load(Ordering::Relaxed)).sum()
    }

    /// An append to a log that ends at `end_offset` begins; `None` if it is not timed.
    pub(crate) fn start(&self, end_offset: u64, clock: &dyn Storage) -> Option<Started> {
        // Whatever the number of records in a batch is, the multiples of this number are spread evenly.
        let is_sampled = end_offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SAMPLE_BITS) == 0;
        if !is_sampled || !self.is_wanted.load(Ordering::Relaxed) {
            return None;
        }
        let at = clock.monotonic();
        let is_beside = self.at_work.load(Ordering::Relaxed) > 0 && nanos(at) >= self.rest_until_ns.load(Ordering::Relaxed);
        Some(Started { at, is_beside })
    }

    /// It is acknowledged.
    pub(crate) fn finish(&self, started: Started, durability: Durability, clock: &dyn Storage) {
        let times = &self.times[usize::from(durability == Durability::Synced)];
        let average = if started.is_beside { &times.beside } else { &times.alone };
        average.note(clock.monotonic().saturating_sub(started.at));
    }
}

fn nanos(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    /// Appends that take `ms` each, one record after the other.
    fn appends(latency: &AppendLatency, clock: &MemoryStorage, offsets: std::ops::Range<u64>, durability: Durability, ms: u64) {
        for offset in offsets {
            let started = latency.start(offset, clock);
            clock.advance_ms(ms);
            if let Some(started) = started {
                latency.finish(started, durability, clock);
            }
        }
    }

    #[test]
    fn appends_beside_work_are_compared_with_those_alone() {
        let (latency, clock) = (AppendLatency::default(), MemoryStorage::new());
        appends(&latency, &clock, 0..1000, Durability::Buffered, 5);
        latency.begin_work();
        appends(&latency, &clock, 0..1000, Durability::Buffered, 5);
        assert_eq!((latency.rise(), latency.samples_beside()), (None, 0), "nobody wants to know");
        latency.set_wanted(true);
        latency.end_work();
        appends(&latency, &clock, 0..1000, Durability::Buffered, 5);
        assert_eq!(latency.rise(), None, "there is no work");
        latency.begin_work();
        appends(&latency, &clock, 0..1000, Durability::Buffered, 20);
        assert!(latency.rise().is_some_and(|rise| (3.9..4.1).contains(&rise)), "{latency:?}");
        // Those to be synced are compared among themselves.
        appends(&latency, &clock, 0..1000, Durability::Synced, 100);
        assert!(latency.rise().is_some_and(|rise| (3.9..4.1).contains(&rise)), "{latency:?}");
        // While the work rests, appends are alone.
        latency.rest_until(clock.monotonic() + Duration::from_secs(3600));
        let before = latency.samples_beside();
        appends(&latency, &clock, 0..1000, Durability::Synced, 10);
        assert_eq!(latency.samples_beside(), before);
        assert!(latency.rise().is_some_and(|rise| (9.9..10.1).contains(&rise)), "{latency:?}");
        clock.advance_ms(3_600_000);
        appends(&latency, &clock, 0..1000, Durability::Synced, 10);
        assert!(latency.rise().is_some_and(|rise| (3.9..4.1).contains(&rise)), "{latency:?}");
    }

    #[test]
    fn one_append_in_eight_is_timed_whatever_batches_are() {
        for records in [1, 2, 7, 8, 16, 100, 1024] {
            let (latency, clock) = (AppendLatency::default(), MemoryStorage::new());
            latency.set_wanted(true);
            let timed = (0..10_000).filter(|batch| latency.start(3 + batch * records, &clock).is_some()).count();
            assert!((1000..1500).contains(&timed), "{timed} of 10,000 batches of {records}");
        }
    }

    #[test]
    fn a_single_stall_counts_for_little() {
        let average = Average::default();
        (0..100).for_each(|_| average.note(Duration::from_micros(10)));
        average.note(Duration::from_secs(1));
        assert!(average.ns.load(Ordering::Relaxed) < 25_000, "{average:?}");
        (0..100).for_each(|_| average.note(Duration::from_micros(10)));
        assert!(average.ns.load(Ordering::Relaxed) < 10_500, "{average:?}");
    }
}
