//! One turn of a store: a request of a source, a call of the owner's, or a part of what others have left to do.

use std::time::Instant;

use crate::clock;

/// Most claims, leases, objects and blocks that a turn visits, besides the bytes that it moves.
pub(crate) const MOST_VISITS: u32 = 64;

/// Visits that the end of an object takes at the least, with its contents, where its memory is left to a later turn.
const OF_ONE: u32 = 4;

/// The time of a turn, and its visits.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    now: Option<Instant>,
    visits: u32,
    /// Jobs of the file that had failed before what is asked for was asked for first.
    failures: u64,
    /// The most of all turns.
    most: u32,
}

impl Turn {
    /// Begins another one, for something that is asked for first after so many failures of the file, or was before.
    pub(crate) fn begin(&mut self, failures: u64) {
        self.most = self.most.max(self.visits);
        (self.now, self.visits, self.failures) = (None, 0, failures);
    }

    /// Jobs of the file that had failed before.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
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

    /// Visits one thing more, which may end an object. `false` if the turn is over.
    pub(crate) fn take(&mut self) -> bool {
        let may = !self.is_over();
        self.visit(may.into());
        may
    }

    /// Whether nothing more is to be ended in this turn.
    pub(crate) fn is_over(&self) -> bool {
        self.left() < OF_ONE
    }

    /// The most visits of a turn since this was last asked.
    pub(crate) fn take_most(&mut self) -> u32 {
        self.begin(self.failures);
        std::mem::take(&mut self.most)
    }
}
