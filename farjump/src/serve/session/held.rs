//! The frame that a session has begun and cannot end yet.
//!
//! It stays in its mailbox, where its source can write, and sometimes for long: until code has come, or an answer has left. So it is
//! read once. What was read is kept here as one value, together with the mailbox that it lies in, and the session goes on with that
//! value: what the mailboxes say meanwhile is not looked at (`docs/decisions/need-code.md`). The mailbox's channel holds the same
//! frame until it is released, with what it says of the code that it names.

use farjump_core::channel::Received;
use farjump_core::frame::{Header, Kind, Messages, Template};

use super::{Session, Shared, Stop, Waiting};

/// The mailbox that a frame lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::serve) enum Mailbox {
    /// The link's own.
    Own,
    /// The bigger one. The link's own holds the `Switch` that stands for the frame.
    Bigger,
}

/// A frame, as it was read when it was found.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Held {
    pub(in crate::serve) mailbox: Mailbox,
    pub(super) frame: Received,
    /// The code that it waited for was sent by the source, or the source has said that it cannot: it is not asked for it again.
    pub(super) answered: bool,
    pub(super) several: Option<Several>,
}

/// The messages of a frame of which some have run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Several {
    /// As the frame said when it was begun.
    pub(super) messages: Messages,
    /// How many have run.
    pub(super) done: u32,
}

impl Held {
    pub(in crate::serve) fn new(mailbox: Mailbox, frame: Received) -> Held {
        Held { mailbox, frame, answered: false, several: None }
    }

    pub(super) fn header(&self) -> Header {
        self.frame.header()
    }
}

impl Session {
    /// Whether a frame of the bigger mailbox has been begun and has not ended.
    pub(in crate::serve) fn holds_bigger(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.mailbox == Mailbox::Bigger)
    }

    /// What later frames may be compared with that say the same as `held`: those of the link's own mailbox alone.
    pub(super) fn template(&self, held: &Held) -> Option<Template> {
        if held.mailbox == Mailbox::Own { self.channel.template() } else { None }
    }

    /// Keeps a frame that cannot end yet. Goes on with it when what the session waits for has come; at its next turn, if it waits for
    /// nothing.
    #[cold]
    pub(super) fn keep(&mut self, held: Held) {
        debug_assert!(self.held.is_none());
        self.held = Some(Box::new(held));
        if !self.is_blocked() {
            self.waiting = Waiting::Held;
        }
    }

    /// Goes on with the frame that is kept, if what it waited for has come. Returns how many calls that was; `None` while it has to
    /// wait.
    #[cold]
    pub(super) fn go_on(&mut self, shared: &mut Shared) -> Result<Option<usize>, Stop> {
        if !self.can_go_on(shared)? {
            return Ok(None);
        }
        match self.held.take() {
            Some(held) => self.run_held(&held, shared).map(Some),
            None => Ok(Some(0)),
        }
    }

    /// Does what `held` asks for. It is released then, or kept. Returns how many calls that was.
    #[cold]
    pub(in crate::serve) fn run_held(&mut self, held: &Held, shared: &mut Shared) -> Result<usize, Stop> {
        let done = match (held.mailbox, held.header().kind) {
            (Mailbox::Own, Kind::Calls) => self.call_several(held, shared),
            _ => self.dispatch(held, shared).map(|()| 1),
        };
        if held.mailbox == Mailbox::Own || self.held.is_some() {
            return done;
        }
        // Also where nobody could be told: what has run must not run again when the rest of a source that is gone does.
        let released = self.release_bigger();
        let done = done?;
        released.map(|()| done)
    }

    /// Until what a source that is gone had sent has run, nothing is waited for that only it could bring.
    pub(super) fn wait_no_longer(&mut self) {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            // Code that has come is of use still.
            turn @ Waiting::Turn(..) => self.waiting = turn,
            Waiting::Room { bytes, .. } => self.table.budget.give_back(bytes.len()),
            _ => {}
        }
        if self.held.is_some() && !self.is_blocked() {
            self.waiting = Waiting::Held;
        }
    }
}
