//! Statistics of linked code: its calls, its last call, and an estimate of its time.
//!
//! A call costs two stores here. Timing a call reads the clock twice, which takes longer than a short function. So only
//! some calls are timed: the first 16, and then every 64th, which also stands for the 63 before it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Calls that are always timed: the time of rarely called code is exact.
const FIRST: u64 = 16;
/// Distance between later timed calls.
const PERIOD: u32 = 64;
/// The calls of one image. The one thread that calls it writes them. A concurrent reader may see a call in one number
/// before another. So plain loads and stores are enough, without locked additions.
#[derive(Debug)]
pub struct Usage {
    /// Remaining calls, up to and including the next timed one.
    left: AtomicU32,
    /// Calls from the last timed one to the next, the latter included.
    period: AtomicU32,
    /// Calls made when `left` reaches 0.
    due: AtomicU64,
    last: AtomicU64,
    /// Calls that were timed.
    timed: AtomicU64,
    /// Time of the calls up to the last timed one, in nanoseconds.
    nanoseconds: AtomicU64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage::new()
    }
}

impl Usage {
    /// Makes statistics of code that was never called nor touched.
    pub fn new() -> Usage {
        Usage {
            left: AtomicU32::new(1),
            period: AtomicU32::new(1),
            due: AtomicU64::new(1),
            last: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Continues the counts of `before`, whose code this code replaces. Must precede the first call.
    pub(super) fn continue_from(&self, before: &Usage) {
        for (own, other) in [
            (&self.due, &before.due),
            (&self.last, &before.last),
            (&self.timed, &before.timed),
            (&self.nanoseconds, &before.nanoseconds),
        ] {
            own.store(other.load(Relaxed), Relaxed);
        }
        for (own, other) in [(&self.left, &before.left), (&self.period, &before.period)] {
            own.store(other.load(Relaxed), Relaxed);
        }
    }

    /// Records a use at `now`, in the unit of [`Usage::last`], without a call.
    pub fn touch(&self, now: u64) {
        self.last.store(now, Relaxed);
    }

    /// Returns whether the next call must be timed: then [`Usage::took`] must come before [`Usage::count`].
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.left.load(Relaxed) == 1
    }

    /// Counts a call made at `now`, in the unit of [`Usage::last`]. The call may have ended and its reply have left:
    /// the waiting peer need not wait for the stores here.
    #[inline(always)]
    pub fn count(&self, now: u64) {
        self.last.store(now, Relaxed);
        self.left.store(self.left.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Records the time of a timed call.
    pub fn took(&self, time: Duration) {
        let timed = self.timed.load(Relaxed) + 1;
        self.timed.store(timed, Relaxed);
        // It stands for the calls since the previous timed one.
        let stands_for = u64::from(self.period.load(Relaxed));
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(stands_for);
        self.nanoseconds.store(self.nanoseconds.load(Relaxed).saturating_add(nanoseconds), Relaxed);
        let period = if timed < FIRST { 1 } else { PERIOD };
        self.period.store(period, Relaxed);
        self.due.store(self.due.load(Relaxed) + u64::from(period), Relaxed);
        // The call itself is not counted yet.
        self.left.store(period + 1, Relaxed);
    }

    /// Calls that were counted.
    pub fn calls(&self) -> u64 {
        self.due.load(Relaxed).saturating_sub(self.left.load(Relaxed).into())
    }

    /// Time of the last call or touch, by the caller's clock: a number that grows from call to call. 0 if
    /// never.
    pub fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Total time of all calls: exact for the first 16, an estimate for the others.
    pub fn time(&self) -> Duration {
        let (spent, calls) = (self.nanoseconds.load(Relaxed), self.calls());
        // Assumes the same average time for calls after the last timed one.
        let known = self.due.load(Relaxed).saturating_sub(self.period.load(Relaxed).into());
        let nanoseconds = (u128::from(spent) * u128::from(calls)).checked_div(known.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `times` times, each taking `time`. Returns the number of timed calls.
    fn call(usage: &Usage, times: u64, time: Duration) -> u64 {
        let before = usage.calls();
        let mut timed = 0;
        for call in 1..=times {
            if usage.is_due() {
                usage.took(time);
                timed += 1;
            }
            usage.count(before + call);
            assert_eq!((usage.calls(), usage.last()), (before + call, before + call));
        }
        timed
    }

    #[test]
    fn every_call_is_counted_and_of_short_ones_few_are_timed() {
        let usage = Usage::new();
        assert_eq!((usage.calls(), usage.time()), (0, Duration::ZERO));
        let short = Duration::from_nanos(20);
        assert_eq!(call(&usage, 16, short), 16);
        assert_eq!(usage.time(), 16 * short);
        assert_eq!(call(&usage, 6400, short), 100);
        assert_eq!(usage.time(), 6416 * short);
        assert_eq!(call(&usage, 63, short), 0);
        assert_eq!(usage.time(), 6479 * short, "those since the last timed one count like the others");
    }

    #[test]
    fn code_that_replaces_other_code_counts_on() {
        let (old, new) = (Usage::new(), Usage::new());
        call(&old, 40, Duration::from_nanos(20));
        new.continue_from(&old);
        assert_eq!((new.calls(), new.last(), new.time()), (old.calls(), old.last(), old.time()));
        call(&new, 100, Duration::from_nanos(20));
        assert_eq!(new.calls(), 140);
    }

    #[test]
    fn neither_touching_nor_timing_code_counts_as_a_call() {
        let usage = Usage::new();
        usage.touch(7);
        assert_eq!((usage.calls(), usage.last()), (0, 7));
        usage.took(Duration::from_nanos(20));
        assert_eq!(usage.calls(), 0);
        usage.count(9);
        assert_eq!((usage.calls(), usage.last(), usage.time()), (1, 9, Duration::from_nanos(20)));
    }
}
