//! Latencies counted in buckets: memory stays the same however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets between one power of two and the next: each is an eighth of its power wide.
const STEPS: usize = 8;
const BUCKETS: usize = 64 * STEPS;

/// How often each latency was seen, to an eighth.
pub(crate) struct Latencies {
    counts: Vec<AtomicU64>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn note(&self, latency: Duration) {
        self.counts[bucket(latency.as_nanos() as u64)].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what was counted since the last time.
    pub(crate) fn take(&self) -> Taken {
        Taken(self.counts.iter().map(|count| count.swap(0, Ordering::Relaxed)).collect())
    }
}

/// Latencies of some period.
pub(crate) struct Taken(Vec<u64>);

impl Taken {
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency that `share` of all do not exceed, microseconds; `None` of none.
    pub(crate) fn at_us(&self, share: f64) -> Option<f64> {
        let rank = (self.count() as f64 * share) as u64;
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen > rank
        });
        found.map(|bucket| upper_ns(bucket) as f64 / 1000.0)
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    let step = (ns >> (power - STEPS.ilog2() as usize)) as usize - STEPS;
    (power - STEPS.ilog2() as usize + 1) * STEPS + step
}

/// Largest latency of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = (bucket / STEPS - 1, (bucket % STEPS) as u64);
    ((STEPS as u64 + step + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_known_to_an_eighth() {
        for ns in (0..100_000).chain([1 << 40, (1 << 40) + 12345]) {
            let upper = upper_ns(bucket(ns));
            assert!(ns <= upper && upper <= ns + ns / 8, "{ns}: {upper}");
        }
        let latencies = Latencies::new();
        assert_eq!(latencies.take().at_us(0.5), None);
        (1..=1000).for_each(|us| latencies.note(Duration::from_micros(us)));
        let taken = latencies.take();
        assert_eq!(taken.count(), 1000);
        assert!(taken.at_us(0.5).is_some_and(|us| (500.0..570.0).contains(&us)));
        assert!(taken.at_us(0.99).is_some_and(|us| (990.0..1120.0).contains(&us)));
        assert_eq!(latencies.take().count(), 0, "they were taken");
    }
}
