//! When a side of a link that finds nothing tells the other how far it has consumed, though that is little.
//!
//! Where the other's memory is mapped this is a store. Over a device it is a write of its own, and who waits for an answer finds
//! nothing until it comes: each call and each answer would be followed by such a write, for room that nobody is short of. There it is told
//! of little room only after a while, and before sleep.

use farjump_core::channel::Channel;
use farjump_core::transport::ArrivalRules;

/// How often in a row nothing is found before little room is told of. Between two such rounds lie some hundred looks at the
/// mailbox, so that a while is longer than an answer takes.
const ROUNDS: u32 = 64;

/// How long a side of a link has found nothing.
#[derive(Debug)]
pub(crate) struct Lull {
    /// Telling takes a write of a device.
    is_written: bool,
    /// What had come when it was last looked.
    received: u64,
    /// Rounds since then.
    rounds: u32,
}

impl Lull {
    /// Of a side with this channel, that has found nothing yet.
    pub(crate) fn of(channel: &Channel) -> Lull {
        // Messages have no return line: there the same word has the control connection looked at.
        let is_written = !matches!(channel.rule(), ArrivalRules::STORES | ArrivalRules::DELIVERED);
        Lull { is_written, received: 0, rounds: 0 }
    }

    /// A round that found nothing, on a channel that has brought `received` bytes. Whether the other is to be told now.
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
