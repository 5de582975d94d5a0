//! The outcomes of calls, on their way to the sessions that wait for them.

use std::collections::VecDeque;

use super::{Caller, Forwards, Onward, Recount};
use crate::link::ReplyBytes;

/// The outcome of a call, with the caller that waits for it.
pub(in crate::serve) struct Returned {
    pub(in crate::serve) caller: Caller,
    pub(in crate::serve) outcome: Outcome,
}

/// The part of an outcome for its source.
pub(in crate::serve) enum Outcome {
    /// The reply of the last function.
    Done(ReplyBytes),
    /// The message of its panic.
    Panicked(Vec<u8>),
    /// Calls that it led to were lost.
    Incomplete {
        lost: u64,
        /// The reason why the first one was lost.
        why: Vec<u8>,
        /// The replies of the others.
        replies: Vec<u8>,
    },
    /// Its reply was longer than the link takes.
    Overlong,
    /// The reason why there is no reply, worded as part of a sentence.
    Failed(String),
    /// The reason why its principal lost its right to the call before it ran.
    Withdrawn(String),
    /// An outcome that waits here, and its bytes that count in its source's memory.
    Kept { outcome: Box<Outcome>, bytes: usize },
    /// The outcome had so many bytes, which its source may not keep here.
    Lost(usize),
}

impl Forwards {
    /// Passes outcomes to the calls that gather them.
    pub(super) fn gather(&mut self) {
        if self.outcomes.iter().all(|one| one.caller.part_of.is_none()) {
            return;
        }
        let mut left = std::mem::take(&mut self.outcomes);
        while let Some(Returned { caller, outcome }) = left.pop_front() {
            match caller.part_of {
                None => self.outcomes.push_back(Returned { caller, outcome }),
                Some(id) => left.extend(self.onward.gathers.take(id, outcome, caller.hold)),
            }
        }
    }

    /// Takes the outcomes for sessions, except those that wait for a release, which count in their sources' memory from
    /// now on. Outcomes that cannot be delivered now come back by [`Forwards::put_back`].
    pub(in crate::serve) fn take_outcomes(&mut self, recount: Recount<'_>) -> VecDeque<Returned> {
        let Onward { holds, held, .. } = &mut *self.onward;
        let outcomes = std::mem::take(&mut self.outcomes);
        if outcomes.iter().all(|one| holds.are_over(one.caller.hold)) {
            return outcomes;
        }
        let (ready, waiting): (VecDeque<_>, VecDeque<_>) =
            outcomes.into_iter().partition(|one| holds.are_over(one.caller.hold));
        held.extend(waiting.into_iter().map(|Returned { caller, outcome }| {
            let session = caller.session;
            Returned { caller, outcome: outcome.keep(|from, to| recount(session, from, to)) }
        }));
        ready
    }

    /// Makes the outcomes that waited for a release ready. Returns whether any outcome is ready.
    pub(in crate::serve) fn release_outcomes(&mut self) -> bool {
        self.active |= !self.onward.held.is_empty();
        self.outcomes.extend(self.onward.held.drain(..));
        !self.outcomes.is_empty()
    }

    /// Keeps an outcome for which its session has no credit.
    pub(in crate::serve) fn put_back(&mut self, outcome: Returned) {
        self.outcomes.push_back(outcome);
        self.active = true;
    }
}
