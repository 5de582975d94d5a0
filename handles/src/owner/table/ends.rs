//! The ends of objects, claims, leases and sources, each in a bounded number of steps.

use super::memory::STEP;
use super::{EVICTED, Source, State, Table, lines};
use crate::owner::table::accounts::{CLAIM, LOAN};
use crate::owner::table::object::Object;

/// Visits of a turn that are kept for its request, and not for ending leases and other work left over.
const OF_REQUEST: u32 = 40;

impl Table {
    /// Releases a claim. Does nothing if `source` does not have that claim.
    pub(crate) fn release(&mut self, source: Source, claim: u64) {
        self.turn.visit(1);
        let Some(count) = self.claims.get_mut(&(source, claim)).filter(|count| **count != 0) else { return };
        *count -= 1;
        if *count == 0 {
            self.drop_claims(source, claim);
        }
        self.unclaim(claim, 1);
    }

    /// Forgets the claims of a source to an object. The loan ends before the claims.
    fn drop_claims(&mut self, source: Source, claim: u64) -> u64 {
        if self.loans.remove(&(source, claim)).is_some() {
            self.refund(source, LOAN);
        }
        self.refund(source, CLAIM);
        if let Some(object) = self.objects.get(&claim) {
            self.accounts.uncount(source, lines(object.len));
        }
        self.claims.remove(&(source, claim)).unwrap_or(0)
    }

    pub(super) fn unclaim(&mut self, claim: u64, count: u64) {
        let Some(object) = self.objects.get_mut(&claim) else { return };
        self.turn.visit(1);
        object.claims -= count;
        if object.is_kept() {
            return;
        }
        match object.state {
            State::Evicted => self.evict_now(claim),
            _ => self.note_unused(claim),
        }
    }

    /// Releases all claims of the function that has ended in a target. Its time grows with the number of those claims.
    pub(crate) fn release_all(&mut self, source: Source) {
        while self.release_next(source) {}
    }

    /// Releases the claims of `source` to one object. Returns `false` if it has none.
    fn release_next(&mut self, source: Source) -> bool {
        let mut of_source = self.claims.range((source, 1)..=(source, u64::MAX));
        let Some((_, claim)) = of_source.next().map(|(key, _)| *key) else { return false };
        self.turn.visit(1);
        let count = self.drop_claims(source, claim);
        self.unclaim(claim, count);
        true
    }

    /// Ends `source`: its claims end, and its unfinished objects go, in this turn and in later ones ([`Table::continue_work`]).
    pub(crate) fn source_ended(&mut self, source: Source) {
        self.ending.push_back(source);
        self.continue_work();
    }

    /// Does a part of the work that is left. Returns whether there is more.
    pub(crate) fn continue_work(&mut self) -> bool {
        while self.turn.left() >= STEP {
            if !self.end_next() {
                return false;
            }
        }
        true
    }

    /// Does one step of the work that is left. Returns `false` if there is none.
    pub(super) fn end_next(&mut self) -> bool {
        if self.settle_next() {
            return true;
        }
        if let Some(number) = self.dying.pop() {
            self.remove(number);
            return true;
        }
        if let Some(number) = self.unheld.last().copied() {
            if !self.end_hold_on(number) {
                self.unheld.pop();
            }
            return true;
        }
        if let Some(source) = self.ending.front().copied() {
            let mut unfinished = self.unfinished.range((source, 0)..=(source, u64::MAX));
            if let Some((_, number)) = unfinished.next().copied() {
                self.remove(number);
            } else if !self.release_next(source) {
                self.accounts.remove(source);
                self.ending.pop_front();
            }
            return true;
        }
        self.end_next_lease()
    }

    /// Ends leases that are over, and settles jobs of the file's thread. Leaves a rest to later turns if there are
    /// many.
    pub(super) fn end_leases(&mut self) {
        while self.turn.left() >= OF_REQUEST && (self.settle_next() || self.end_next_lease()) {}
    }

    /// As [`Table::end_leases`], for a turn that otherwise only looks: also does other work that is left.
    pub(super) fn end_some(&mut self) {
        while self.turn.left() >= OF_REQUEST && self.end_next() {}
    }

    fn end_next_lease(&mut self) -> bool {
        let Some((until, number)) = self.leases.first().copied() else { return false };
        if until > self.turn.now() {
            return false;
        }
        self.leases.pop_first();
        self.turn.visit(1);
        if let Some(object) = self.objects.get_mut(&number) {
            object.lease = None;
        }
        self.end(number);
        true
    }

    /// Evicts the object of this number.
    pub(crate) fn end(&mut self, number: u64) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        self.turn.visit(1);
        let (contents, lease, word) = (object.contents.take(), object.lease.take(), object.word);
        if let Some(lease) = lease {
            self.leases.remove(&(lease, number));
        }
        if let Some(word) = word {
            self.wake(word, EVICTED);
        }
        self.evict_now(number);
        if let Some(contents) = contents {
            self.end(contents);
        }
    }

    /// Evicts an object that has no lease and no contents elsewhere. Its memory is free with its last claim: at once,
    /// or in a later turn if this one is over.
    pub(super) fn evict_now(&mut self, number: u64) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        let before = std::mem::replace(&mut object.state, State::Evicted);
        let (len, is_kept) = (object.len, object.is_kept());
        self.unused.remove(&object.last_use);
        if let State::Unfinished(source) = before {
            self.remove_unfinished(source, number, len);
        }
        if is_kept {
            if self.holds.has(number) {
                self.unheld.push(number);
            }
            return;
        }
        match self.turn.left() >= STEP {
            true => self.remove(number),
            false => self.dying.push(number),
        }
    }

    /// Forgets an object, and frees its memory.
    fn remove(&mut self, number: u64) {
        let Some(object) = self.objects.remove(&number) else { return };
        self.turn.visit(1);
        self.by_use.remove(&object.last_use);
        self.unused.remove(&object.last_use);
        if let State::Unfinished(source) = object.state {
            self.remove_unfinished(source, number, object.len);
        }
        if let Some(block) = object.block {
            self.give_back(block);
        }
        if let Some(word) = object.word {
            self.wake(word, EVICTED);
            self.give_back(word);
        }
        if let Some(place) = object.place {
            self.free_place(place);
        }
        self.refund(object.maker, Object::heap(object.type_name.len()));
    }
}
