//! Passes give way to appends: when appends take longer while passes work than while none does, passes rest between two chunks.
//!
//! How much they rest goes up with each look that shows a rise, and down with each that shows none. It is bounded, so that a pass
//! works a tenth of its time at least: a cleaner that never comes to its end would be worse for appends than one that disturbs them.

use std::time::Duration;

use keeplog_engine::AppendLatency;
use keeplog_engine::sync::{Mutex, MutexGuard, PoisonError};

/// Appends that take so many times as long as alone are disturbed.
const RISE: f64 = 1.5;
/// Rest for one unit of work: at the first rise, and at most.
const REST_FIRST: f64 = 0.25;
const REST_MAX: f64 = 9.0;
/// By how much the rest grows, and shrinks, with each look.
const GROWTH: f64 = 1.5;
const DECAY: f64 = 0.75;
/// Without news of appends there is nobody to give way to.
const STALE_AFTER: Duration = Duration::from_millis(500);
/// At one time.
const ONE_REST_MAX: Duration = Duration::from_secs(1);

/// How much the passes of a store rest.
#[derive(Default)]
pub(super) struct Guard {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Rest for one unit of work.
    share: f64,
    /// What was known of appends when that was last changed, and when that was.
    samples: u64,
    as_of: Duration,
    /// Since when passes have worked without a rest, and until when they rest.
    working_since: Duration,
    rest_until: Duration,
    rested: Duration,
}

impl State {
    /// At a moment between two chunks: until when to rest.
    fn look(&mut self, now: Duration, rise: Option<f64>, samples: u64) -> Duration {
        if now < self.rest_until {
            return self.rest_until; // another thread has found out already
        }
        if samples != self.samples {
            let is_disturbed = rise.is_some_and(|rise| rise > RISE);
            self.share = if is_disturbed { (self.share * GROWTH).clamp(REST_FIRST, REST_MAX) } else { self.share * DECAY };
            (self.samples, self.as_of) = (samples, now);
        } else if now.saturating_sub(self.as_of) >= STALE_AFTER {
            self.share *= DECAY;
            self.as_of = now;
        }
        if self.share < REST_FIRST / 2.0 {
            self.share = 0.0;
        }
        let rest = now.saturating_sub(self.working_since).mul_f64(self.share).min(ONE_REST_MAX);
        self.rested += rest;
        self.rest_until = now + rest;
        self.rest_until
    }
}

impl Guard {
    /// A pass begins, or goes on after it has waited for something.
    pub(super) fn work_from(&self, now: Duration) {
        let mut state = self.state();
        state.working_since = state.working_since.max(now);
    }

    /// At a moment between two chunks: until when the pass is to rest.
    pub(super) fn rest_until(&self, now: Duration, latency: &AppendLatency) -> Duration {
        let until = self.state().look(now, latency.rise(), latency.samples_beside());
        latency.rest_until(until);
        until
    }

    /// How long passes have rested for the sake of appends.
    pub(super) fn rested(&self) -> Duration {
        self.state().rested
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // numbers that are right at any time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Duration = Duration::from_millis(2);

    /// Chunks of a pass on one thread, with news of appends at each of them: time worked and rested.
    fn chunks(guard: &Guard, now: &mut Duration, count: u64, rise: impl Fn(u64) -> Option<f64>) -> (Duration, Duration) {
        let before = guard.rested();
        for chunk in 0..count {
            guard.work_from(*now);
            *now += CHUNK;
            let samples = guard.state().samples + 1;
            *now = guard.state().look(*now, rise(chunk), samples);
        }
        (CHUNK * count as u32, guard.rested() - before)
    }

    #[test]
    fn a_pass_rests_while_appends_are_disturbed_and_never_more_than_nine_tenths() {
        let (guard, mut now) = (Guard::default(), Duration::from_secs(100));
        assert_eq!(chunks(&guard, &mut now, 1000, |_| None).1, Duration::ZERO, "nobody appends");
        assert_eq!(chunks(&guard, &mut now, 1000, |_| Some(1.4)).1, Duration::ZERO, "nobody is disturbed");
        let (worked, rested) = chunks(&guard, &mut now, 1000, |_| Some(100.0));
        assert!(rested <= worked * 9 && rested >= worked * 8, "{rested:?} for {worked:?}");
        assert_eq!(guard.state().share.to_bits(), REST_MAX.to_bits());
        // Soon after appends are as fast as alone, it does not rest any more.
        let (_, rested) = chunks(&guard, &mut now, 30, |_| Some(1.0));
        assert!(rested > Duration::ZERO);
        assert_eq!(chunks(&guard, &mut now, 1000, |_| Some(1.0)).1, Duration::ZERO);
        // Where resting helps, it goes up and down between the two.
        let (worked, rested) = chunks(&guard, &mut now, 1000, |chunk| Some(if chunk % 3 == 0 { 2.0 } else { 1.0 }));
        assert!(rested > Duration::ZERO && rested < worked, "{rested:?} for {worked:?}");
    }

    #[test]
    fn old_news_are_no_reason_to_rest() {
        let (guard, mut now) = (Guard::default(), Duration::from_secs(100));
        chunks(&guard, &mut now, 100, |_| Some(100.0));
        let samples = guard.state().samples;
        let mut chunks = 0;
        while guard.state().share > 0.0 {
            guard.work_from(now);
            now += CHUNK;
            now = guard.state().look(now, Some(100.0), samples);
            chunks += 1;
            assert!(chunks < 10_000, "it still rests");
        }
        assert!(chunks > 1);
    }

    #[test]
    fn threads_of_a_pass_rest_together() {
        let guard = Guard::default();
        let at = |ms| Duration::from_millis(ms);
        guard.work_from(at(0));
        let until = guard.state().look(at(8), Some(9.0), 1);
        assert_eq!(until, at(10), "a quarter of its work");
        assert_eq!(guard.state().look(at(9), Some(9.0), 2), until, "whoever comes meanwhile");
        assert_eq!(guard.rested(), at(2));
        // A wait for something else is no work.
        guard.work_from(at(100));
        assert_eq!(guard.state().look(at(108), Some(1.0), 3), at(108) + at(8).mul_f64(REST_FIRST * DECAY));
    }
}
