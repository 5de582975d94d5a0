//! One turn of a store: a request of a source, a call of the owner's, or a part of the work that others have left.

use std::time::Instant;

use crate::clock;

/// Most claims, leases, objects and blocks that a turn visits, besides the bytes that it moves.
pub(crate) const MOST_VISITS: u32 = 64;

/// Least number of visits for the end of an object with its contents, if its memory is left to a later turn.
const OF_ONE: u32 = 4;

/// The time of a turn, and its visits.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    now: Option<Instant>,
    visits: u32,
    /// Number of failed jobs of the file before the present request was first made.
    failures: u64,
    /// The most visits of any turn.
    most: u32,
}

impl Turn {
    /// Begins another turn. Its request was first made after `failures` failures of the file.
    pub(crate) fn begin(&mut self, failures: u64) {
        self.most = self.most.max(self.visits);
        (self.now, self.visits, self.failures) = (None, 0, failures);
    }

    /// Number of failed jobs of the file before the present request was first made.
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

    /// Number of visits left.
    pub(crate) fn left(&self) -> u32 {
        MOST_VISITS.saturating_sub(self.visits)
    }

    /// Visits one thing more, which may end an object. Returns `false` if the turn is over.
    pub(crate) fn take(&mut self) -> bool {
        let may = !self.is_over();
        self.visit(may.into());
        may
    }

    /// Returns whether the turn can end nothing more.
    pub(crate) fn is_over(&self) -> bool {
        self.left() < OF_ONE
    }

    /// Returns the most visits of any turn since the last call.
    pub(crate) fn take_most(&mut self) -> u32 {
        self.begin(self.failures);
        std::mem::take(&mut self.most)
    }
}
