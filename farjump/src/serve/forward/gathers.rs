//! Gathering the replies of calls that led to several others.
//!
//! The calls that one source's call leads to are a tree, over any number of targets. For each call that it has
//! forwarded more than once, a target counts the forwards without an outcome, and returns the outcome of the call when
//! all have one. This is the scheme of Dijkstra and Scholten (*Termination detection for diffusing computations*,
//! 1980). So the first source gets one outcome. The target whose link to a lost peer has ended counts the outcomes lost
//! there.

use std::collections::HashMap;

use super::Recount;
use super::{Caller, Outcome, Returned};
use crate::link::ReplyBytes;
use crate::serve::holds::Hold;

/// The reason for lost replies that the target may not keep.
const NO_MEMORY: &[u8] =
    b"its source may not have the target keep so many bytes of replies (TargetBuilder::max_source_memory)";

/// Identity of a call whose replies are gathered.
pub(in crate::serve) type GatherId = u64;

/// The calls whose replies are gathered.
#[derive(Default)]
pub(super) struct Gathers {
    pub(super) open: HashMap<GatherId, Gather>,
    last: GatherId,
    /// Those whose replies do not all count in their sources' memory yet.
    pub(super) changed: Vec<GatherId>,
}

/// A call that has led to others.
pub(super) struct Gather {
    caller: Caller,
    /// Calls without an outcome.
    waiting: usize,
    replies: Vec<u8>,
    /// Number of calls that have these replies.
    replied: u64,
    /// Bytes that count in the source's memory.
    counted: usize,
    /// Most bytes of replies.
    limit: usize,
    /// Calls that were lost, with all that they would have led to.
    lost: u64,
    /// The reason why the first one was lost.
    why: Vec<u8>,
}

impl Gathers {
    /// Begins to gather the replies of `waiting` calls. `reply` is the call's own.
    pub(super) fn begin(&mut self, caller: Caller, waiting: usize, reply: &[u8], limit: usize) -> GatherId {
        self.last += 1;
        let (replies, replied) = (reply.to_vec(), u64::from(!reply.is_empty()));
        let (counted, lost, why) = (0, 0, Vec::new());
        let gather = Gather { caller, waiting, replies, replied, counted, limit, lost, why };
        self.open.insert(self.last, gather);
        self.changed.push(self.last);
        self.last
    }

    /// Takes the outcome of one of the calls of `id`, which waits for `hold`. If this was the last one, returns the
    /// outcome of the call that led to them.
    pub(super) fn take(&mut self, id: GatherId, outcome: Outcome, hold: Hold) -> Option<Returned> {
        let gather = self.open.get_mut(&id)?;
        gather.waiting -= 1;
        gather.caller.hold = gather.caller.hold.max(hold);
        self.changed.push(id);
        let outcome = match outcome {
            Outcome::Kept { outcome, bytes } => {
                gather.counted += bytes;
                *outcome
            }
            other => other,
        };
        match outcome {
            Outcome::Done(reply) => gather.append(&reply),
            Outcome::Incomplete { lost, why, replies } => {
                gather.lose(lost, &why);
                gather.append(&replies);
            }
            Outcome::Panicked(message) => {
                let message = String::from_utf8_lossy(&message).into_owned();
                gather.lose(1, format!("the function panicked: {message}").as_bytes());
            }
            Outcome::Overlong => gather.lose(1, b"its reply was longer than the link takes"),
            Outcome::Failed(why) | Outcome::Withdrawn(why) => gather.lose(1, why.as_bytes()),
            Outcome::Kept { .. } | Outcome::Lost(_) => gather.lose(1, NO_MEMORY),
        }
        if gather.waiting != 0 {
            return None;
        }
        self.open.remove(&id).map(Gather::end)
    }

    /// Drops the calls of a session that has ended: no process waits for them, and some of the calls that they led to
    /// may never have an outcome.
    pub(super) fn drop_session(&mut self, session: u64) {
        self.open.retain(|_, gather| gather.caller.session != session);
    }
}

impl Gather {
    fn append(&mut self, reply: &[u8]) {
        if reply.len() > self.limit.saturating_sub(self.replies.len()) {
            let why =
                format!("the replies together have more than the {} bytes that the link takes", self.limit);
            return self.lose(1, why.as_bytes());
        }
        self.replies.extend_from_slice(reply);
        self.replied += u64::from(!reply.is_empty());
    }

    /// Counts the replies. If the source may not take so much memory, they are lost, and later replies may fit.
    pub(super) fn count(&mut self, recount: Recount<'_>) {
        let session = self.caller.session;
        let bytes = self.replies.len();
        if recount(session, self.counted, bytes) {
            self.counted = bytes;
            return;
        }
        recount(session, self.counted, 0);
        (self.replies, self.counted) = (Vec::new(), 0);
        let lost = std::mem::take(&mut self.replied);
        self.lose(lost, NO_MEMORY);
    }

    fn lose(&mut self, lost: u64, why: &[u8]) {
        if self.lost == 0 {
            self.why = why.to_vec();
        }
        self.lost = self.lost.saturating_add(lost);
    }

    fn end(self) -> Returned {
        let outcome = match self.lost {
            0 => Outcome::Done(ReplyBytes::from_vec(self.replies)),
            lost => Outcome::Incomplete { lost, why: self.why, replies: self.replies },
        };
        let outcome = match self.counted {
            0 => outcome,
            bytes => Outcome::Kept { outcome: Box::new(outcome), bytes },
        };
        Returned { caller: self.caller, outcome }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::principals::Principal;
    use crate::serve::holds::Holds;

    fn caller() -> Caller {
        Caller::new(3, 7, true, &Arc::new(Principal::own()))
    }

    fn done(text: &str) -> Outcome {
        Outcome::Done(ReplyBytes::from_slice(text.as_bytes()))
    }

    #[test]
    fn a_calls_last_outcome_ends_it_and_replies_keep_arrival_order() {
        let mut gathers = Gathers::default();
        let (first, second) =
            (gathers.begin(caller(), 3, b"own ", 100), gathers.begin(caller(), 1, b"", 100));
        assert!(gathers.take(first, done("a"), Hold::default()).is_none());
        assert!(gathers.take(first, done(""), Hold::default()).is_none());
        assert!(
            matches!(gathers.take(second, done("other"), Hold::default()).unwrap().outcome, Outcome::Done(bytes) if &*bytes == b"other")
        );
        let returned = gathers.take(first, done("b"), Hold::default()).unwrap();
        assert_eq!((returned.caller.session, returned.caller.token), (3, 7));
        assert!(matches!(returned.outcome, Outcome::Done(bytes) if &*bytes == b"own ab"));
        assert!(gathers.take(first, done("late"), Hold::default()).is_none(), "nothing counts twice");
    }

    #[test]
    fn calls_of_a_session_that_has_ended_are_forgotten_and_no_others() {
        let mut gathers = Gathers::default();
        let gone = gathers.begin(caller(), 1, b"", 100);
        let stays = gathers.begin(Caller { session: 4, ..caller() }, 1, b"", 100);
        gathers.drop_session(3);
        assert_eq!(gathers.open.len(), 1);
        assert!(gathers.take(gone, done("late"), Hold::default()).is_none());
        assert!(gathers.take(stays, done(""), Hold::default()).is_some() && gathers.open.is_empty());
    }

    /// A source that may take so many bytes.
    fn account(most: usize) -> impl FnMut(u64, usize, usize) -> bool {
        let mut taken = 0;
        move |session, from, to| {
            assert!(session == 3 && from <= taken, "{session} gives back {from} of {taken}");
            let fits = taken - from + to <= most;
            if fits {
                taken += to;
                taken -= from;
            }
            fits
        }
    }

    #[test]
    fn replies_over_their_sources_memory_are_counted_lost_and_later_ones_fit() {
        let mut gathers = Gathers::default();
        let mut account = account(10);
        let (first, second) =
            (gathers.begin(caller(), 3, b"12345", 100), gathers.begin(caller(), 2, b"", 100));
        gathers.count(&mut account);
        assert!(gathers.take(second, done("6789"), Hold::default()).is_none());
        assert!(gathers.take(first, done("abc"), Hold::default()).is_none());
        gathers.count(&mut account);
        assert_eq!((gathers.open[&first].counted, gathers.open[&second].counted), (0, 4));
        assert!(gathers.take(first, done("abcdef"), Hold::default()).is_none());
        gathers.count(&mut account);
        assert!(!account(3, 0, 1), "all of it is taken");
        let Outcome::Kept { outcome, bytes } =
            gathers.take(first, done(""), Hold::default()).unwrap().outcome
        else {
            panic!("it counts")
        };
        let Outcome::Incomplete { lost, why, replies } = *outcome else { panic!("some of it is lost") };
        assert_eq!((bytes, lost, &*replies), (6, 2, &b"abcdef"[..]));
        assert_eq!(why, NO_MEMORY);
        // A counted one becomes a part of another.
        let inner = Outcome::Kept { outcome: Box::new(done("x")), bytes: 6 };
        let outer = gathers.take(second, inner, Hold::default()).unwrap().outcome;
        assert!(matches!(&outer, Outcome::Kept { bytes: 10, .. }));
        // The other one is kept with its present bytes.
        assert!(matches!(outer.keep(|from, to| account(3, from, to)), Outcome::Kept { bytes: 5, .. }));
        assert!(account(3, 5, 10) && !account(3, 0, 1), "nothing counts twice");
    }

    #[test]
    fn losses_are_counted_once_and_the_first_reason_is_kept() {
        let mut gathers = Gathers::default();
        let id = gathers.begin(caller(), 6, b"", 4);
        let below = Outcome::Incomplete { lost: 5, why: b"far".to_vec(), replies: b"xy".to_vec() };
        let outcomes =
            [Outcome::Failed("gone".into()), below, Outcome::Panicked(b"oh".to_vec()), Outcome::Overlong];
        for outcome in outcomes {
            assert!(gathers.take(id, outcome, Hold::default()).is_none());
        }
        assert!(gathers.take(id, done("too long"), Hold::default()).is_none());
        let Outcome::Incomplete { lost, why, replies } =
            gathers.take(id, done("zz"), Hold::default()).unwrap().outcome
        else {
            panic!()
        };
        assert_eq!((lost, &*why, &*replies), (9, &b"gone"[..], &b"xyzz"[..]));
    }

    #[test]
    fn a_call_waits_for_the_highest_hold_among_its_forwards() {
        let (mut gathers, mut holds) = (Gathers::default(), Holds::default());
        let id = gathers.begin(caller(), 3, b"", 100);
        let first = holds.hold();
        holds.release();
        let second = holds.hold();
        assert!(gathers.take(id, done("a"), second).is_none());
        assert!(gathers.take(id, done("b"), first).is_none());
        assert_eq!(gathers.take(id, done("c"), Hold::default()).unwrap().caller.hold, second);
    }
}
