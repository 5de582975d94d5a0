//! The clock by which leases end.

/// The present time.
#[cfg(not(test))]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
pub(crate) use stepping::now;

/// A clock for tests, each thread's own: every reading is later than the last, and counted.
#[cfg(test)]
pub(crate) mod stepping {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    thread_local! {
        static READINGS: Cell<u32> = const { Cell::new(0) };
        static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        static STEP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(crate) fn now() -> Instant {
        READINGS.set(READINGS.get() + 1);
        AHEAD.set(AHEAD.get() + STEP.get());
        Instant::now() + AHEAD.get()
    }

    /// Makes `step` pass with each reading on this thread.
    pub(crate) fn step_by(step: Duration) {
        STEP.set(step);
    }

    /// Returns the number of readings on this thread so far.
    pub(crate) fn readings() -> u32 {
        READINGS.get()
    }
}
