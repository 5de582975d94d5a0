//! Bounded work: what one poll may visit, and what it has visited.
//!
//! A request, or the end of a source, visits a bounded number of blocks, objects, entries, members and leases. What is left
//! goes on in later polls. Each visit is taken from a budget and counted, and tests read the count.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most visits of one poll.
pub(crate) const MOST: u32 = 64;

/// Visits of all polls so far, and the most of one.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    all: AtomicU64,
    most: AtomicU64,
}

impl Visits {
    /// All visits.
    #[cfg(test)]
    pub(crate) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// The most visits of one poll since this was last asked.
    #[cfg(test)]
    pub(crate) fn take_most(&self) -> u64 {
        self.most.swap(0, Ordering::Relaxed)
    }
}

/// The budget of one poll. It counts what was visited when it is dropped.
#[derive(Debug)]
pub(crate) struct Steps<'v> {
    visits: &'v Visits,
    left: u32,
    taken: u32,
}

impl<'v> Steps<'v> {
    /// A budget of [`MOST`] visits.
    pub(crate) fn new(visits: &'v Visits) -> Steps<'v> {
        Steps { visits, left: MOST, taken: 0 }
    }

    /// Visits one more. `false` if the budget is used up, and nothing more is to be visited.
    pub(crate) fn take(&mut self) -> bool {
        let may = self.left != 0;
        self.left -= u32::from(may);
        self.taken += u32::from(may);
        may
    }

    /// Visits one more whether the budget allows it or not, for work of a constant number of visits.
    pub(crate) fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.taken += 1;
    }

    /// Whether the budget is used up.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.visits.all.fetch_add(u64::from(self.taken), Ordering::Relaxed);
        self.visits.most.fetch_max(u64::from(self.taken), Ordering::Relaxed);
    }
}
