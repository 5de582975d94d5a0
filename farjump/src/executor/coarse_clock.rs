//! A clock for the times of calls that is not read at each call.

use std::time::Instant;

/// Nanoseconds since the executor was made, as of the last reading of the system's clock, plus one for each
/// call since. So each call has a time of its own, later than that of every call before it. The error is the
/// time since the last reading. (No call takes less than a nanosecond: the clock never runs ahead.)
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    nanoseconds: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { start: Instant::now(), nanoseconds: 0 }
    }

    /// The time of the present event.
    #[inline(always)]
    pub(crate) fn tick(&mut self) -> u64 {
        self.nanoseconds += 1;
        self.nanoseconds
    }

    /// Reads the system's clock, and returns the reading.
    pub(crate) fn set(&mut self) -> Instant {
        let (now, nanoseconds) = self.look();
        self.nanoseconds = nanoseconds;
        now
    }

    /// Returns the time that [`Clock::tick`] would return right after a reading.
    pub(crate) fn now(&self) -> u64 {
        self.look().1
    }

    fn look(&self) -> (Instant, u64) {
        let now = Instant::now();
        let elapsed = u64::try_from(now.duration_since(self.start).as_nanos()).unwrap_or(u64::MAX);
        (now, self.nanoseconds.max(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ascend_whether_the_clock_is_looked_at_or_not() {
        let mut clock = Clock::new();
        let mut before = 0;
        for turn in 0..10_000 {
            if turn % 7 == 0 {
                clock.set();
            }
            let now = clock.tick();
            assert!(now > before);
            before = now;
        }
        assert!(clock.now() >= before);
    }
}
