//! The order of the last uses of stored code.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::domain::CodeKey;

/// Time of the last known use, and the code's key.
pub(super) type Age = (u64, CodeKey);

/// Number of new keys at which they all enter the order.
const UNSORTED: usize = 64;

/// The last known use of each image. Readers of the order update it, not calls. A new image waits outside the order
/// until a reader needs it, or until [`UNSORTED`] images wait.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Oldest first.
    sorted: BTreeSet<Age>,
    /// Keys that were added and are not in `sorted`. Some may have left the store since, or be here twice.
    unsorted: Vec<CodeKey>,
}

impl Ages {
    /// Adds new code. Returns true if [`Ages::sort`] should follow.
    #[inline]
    pub(super) fn add(&mut self, key: CodeKey) -> bool {
        self.unsorted.push(key);
        self.unsorted.len() >= UNSORTED
    }

    /// Allocates memory for the next key.
    pub(super) fn reserve(&mut self) {
        self.unsorted.reserve(1);
    }

    /// Moves the waiting keys into the order. `last_use` returns the time of the code's last use, and records that the
    /// code is in the order. It returns `None` for code that left the store, or is already in the order.
    pub(super) fn sort(&mut self, mut last_use: impl FnMut(&CodeKey) -> Option<u64>) {
        for key in self.unsorted.drain(..) {
            if let Some(last) = last_use(&key) {
                self.sorted.insert((last, key));
            }
        }
    }

    /// The first entry behind `behind`.
    pub(super) fn next(&self, behind: Bound<Age>) -> Option<Age> {
        debug_assert!(self.unsorted.is_empty(), "sorted before it is read");
        self.sorted.range((behind, Bound::Unbounded)).next().copied()
    }

    /// Moves an entry to its last use.
    pub(super) fn update(&mut self, age: Age, last: u64) {
        self.sorted.remove(&age);
        self.sorted.insert((last, age.1));
    }

    /// Removes an entry of the order.
    pub(super) fn remove(&mut self, age: &Age) {
        self.sorted.remove(age);
    }
}
