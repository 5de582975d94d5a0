//! Decides when an idle receiver returns a small amount of credit.
//!
//! Where the peer's memory is mapped, returning credit is a store. Over a device it is a separate write, and
//! an endpoint that waits for a reply is idle until the reply comes. Each call and each reply would cause
//! such a write, for credit that no sender lacks. So over a device the receiver returns a small amount only
//! after a while, and before it sleeps.

use super::Channel;
use crate::transport::{ArrivalRules, TransportError};

/// Idle rounds in a row before the receiver returns a small amount of credit. Between two such rounds lie
/// some hundred polls of the mailbox, so the time is longer than a reply takes.
const ROUNDS: u32 = 64;

/// The time for which an endpoint has been idle.
#[derive(Debug)]
pub(super) struct IdleRounds {
    /// True if returning credit takes a write of a device.
    is_written: bool,
    /// Bytes received at the last idle round.
    received: u64,
    /// Idle rounds since `received` changed.
    rounds: u32,
}

impl IdleRounds {
    /// The rounds of a new endpoint with this arrival rule.
    pub(super) fn new(rule: ArrivalRules) -> IdleRounds {
        // Messages have no credit line: there the same word is a notice to read the control connection.
        let is_written = !matches!(rule, ArrivalRules::STORES | ArrivalRules::DELIVERED);
        IdleRounds { is_written, received: 0, rounds: 0 }
    }

    /// Counts an idle round of an endpoint that has received `received` bytes. Returns whether to return
    /// credit now.
    fn are_enough(&mut self, received: u64) -> bool {
        if !self.is_written {
            return true;
        }
        if self.received != received {
            (self.received, self.rounds) = (received, 0);
        }
        self.rounds = self.rounds.saturating_add(1);
        self.rounds >= ROUNDS
    }
}

impl Channel {
    /// [`Channel::progress`] for an idle endpoint: returns a small amount of credit at once if that is a
    /// store. If it is a write of a device, returns it after a number of idle rounds.
    ///
    /// # Errors
    /// As [`Channel::progress`].
    pub fn progress_idle(&mut self) -> Result<bool, TransportError> {
        let received = self.received();
        let returns = self.idle_rounds.are_enough(received);
        self.progress(returns)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_small_credit_is_returned_after_a_number_of_idle_rounds() {
        let mut idle = IdleRounds { is_written: true, received: 0, rounds: 0 };
        assert!((1..ROUNDS).all(|_| !idle.are_enough(64)) && idle.are_enough(64) && idle.are_enough(64));
        assert!((1..ROUNDS).all(|_| !idle.are_enough(128)) && idle.are_enough(128));
    }

    #[test]
    fn a_small_credit_that_takes_no_write_is_returned_at_once() {
        let mut idle = IdleRounds { is_written: false, received: 0, rounds: 0 };
        assert!(idle.are_enough(64) && idle.are_enough(128));
    }
}
