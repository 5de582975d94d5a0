//! When calls were made, without asking a clock for each.

use std::time::Instant;

/// Nanoseconds since the executor was made, as far as anybody has looked, and one more for each call. So each call has a time
/// of its own, later than that of every call before it, and off by what passed since somebody looked. (No call takes less than
/// a nanosecond: it never runs ahead.)
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    nanoseconds: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { start: Instant::now(), nanoseconds: 0 }
    }

    /// The time of what happens now.
    #[inline(always)]
    pub(crate) fn tick(&mut self) -> u64 {
        self.nanoseconds += 1;
        self.nanoseconds
    }

    /// Looks at the system's clock, and says what it showed.
    pub(crate) fn set(&mut self) -> Instant {
        let (now, nanoseconds) = self.look();
        self.nanoseconds = nanoseconds;
        now
    }

    /// What [`Clock::tick`] would give if somebody looked first.
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
