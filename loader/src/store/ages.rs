//! The order in which stored code was last used.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::domain::CodeKey;

/// Time of the last known use, and the code's key.
pub(super) type Age = (u64, CodeKey);

/// Keys that are kept out of the order before it takes them all.
const UNSORTED: usize = 64;

/// The last known use of each image. Calls do not update it: readers do. A new image is only noted, and enters
/// the order when that is read, or with many others.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Oldest first.
    sorted: BTreeSet<Age>,
    /// Keys that were added and are not in `sorted`. Some may be gone from the store meanwhile, or be here twice.
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

    /// Takes the noted keys into the order. `last_use` returns when the code was last used, and notes that it is
    /// in the order since; `None` for code that is gone, or was noted before.
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
