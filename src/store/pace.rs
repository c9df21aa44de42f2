//! How fast the passes of a store go, all together, when they rest, and when they stop.

use std::time::Duration;

use keeplog_cleaner::Watch;
use keeplog_engine::Log;
use keeplog_engine::sync::atomic::{AtomicBool, Ordering};
use keeplog_engine::sync::{Condvar, Mutex, MutexGuard, PoisonError, wait_at_most};

use super::Inner;
use super::cleaning::For;
use super::growth::Growth;
use super::passes::Pass;

/// How often a pass that waits looks whether its log is wanted, and at the clock.
const LOOK: Duration = Duration::from_millis(20);

/// What passes may do.
pub(super) struct Pace {
    stop: AtomicBool,
    account: Mutex<Account>,
    changed: Condvar,
}

/// Bytes that were read and written, against the rate.
#[derive(Debug)]
struct Account {
    bytes_per_second: u64,
    /// Bytes done that the rate has not allowed yet, at the time `as_of` of the monotonic clock.
    debt_bytes: f64,
    as_of: Duration,
}

impl Account {
    /// How long to wait at the time `now`.
    fn wait(&mut self, now: Duration) -> Duration {
        let allowed = now.saturating_sub(self.as_of).as_secs_f64() * self.bytes_per_second as f64;
        self.debt_bytes = (self.debt_bytes - allowed).max(0.0);
        self.as_of = now;
        Duration::try_from_secs_f64(self.debt_bytes / self.bytes_per_second as f64).unwrap_or(Duration::MAX)
    }
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64, now: Duration) -> Self {
        let account = Account { bytes_per_second, debt_bytes: 0.0, as_of: now };
        Self { stop: AtomicBool::new(false), account: Mutex::new(account), changed: Condvar::new() }
    }

    /// From `now` on, passes go at this rate, also those under way.
    pub(super) fn set_rate(&self, bytes_per_second: u64, now: Duration) {
        let mut account = self.account();
        account.wait(now);
        account.bytes_per_second = bytes_per_second;
        self.changed.notify_all();
    }

    /// Passes stop, and wait for nothing any more.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Passes that wait look whether they are still wanted.
    pub(super) fn wake(&self) {
        // Whoever is about to wait has seen what changed, or is woken.
        let _account = self.account();
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner) // numbers that are right at any time
    }
}

/// Keeps one pass to the pace, from its begin until it is dropped.
pub(super) struct Paced<'a> {
    inner: &'a Inner,
    log: &'a Log,
    pass: &'a Pass<'a>,
    growth: Growth,
    sake: For,
}

impl<'a> Paced<'a> {
    pub(super) fn begin(inner: &'a Inner, log: &'a Log, pass: &'a Pass<'a>, sake: For) -> Self {
        inner.guard.work_from(log.storage().monotonic());
        inner.data_dir.append_latency().begin_work();
        Self { inner, log, pass, growth: Growth::since_now(log), sake }
    }

    /// Waits as long as `left` says, from one look to the next. Nobody who wants the log to himself waits for that.
    fn wait(&self, mut left: impl FnMut(&mut Account) -> Duration) {
        let pace = &self.inner.pace;
        let mut account = pace.account();
        loop {
            let wait = left(&mut account);
            if wait.is_zero() || self.is_stopped() || self.log.is_wanted() {
                return;
            }
            account = wait_at_most(&pace.changed, &pace.account, account, wait.min(LOOK));
        }
    }

    /// Rests as long as appends need it, and the log does not grow too much meanwhile.
    fn give_way(&self, now: Duration) {
        let is_wanted = || self.inner.options().yield_to_appends && !self.growth.asks_for_haste(self.log);
        if !is_wanted() {
            return;
        }
        let until = self.inner.guard.rest_until(now, self.inner.data_dir.append_latency());
        self.wait(|_| if is_wanted() { until.saturating_sub(self.log.storage().monotonic()) } else { Duration::ZERO });
    }
}

impl Watch for Paced<'_> {
    fn is_stopped(&self) -> bool {
        let is_switched_off = || self.sake == For::Background && !self.inner.options().log_cleaner_enable;
        self.inner.pace.is_stopped() || self.pass.is_unwanted() || is_switched_off()
    }

    fn wants_room(&self) -> bool {
        self.growth.asks_for_room(self.log)
    }

    fn charge(&self, bytes: u64) {
        self.inner.metrics.charged(bytes);
        let clock = self.log.storage();
        let now = clock.monotonic();
        self.give_way(now);
        {
            let mut account = self.inner.pace.account();
            account.wait(clock.monotonic());
            account.debt_bytes += bytes as f64;
        }
        self.wait(|account| account.wait(clock.monotonic()));
        self.inner.guard.work_from(clock.monotonic());
    }
}

impl Drop for Paced<'_> {
    fn drop(&mut self) {
        self.inner.data_dir.append_latency().end_work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn b16_a_new_rate_holds_from_the_moment_it_is_set() {
        let mut now = Duration::from_secs(100);
        let pace = Pace::new(10 * MIB, now);
        let clean = |bytes: u64, now: &mut Duration| {
            let began = *now;
            for _ in 0..bytes / (MIB / 2) {
                pace.account().wait(*now);
                pace.account().debt_bytes += (MIB / 2) as f64;
                *now += pace.account().wait(*now);
            }
            (*now - began).as_secs_f64()
        };
        let about = |seconds: f64, expected: f64| assert!((seconds - expected).abs() < expected / 100.0, "{seconds} s for {expected} s");
        about(clean(100 * MIB, &mut now), 10.0);
        pace.set_rate(50 * MIB, now);
        about(clean(100 * MIB, &mut now), 2.0);
        // What is owed from before is paid at the new rate, and time in which nothing was done is not saved up.
        pace.account().debt_bytes += (100 * MIB) as f64;
        pace.set_rate(10 * MIB, now);
        about(pace.account().wait(now).as_secs_f64(), 10.0);
        now += Duration::from_secs(1000);
        about(clean(10 * MIB, &mut now), 1.0);
        pace.set_rate(u64::MAX, now);
        assert!(clean(1000 * MIB, &mut now) < 0.001);
    }
}
