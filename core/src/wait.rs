//! Waiting: turns of spinning without `pause`, then with it, then of yielding, before sleeping.
//!
//! A `pause` costs up to 140 cycles and doubles the one-way time of a line between two cores, so the first
//! turns do without it. A longer wait leaves the core to other threads, and at last sleeps.

/// The lengths of the phases, in turns of the waiting loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPolicy {
    /// Turns without `pause`.
    pub spins: u32,
    /// Turns with `pause` after those.
    pub pauses: u32,
    /// Turns that give the processor to another thread after those.
    pub yields: u32,
}

impl WaitPolicy {
    /// The policy for a machine with `cores` cores on which `pollers` threads, this one included, poll at the
    /// same time. If pollers share a core, spinning would keep the peer from running, so it is left out.
    pub const fn for_cores(cores: usize, pollers: usize) -> Self {
        if pollers <= cores {
            WaitPolicy { spins: 4_000, pauses: 1_000, yields: 16 }
        } else {
            WaitPolicy { spins: 20, pauses: 0, yields: 16 }
        }
    }

    /// Never sleeps before `u32::MAX` turns: for benchmarks and for runtimes that own the core.
    pub const fn spin_only() -> Self {
        WaitPolicy { spins: u32::MAX, pauses: 0, yields: 0 }
    }

    /// Goes to sleep at once.
    pub const fn sleep_only() -> Self {
        WaitPolicy { spins: 0, pauses: 0, yields: 0 }
    }
}

/// The action of one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Poll again; [`Waiter::turn`] has spun or paused already.
    Again,
    /// Yield the processor, then poll again.
    Yield,
    /// Sleep on the available descriptor.
    Sleep,
}

/// One wait, from one event to the next.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    turn: u32,
}

impl Waiter {
    /// Makes a wait that has not begun.
    pub const fn new(policy: WaitPolicy) -> Self {
        Waiter { policy, turn: 0 }
    }

    /// Restarts the wait: something was found.
    #[inline]
    pub fn reset(&mut self) {
        self.turn = 0;
    }

    /// Turns since something was found.
    #[inline]
    pub fn turns(&self) -> u32 {
        self.turn
    }

    /// One turn without result: spins or pauses if this turn is for that, then returns the action to take.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        let turn = self.turn;
        self.turn = turn.saturating_add(1);
        if turn < self.policy.spins {
            return Turn::Again;
        }
        self.later(turn - self.policy.spins)
    }

    #[cold]
    fn later(&self, turn: u32) -> Turn {
        if turn < self.policy.pauses {
            core::hint::spin_loop();
            Turn::Again
        } else if turn - self.policy.pauses < self.policy.yields {
            Turn::Yield
        } else {
            Turn::Sleep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_come_in_order_and_have_the_lengths_asked_for() {
        let mut waiter = Waiter::new(WaitPolicy { spins: 3, pauses: 2, yields: 4 });
        for _ in 0..2 {
            let turns: std::vec::Vec<_> = (0..11).map(|_| waiter.turn()).collect();
            assert_eq!(&turns[..5], &[Turn::Again; 5]);
            assert_eq!(&turns[5..9], &[Turn::Yield; 4]);
            assert_eq!(&turns[9..], &[Turn::Sleep; 2]);
            waiter.reset();
        }
    }

    #[test]
    fn more_pollers_than_cores_do_not_spin() {
        assert!(WaitPolicy::for_cores(2, 3).spins < WaitPolicy::for_cores(2, 2).spins);
    }
}
