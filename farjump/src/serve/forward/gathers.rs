//! Calls that led to several others: their replies are gathered.
//!
//! The calls that one source's call leads to are a tree, over any number of targets. Each target keeps, for each call
//! that it has sent on more than once, how many of these are without an outcome, and answers the call when all have
//! one: the scheme of Dijkstra and Scholten (*Termination detection for diffusing computations*, 1980). So the first
//! source gets one answer, and what a lost peer would have answered is counted where its link has ended.

use std::collections::HashMap;

use super::{Caller, Outcome, Returned};
use crate::link::ReplyBytes;

/// Identity of a call whose replies are gathered.
pub(in crate::serve) type GatherId = u64;

/// The calls whose replies are gathered.
#[derive(Default)]
pub(super) struct Gathers {
    open: HashMap<GatherId, Gather>,
    last: GatherId,
}

/// A call that has led to others.
struct Gather {
    caller: Caller,
    /// Calls without an outcome.
    waiting: usize,
    replies: Vec<u8>,
    /// Most bytes of replies.
    limit: usize,
    /// Calls that were lost, with all that they would have led to.
    lost: u64,
    /// Why the first one was lost.
    why: Vec<u8>,
}

impl Gathers {
    /// Begins to gather what `waiting` calls reply. `reply` is the call's own.
    pub(super) fn begin(&mut self, caller: Caller, waiting: usize, reply: &[u8], limit: usize) -> GatherId {
        self.last += 1;
        let gather = Gather { caller, waiting, replies: reply.to_vec(), limit, lost: 0, why: Vec::new() };
        self.open.insert(self.last, gather);
        self.last
    }

    /// Takes the outcome of one of the calls of `id`. Returns that of the call that led to them, if this was the last
    /// one.
    pub(super) fn take(&mut self, id: GatherId, outcome: Outcome) -> Option<Returned> {
        let gather = self.open.get_mut(&id)?;
        gather.waiting -= 1;
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
            Outcome::Failed(why) => gather.lose(1, why.as_bytes()),
        }
        if gather.waiting != 0 {
            return None;
        }
        self.open.remove(&id).map(Gather::end)
    }

    /// Forgets the calls of a session that has ended: nobody waits for them, and some of what they led to may never have
    /// an outcome.
    pub(super) fn forget(&mut self, session: u64) {
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
        Returned { caller: self.caller, outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller { session: 3, token: 7, wants_reply: true, part_of: None }
    }

    fn done(text: &str) -> Outcome {
        Outcome::Done(ReplyBytes::from_slice(text.as_bytes()))
    }

    #[test]
    fn the_last_outcome_ends_a_call_and_replies_are_in_the_order_of_their_arrival() {
        let mut gathers = Gathers::default();
        let (first, second) =
            (gathers.begin(caller(), 3, b"own ", 100), gathers.begin(caller(), 1, b"", 100));
        assert!(gathers.take(first, done("a")).is_none());
        assert!(gathers.take(first, done("")).is_none());
        assert!(
            matches!(gathers.take(second, done("other")).unwrap().outcome, Outcome::Done(bytes) if &*bytes == b"other")
        );
        let returned = gathers.take(first, done("b")).unwrap();
        assert_eq!((returned.caller.session, returned.caller.token), (3, 7));
        assert!(matches!(returned.outcome, Outcome::Done(bytes) if &*bytes == b"own ab"));
        assert!(gathers.take(first, done("late")).is_none(), "nothing counts twice");
    }

    #[test]
    fn calls_of_a_session_that_has_ended_are_forgotten_and_no_others() {
        let mut gathers = Gathers::default();
        let gone = gathers.begin(caller(), 1, b"", 100);
        let stays = gathers.begin(Caller { session: 4, ..caller() }, 1, b"", 100);
        gathers.forget(3);
        assert_eq!(gathers.open.len(), 1);
        assert!(gathers.take(gone, done("late")).is_none());
        assert!(gathers.take(stays, done("")).is_some() && gathers.open.is_empty());
    }

    #[test]
    fn what_was_lost_is_counted_once_and_the_first_reason_is_told() {
        let mut gathers = Gathers::default();
        let id = gathers.begin(caller(), 6, b"", 4);
        let below = Outcome::Incomplete { lost: 5, why: b"far".to_vec(), replies: b"xy".to_vec() };
        let outcomes =
            [Outcome::Failed("gone".into()), below, Outcome::Panicked(b"oh".to_vec()), Outcome::Overlong];
        for outcome in outcomes {
            assert!(gathers.take(id, outcome).is_none());
        }
        assert!(gathers.take(id, done("too long")).is_none());
        let Outcome::Incomplete { lost, why, replies } = gathers.take(id, done("zz")).unwrap().outcome else {
            panic!()
        };
        assert_eq!((lost, &*why, &*replies), (9, &b"gone"[..], &b"xyzz"[..]));
    }
}
