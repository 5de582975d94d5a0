//! Holds: claims on objects for calls that follow, because a function cannot wait until its object has come from the
//! file.
//!
//! The requests of a source and its calls run in their order. So the request that holds an object waits at the head of the
//! mailbox, and the call behind it.
//!
//! A hold is only a hint. It ends when a function has opened its object, and with its source. The call of a hold may
//! never open the object, and the store does not see that call. So a hold blocks no other use. It also ends when its
//! object is evicted, and when the store lacks memory that nothing else can give.

use std::collections::{BTreeMap, BTreeSet};

use crate::owner::table::accounts::HOLD;
use crate::owner::table::{Source, Table};
use crate::wire::handle::Key;
use crate::wire::refusal::ClaimFailed;

/// Most holds of one source. The next one ends the oldest.
const MOST: usize = 16;

/// The holds of a store's sources.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// The source and the claim of each hold, the oldest first.
    all: BTreeMap<u64, (Source, u64)>,
    of_sources: BTreeSet<(Source, u64)>,
    of_claims: BTreeSet<(u64, u64)>,
    /// The number of the last hold.
    last: u64,
}

impl Holds {
    fn add(&mut self, source: Source, claim: u64) {
        self.last += 1;
        self.all.insert(self.last, (source, claim));
        self.of_sources.insert((source, self.last));
        self.of_claims.insert((claim, self.last));
    }

    fn remove(&mut self, hold: u64) -> Option<(Source, u64)> {
        let (source, claim) = self.all.remove(&hold)?;
        self.of_sources.remove(&(source, hold));
        self.of_claims.remove(&(claim, hold));
        Some((source, claim))
    }

    /// The oldest hold of all.
    fn oldest(&self) -> Option<u64> {
        self.all.keys().next().copied()
    }

    /// Returns the oldest hold of a source, if the source has more than `most`.
    fn oldest_of(&self, source: Source, most: usize) -> Option<u64> {
        let mut of_source = self.of_sources.range((source, 0)..=(source, u64::MAX)).map(|(_, hold)| *hold);
        of_source.clone().nth(most)?;
        of_source.next()
    }

    /// Returns whether an object is held.
    pub(crate) fn has(&self, claim: u64) -> bool {
        self.on(claim).is_some()
    }

    /// The oldest hold of an object.
    fn on(&self, claim: u64) -> Option<u64> {
        self.of_claims.range((claim, 0)..=(claim, u64::MAX)).next().map(|(_, hold)| *hold)
    }
}

impl Table {
    /// Claims an object for the call of `source` that follows.
    pub(crate) fn hold(&mut self, source: Source, number: u64, key: Key) -> Result<(), ClaimFailed> {
        let claimed = self.claim(source, number, key)?;
        if let Err(none) = self.charge_reader(source, HOLD) {
            self.release(source, claimed.claim);
            return Err(none.into());
        }
        self.holds.add(source, claimed.claim);
        let too_many = self.holds.oldest_of(source, MOST);
        self.end_hold(too_many);
        Ok(())
    }

    /// Ends the oldest hold of an object, when a function has its own claim to it or it is evicted. Returns `false` if
    /// there is none.
    pub(crate) fn end_hold_on(&mut self, claim: u64) -> bool {
        let hold = self.holds.on(claim);
        self.end_hold(hold)
    }

    /// Ends the holds of a source that is gone: its process reads nothing by them.
    pub(crate) fn end_holds_of(&mut self, source: Source) {
        while let hold @ Some(_) = self.holds.oldest_of(source, 0) {
            self.end_hold(hold);
        }
    }

    /// Ends the oldest hold of all, so that its object may go to the file. Returns `false` if there is none.
    pub(crate) fn end_oldest_hold(&mut self) -> bool {
        let hold = self.holds.oldest();
        self.end_hold(hold)
    }

    fn end_hold(&mut self, hold: Option<u64>) -> bool {
        let Some((source, claim)) = hold.and_then(|hold| self.holds.remove(hold)) else { return false };
        self.refund(source, HOLD);
        self.release(source, claim);
        true
    }
}
