//! The origin of a call that waits in a target, or at a destination.

use std::sync::Arc;

use super::gathers::GatherId;
use crate::principals::Principal;
use crate::serve::holds::{Hold, Holds};

/// The session of calls that come from no source. Sessions count from 0.
const NO_SESSION: u64 = u64::MAX;

/// The origin of a forwarded call, and its principal.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Caller {
    /// The session that it came from, which may have ended.
    pub(in crate::serve) session: u64,
    pub(in crate::serve) token: u32,
    pub(in crate::serve) wants_reply: bool,
    pub(in crate::serve) principal: Arc<Principal>,
    /// The release that its reply waits for: the highest of all calls that led to it.
    pub(super) hold: Hold,
    /// The call with gathered replies to which this one belongs.
    pub(super) part_of: Option<GatherId>,
}

impl Caller {
    pub(in crate::serve) fn new(
        session: u64,
        token: u32,
        wants_reply: bool,
        principal: &Arc<Principal>,
    ) -> Caller {
        let principal = Arc::clone(principal);
        Caller { session, token, wants_reply, principal, hold: Hold::default(), part_of: None }
    }

    /// The program itself, which waits for no reply.
    pub(in crate::serve) fn own(principal: &Arc<Principal>) -> Caller {
        Caller::new(NO_SESSION, 0, false, principal)
    }

    /// Returns whether the call is the program's own.
    pub(in crate::serve) fn is_own(&self) -> bool {
        self.session == NO_SESSION
    }

    /// Makes the reply wait for the next release.
    pub(super) fn hold(&mut self, holds: &mut Holds) {
        if self.wants_reply {
            // Numbers of releases grow: this is the highest.
            self.hold = holds.hold();
        }
    }
}
