//! Time limits and checks of a caller's wait.

use std::fmt;
use std::time::{Duration, Instant};

/// Time between two checks of a wait.
const CHECKS: Duration = Duration::from_millis(10);

/// The time limit of a caller's wait, and a check that may end the wait earlier.
pub struct Patience<'a> {
    pub(crate) timeout: Duration,
    deadline: Option<Instant>,
    next_check: Instant,
    check: Option<&'a mut dyn FnMut() -> bool>,
    /// True after the check returned `false`: a reply may come with the interruption, and the wait consist of several.
    is_interrupted: bool,
    around: Option<Around<'a>>,
}

/// A function around a sleep. It calls its argument once, to sleep.
type Around<'a> = &'a mut dyn FnMut(&mut (dyn FnMut() + Send));

impl<'a> Patience<'a> {
    /// Waits for `timeout` from now.
    pub fn of(timeout: Duration) -> Patience<'a> {
        let now = Instant::now();
        Patience {
            timeout,
            deadline: now.checked_add(timeout),
            next_check: now + CHECKS,
            check: None,
            is_interrupted: false,
            around: None,
        }
    }

    /// Calls `check` about every 10 ms during a wait, on the waiting thread, which then holds no lock of this library.
    /// The wait ends with [`Error::Interrupted`](crate::Error::Interrupted) when `check` returns `false`, and so does
    /// every later wait with this value.
    pub fn checked_by(mut self, check: &'a mut dyn FnMut() -> bool) -> Patience<'a> {
        self.check = Some(check);
        self
    }

    /// Makes each sleep inside `around`, which calls its argument once. Use it for a thread that gives something back
    /// while it sleeps, as Python's thread gives back the interpreter's lock.
    pub fn sleeping_in(mut self, around: Around<'a>) -> Patience<'a> {
        self.around = Some(around);
        self
    }

    /// Runs `then` with at least `least` of time left, for a request whose reply is on its way when the time is over.
    pub(crate) fn with_at_least<T>(&mut self, least: Duration, then: impl FnOnce(&mut Self) -> T) -> T {
        let deadline = self.deadline;
        self.deadline = deadline.map(|at| at.max(Instant::now() + least));
        let done = then(self);
        self.deadline = deadline;
        done
    }

    /// Returns the longest sleep between two checks, or `most` if there is no check.
    pub(crate) fn longest_sleep(&self, most: Duration) -> Duration {
        if self.check.is_some() { CHECKS } else { most }
    }

    /// Sleeps.
    pub(crate) fn sleep(&mut self, mut sleep: impl FnMut() + Send) {
        match &mut self.around {
            Some(around) => around(&mut sleep),
            None => sleep(),
        }
    }

    /// Returns the time left, and at most `most`.
    pub(crate) fn slice(&self, most: Duration) -> Duration {
        let left = self.deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        left.min(most)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|at| at <= Instant::now())
    }

    /// Returns whether the wait continues. It does not once the check has returned `false`.
    pub(crate) fn may_continue(&mut self) -> bool {
        let Some(check) = &mut self.check else { return true };
        let now = Instant::now();
        if !self.is_interrupted && now >= self.next_check {
            self.next_check = now + CHECKS;
            self.is_interrupted = !check();
        }
        !self.is_interrupted
    }
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Patience").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_ends_all_that_is_left_of_the_wait() {
        let mut checks = 0;
        let mut check = || {
            checks += 1;
            checks != 2
        };
        let mut patience = Patience::of(Duration::from_secs(3600)).checked_by(&mut check);
        let mut continues = || {
            patience.next_check = Instant::now();
            patience.may_continue()
        };
        assert_eq!([continues(), continues(), continues()], [true, false, false]);
        assert_eq!(checks, 2);
    }
}
