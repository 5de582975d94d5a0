//! One turn of a store: a request of a source, a call of the owner's, or a part of what others have left to do.

use std::time::Instant;

use crate::clock;

/// Most claims, leases, objects and blocks that a turn visits, besides the bytes that it moves.
pub(crate) const MOST_VISITS: u32 = 64;

/// The time of a turn, and its visits.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    now: Option<Instant>,
    visits: u32,
    /// The most of all turns.
    most: u32,
}

impl Turn {
    /// Begins another one.
    pub(crate) fn begin(&mut self) {
        self.most = self.most.max(self.visits);
        (self.now, self.visits) = (None, 0);
    }

    /// The time, which is the same for the whole turn.
    pub(crate) fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(clock::now)
    }

    /// Counts visits.
    pub(crate) fn visit(&mut self, count: u32) {
        self.visits = self.visits.saturating_add(count);
    }

    /// Visits that are left.
    pub(crate) fn left(&self) -> u32 {
        MOST_VISITS.saturating_sub(self.visits)
    }

    /// The most visits of a turn since this was last asked.
    #[cfg(test)]
    pub(crate) fn take_most(&mut self) -> u32 {
        self.begin();
        std::mem::take(&mut self.most)
    }
}
