//! Calls that wait here and will not run: their source has left, or their principal has lost its right to them.

use std::collections::VecDeque;

use super::{Caller, Forwards, Outcome, Returned};
use crate::principals::Principal;

impl Forwards {
    /// Drops a session that has ended. Its calls still run, except those that wait here for their turn and want a
    /// reply: no source is left to take it.
    pub(in crate::serve) fn source_ended(&mut self, session: u64) {
        self.families.source_ended(session);
        self.onward.gathers.drop_session(session);
        self.onward.held.retain(|one| one.caller.session != session);
        self.take_waiting(|caller| caller.session == session && caller.wants_reply);
    }

    /// Drops the calls that wait here for principals for which `why` returns a reason. The reason becomes the outcome
    /// of these calls. Returns their number, without calls that have left for a destination.
    pub(in crate::serve) fn withdraw(&mut self, mut why: impl FnMut(&Principal) -> Option<String>) -> usize {
        // Calls of one principal often follow each other.
        let mut last: Option<(u64, Option<String>)> = None;
        let mut reason = move |principal: &Principal| match &last {
            Some((number, reason)) if *number == principal.number() => reason.clone(),
            _ => {
                let reason = why(principal);
                last = Some((principal.number(), reason.clone()));
                reason
            }
        };
        let dropped = self.take_waiting(|caller| reason(&caller.principal).is_some());
        let count = dropped.len();
        for caller in dropped {
            if let Some(why) = reason(&caller.principal) {
                self.outcomes.push_back(Returned { caller, outcome: Outcome::Withdrawn(why) });
            }
        }
        self.gather();
        self.active |= count != 0;
        count
    }

    /// Removes the calls that wait here, to run again or for code or a destination, and for whose callers `goes`
    /// returns `true`. Returns these callers.
    fn take_waiting(&mut self, mut goes: impl FnMut(&Caller) -> bool) -> Vec<Caller> {
        let mut taken = Vec::new();
        self.onward.agains.take_waiting(&mut goes, &mut taken);
        self.onward.made.take_waiting(&mut goes, &mut taken);
        for peer in &mut self.peers {
            peer.take_waiting(&mut goes, &mut taken);
        }
        taken
    }
}

/// Removes the calls of `queue` for whose callers `goes` returns `true`, and keeps the others in their order.
pub(super) fn take_from<T>(
    queue: &mut VecDeque<T>,
    caller: impl Fn(&T) -> &Caller,
    goes: &mut impl FnMut(&Caller) -> bool,
    taken: &mut Vec<Caller>,
) {
    if queue.iter().all(|call| !goes(caller(call))) {
        return;
    }
    let (gone, left): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(queue).into_iter().partition(|call| goes(caller(call)));
    *queue = left;
    taken.extend(gone.iter().map(|call| caller(call).clone()));
}
