//! Bytes of records: what a store knows beside the contents of its objects, such as names, members and entries.
//!
//! They count in the store's capacity, and in the budget of the source that caused them.

use std::collections::BTreeMap;

use crate::refusal::NoMemory;
use crate::table::Source;

/// The records of a store, in bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    used: u64,
    sources: BTreeMap<Source, u64>,
    /// Most bytes of one source.
    most: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { used: 0, sources: BTreeMap::new(), most: u64::MAX }
    }
}

impl Budget {
    /// Bytes of all records.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Counts a record of `source`, for which the store has room. This process itself has no limit.
    pub(crate) fn charge(&mut self, source: Source, bytes: u64) -> Result<(), NoMemory> {
        let of_source = self.sources.get(&source).copied().unwrap_or(0);
        let left = self.most.saturating_sub(of_source);
        if bytes > left && source != Source::Owner {
            return Err(NoMemory {
                asked: bytes,
                used: of_source,
                capacity: self.most,
                largest: left,
                ..NoMemory::default()
            });
        }
        self.sources.insert(source, of_source + bytes);
        self.used += bytes;
        Ok(())
    }

    /// A record of `source` is gone.
    pub(crate) fn refund(&mut self, source: Source, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        if let Some(of_source) = self.sources.get_mut(&source) {
            *of_source = of_source.saturating_sub(bytes);
            if *of_source == 0 {
                self.sources.remove(&source);
            }
        }
    }

    /// The source has ended. What it has left counts in the store's capacity alone.
    pub(crate) fn forget(&mut self, source: Source) {
        self.sources.remove(&source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_for_the_store_and_for_their_source_until_that_ends() {
        let mut budget = Budget { most: 100, ..Budget::default() };
        let (one, two) = (Source::Link(0, 1), Source::Link(0, 2));
        assert_eq!(budget.charge(one, 60), Ok(()));
        let refused = NoMemory { asked: 41, used: 60, capacity: 100, largest: 40, ..NoMemory::default() };
        assert_eq!(budget.charge(one, 41), Err(refused));
        assert_eq!((budget.charge(one, 40), budget.charge(two, 100)), (Ok(()), Ok(())));
        assert_eq!(budget.charge(Source::Owner, 1000), Ok(()));
        assert_eq!(budget.used(), 1200);
        budget.refund(one, 50);
        assert_eq!((budget.charge(one, 50), budget.used()), (Ok(()), 1200));
        budget.forget(one);
        budget.refund(one, 100);
        budget.refund(two, 100);
        budget.refund(Source::Owner, 1000);
        assert_eq!((budget.used(), budget.sources.len()), (0, 0));
    }
}
