//! Calls on a shared link whose callers stopped waiting.
//!
//! They are cancelled at once, or when the lock is next taken. A call whose reply brings something is not cancelled: it
//! is undone when its reply has come.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::shared::{Abandoned, HeldLink, Late, Shared, SharedLink, Undo};
use crate::link::{Link, Reply};

impl Shared {
    /// Cancels a call: now, or when the lock is next taken.
    pub(super) fn abandon(&self, number: u32, undo: Option<Undo>) {
        // In a forked child the call is the parent's.
        if !self.is_own() {
            return;
        }
        let undo = undo.map(|undo| Late(number, undo));
        self.lates.fetch_add(usize::from(undo.is_some()), Ordering::Relaxed);
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(Abandoned { number, undo });
        self.drops.fetch_add(1, Ordering::AcqRel);
        drop(self.try_lock());
    }
}

impl SharedLink {
    /// Cancels the call with this number ([`Pending::into_raw`](crate::Pending::into_raw)): now, or when the link is
    /// next used.
    pub fn abandon(&self, number: u32) {
        self.0.abandon(number, None);
    }

    /// Stops waiting for the call with this number. When its reply has come, [`HeldLink::settle`] calls `undo`, which
    /// takes back what the reply brings. Of such calls 1024 wait at a time.
    pub fn abandon_undoing(&self, number: u32, undo: impl FnOnce(&Link, Reply) + Send + 'static) {
        self.0.abandon(number, Some(Box::new(undo)));
    }

    /// Returns whether calls are to be undone ([`SharedLink::abandon_undoing`]).
    pub fn has_late(&self) -> bool {
        self.0.lates.load(Ordering::Relaxed) != 0
    }
}

impl HeldLink {
    /// Undoes the calls of [`SharedLink::abandon_undoing`] whose replies have come.
    pub fn settle(&mut self) {
        let Some(link) = &self.link else { return };
        let before = link.news();
        // Replies come in the order of the calls, so those behind the first one without a reply have none either.
        while let Some(Late(number, _)) = self.late.front() {
            let polled = link.poll_raw(*number);
            if matches!(polled, Ok(None)) {
                break;
            }
            let late = self.late.pop_front();
            if let Some(shared) = self.shared.upgrade() {
                shared.lates.fetch_sub(1, Ordering::Relaxed);
            }
            // Without a reply the call was refused, or the link has failed, and what the call brought with it.
            if let (Some(Late(_, undo)), Ok(Some(reply))) = (late, polled) {
                undo(link, reply);
            }
        }
        if link.news() != before {
            self.wake_others(None);
        }
    }
}
