//! Decides when an idle receiver returns a small amount of credit.
//!
//! Where the peer's memory is mapped, returning credit is a store. Over a device it is a write of its own,
//! and a side that waits for a reply is idle until the reply comes. Each call and each reply would be
//! followed by such a write, for credit that no sender lacks. There, a small amount is returned only after a
//! while, and before sleep.

use farjump_core::channel::Channel;
use farjump_core::transport::ArrivalRules;

/// Idle rounds in a row before a small amount of credit is returned. Between two such rounds lie some hundred
/// looks at the mailbox, so that a while is longer than a reply takes.
const ROUNDS: u32 = 64;

/// How long a side of a link has been idle.
#[derive(Debug)]
pub(crate) struct Lull {
    /// Returning credit takes a write of a device.
    is_written: bool,
    /// Bytes received at the last look.
    received: u64,
    /// Rounds since then.
    rounds: u32,
}

impl Lull {
    /// For a side with this channel, not idle yet.
    pub(crate) fn of(channel: &Channel) -> Lull {
        // Messages have no credit line: there the same word is a notice to read the control connection.
        let is_written = !matches!(channel.rule(), ArrivalRules::STORES | ArrivalRules::DELIVERED);
        Lull { is_written, received: 0, rounds: 0 }
    }

    /// Counts an idle round of a channel that has received `received` bytes. Returns whether to return credit
    /// now.
    #[inline]
    pub(crate) fn is_long(&mut self, received: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_told_of_after_a_while_in_which_nothing_came() {
        let mut lull = Lull { is_written: true, received: 0, rounds: 0 };
        assert!((1..ROUNDS).all(|_| !lull.is_long(64)) && lull.is_long(64) && lull.is_long(64));
        assert!((1..ROUNDS).all(|_| !lull.is_long(128)) && lull.is_long(128));
    }

    #[test]
    fn where_it_takes_no_write_it_is_told_of_at_once() {
        let mut lull = Lull { is_written: false, received: 0, rounds: 0 };
        assert!(lull.is_long(64) && lull.is_long(128));
    }
}
