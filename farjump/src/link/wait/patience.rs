//! Time limits and checks of a caller's wait.

use std::fmt;
use std::time::{Duration, Instant};

/// Time between two checks of a wait.
const CHECKS: Duration = Duration::from_millis(10);
/// Longest part of a wait without a check.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// The time limit of a caller's wait, a check that may end the wait earlier, and a function around its sleeps.
pub struct Patience<'a> {
    timeout: Duration,
    /// `None` until the limit counts.
    clock: Option<Clock>,
    check: Option<&'a mut dyn FnMut() -> bool>,
    /// True after the check returned `false`: a reply may come with the interruption, and the wait consist of several.
    is_interrupted: bool,
    around: Option<Around<'a>>,
}

/// A function around a sleep. It calls its argument once, to sleep.
type Around<'a> = &'a mut dyn FnMut(&mut (dyn FnMut() + Send));

#[derive(Clone, Copy)]
struct Clock {
    deadline: Option<Instant>,
    next_check: Instant,
}

impl<'a> Patience<'a> {
    /// Waits for `timeout` from now.
    pub fn of(timeout: Duration) -> Patience<'a> {
        let mut patience = Patience::of_wait(timeout);
        patience.clock();
        patience
    }

    /// Waits for `timeout` from the first look that finds nothing: if that look finds something, no clock is read.
    pub fn of_wait(timeout: Duration) -> Patience<'a> {
        Patience { timeout, clock: None, check: None, is_interrupted: false, around: None }
    }

    /// Calls `check` about every 10 ms during a wait, on the waiting thread, which then holds no lock of this library.
    /// The wait ends as interrupted when `check` returns `false`, and so does every later wait with this value.
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
    pub fn with_at_least<T>(&mut self, least: Duration, then: impl FnOnce(&mut Self) -> T) -> T {
        let deadline = self.clock().deadline;
        self.clock().deadline = deadline.map(|at| at.max(Instant::now() + least));
        let done = then(self);
        self.clock().deadline = deadline;
        done
    }

    /// The time limit.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the longest sleep between two checks, or `most` if there is no check.
    pub fn longest_sleep(&self, most: Duration) -> Duration {
        if self.check.is_some() { CHECKS } else { most }
    }

    /// Runs `sleep` inside the function around sleeps.
    pub fn sleep(&mut self, mut sleep: impl FnMut() + Send) {
        match &mut self.around {
            Some(around) => around(&mut sleep),
            None => sleep(),
        }
    }

    /// Returns the time left, and at most `most`.
    pub fn slice(&mut self, most: Duration) -> Duration {
        let deadline = self.clock().deadline;
        deadline.map_or(most, |at| at.saturating_duration_since(Instant::now()).min(most))
    }

    /// Returns whether the time is over.
    pub fn is_over(&mut self) -> bool {
        self.clock().deadline.is_some_and(|at| at <= Instant::now())
    }

    /// Returns whether the wait continues: calls the check if it is due. The wait ends once the check has returned
    /// `false`.
    pub fn may_continue(&mut self) -> bool {
        let next_check = self.clock().next_check;
        let Some(check) = &mut self.check else { return true };
        if !self.is_interrupted && Instant::now() >= next_check {
            self.is_interrupted = !check();
            self.clock().next_check = Instant::now() + CHECKS;
        }
        !self.is_interrupted
    }

    /// Returns the time until which a wait needs no check.
    pub(super) fn end_of_turn(&mut self) -> Instant {
        let Clock { deadline, next_check } = *self.clock();
        let end = if self.check.is_some() { next_check } else { Instant::now() + LONGEST_TURN };
        deadline.map_or(end, |deadline| end.min(deadline))
    }

    fn clock(&mut self) -> &mut Clock {
        let timeout = self.timeout;
        self.clock.get_or_insert_with(|| {
            let now = Instant::now();
            Clock { deadline: now.checked_add(timeout), next_check: now + CHECKS }
        })
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
            patience.clock().next_check = Instant::now();
            patience.may_continue()
        };
        assert_eq!([continues(), continues(), continues()], [true, false, false]);
        assert_eq!(checks, 2);
    }
}
