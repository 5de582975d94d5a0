//! Objects that are claimed for calls which follow: a function cannot wait until its object has come from the file.
//!
//! The requests of a source and its calls run in their order. So the request that holds an object waits at the head of the
//! mailbox, and the call behind it.

use std::collections::{BTreeMap, VecDeque};

/// Most holds of one source. The next one ends the oldest, whose call has run without its object, or did not come.
const MOST: usize = 16;

/// The holds of a target's sources.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// The claims of each source, the oldest first.
    of_sources: BTreeMap<u64, VecDeque<u64>>,
    /// How often each claim is there, with its source.
    claims: BTreeMap<(u64, u64), usize>,
}

impl Holds {
    /// Notes a claim of `source`. Returns one that is to be released.
    pub(crate) fn add(&mut self, source: u64, claim: u64) -> Option<u64> {
        let held = self.of_sources.entry(source).or_default();
        held.push_back(claim);
        let oldest = if held.len() > MOST { held.pop_front() } else { None };
        *self.claims.entry((claim, source)).or_default() += 1;
        oldest.inspect(|oldest| self.lower(*oldest, source))
    }

    /// Takes a hold of this object, for the function that has claimed it. Returns its source.
    pub(crate) fn take(&mut self, claim: u64) -> Option<u64> {
        let (_, source) = self.claims.range((claim, 0)..=(claim, u64::MAX)).next().map(|held| *held.0)?;
        self.lower(claim, source);
        let held = self.of_sources.get_mut(&source)?;
        let at = held.iter().position(|other| *other == claim)?;
        held.remove(at);
        Some(source)
    }

    /// Forgets the holds of a source that is gone. Returns the claims, which are to be released.
    pub(crate) fn forget(&mut self, source: u64) -> VecDeque<u64> {
        let claims = self.of_sources.remove(&source).unwrap_or_default();
        claims.iter().for_each(|claim| self.lower(*claim, source));
        claims
    }

    fn lower(&mut self, claim: u64, source: u64) {
        if let Some(count) = self.claims.get_mut(&(claim, source)) {
            *count -= 1;
            if *count == 0 {
                self.claims.remove(&(claim, source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hold_is_taken_or_released_once_and_the_oldest_go_first() {
        let mut holds = Holds::default();
        assert_eq!([holds.add(1, 7), holds.add(1, 7), holds.add(2, 7), holds.add(1, 8)], [None; 4]);
        let taken = [holds.take(7), holds.take(7), holds.take(7), holds.take(7), holds.take(9)];
        assert_eq!(taken, [Some(1), Some(1), Some(2), None, None]);
        let ended: Vec<_> = (100..100 + 2 * MOST as u64).filter_map(|claim| holds.add(1, claim)).collect();
        assert_eq!(ended, [8].into_iter().chain(100..100 + MOST as u64).collect::<Vec<_>>());
        assert_eq!(holds.forget(1).len(), MOST);
        assert!(holds.claims.is_empty());
        assert_eq!(holds.take(100 + MOST as u64), None);
    }
}
