//! The frame that a session has begun and cannot end yet.
//!
//! It stays in its mailbox, where its source can write, and sometimes for long: until code has come, or a
//! reply has been sent. So it is read once. The values read are kept here as one, together with the mailbox
//! that the frame lies in, and the session continues with them: later contents of the mailboxes are ignored
//! (`docs/decisions/need-code.md`). The mailbox's channel holds the same frame until it is released, with its
//! fields about the code that it names.

use farjump_core::channel::Received;
use farjump_core::frame::{Header, Kind, Messages, Template};

use super::{Session, Shared, Stop, Waiting};

/// The mailbox that a frame lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::serve) enum Mailbox {
    /// The link's own.
    Own,
    /// The large mailbox. The link's own holds the `Switch` that stands for the frame.
    Bigger,
}

/// A frame, as it was read when it was found.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Held {
    pub(in crate::serve) mailbox: Mailbox,
    pub(super) frame: Received,
    /// Whether the source has sent the code that the frame waited for, or has said that it cannot: the code
    /// is not requested again.
    pub(super) answered: bool,
    pub(super) several: Option<Several>,
}

/// A batch of which some messages have run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Several {
    /// The head of the frame as it was when it was begun.
    pub(super) messages: Messages,
    /// Number of messages that have run.
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
    /// Whether a frame of the large mailbox has been begun and has not ended.
    pub(in crate::serve) fn holds_bigger(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.mailbox == Mailbox::Bigger)
    }

    /// Header prediction for later frames that equal `held`: only for those of the link's own mailbox.
    pub(super) fn template(&self, held: &Held) -> Option<Template> {
        if held.mailbox == Mailbox::Own { self.channel.template() } else { None }
    }

    /// Keeps a frame that cannot end yet. It continues when the awaited event has come, or at the session's
    /// next turn if there is none.
    #[cold]
    pub(super) fn keep(&mut self, held: Held) {
        debug_assert!(self.held.is_none());
        self.held = Some(Box::new(held));
        if !self.is_blocked() {
            self.waiting = Waiting::Held;
        }
    }

    /// Continues with the kept frame, if the awaited event has come. Returns the number of calls; `None`
    /// while it has to wait.
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

    /// Handles `held`, which is then released or kept. Returns the number of calls.
    #[cold]
    pub(in crate::serve) fn run_held(&mut self, held: &Held, shared: &mut Shared) -> Result<usize, Stop> {
        let done = match (held.mailbox, held.header().kind) {
            (Mailbox::Own, Kind::Calls) => self.call_several(held, shared),
            _ => self.dispatch(held, shared).map(|()| 1),
        };
        if held.mailbox == Mailbox::Own || self.held.is_some() {
            return done;
        }
        // Also if the reply could not be sent: a frame that has run must not run again with the rest of a
        // gone source's frames.
        let released = self.release_bigger();
        let done = done?;
        released.map(|()| done)
    }

    /// Ends waits for events that only the source could bring, until the frames of a gone source have run.
    pub(super) fn wait_no_longer(&mut self) {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            // Code that has come is still useful.
            turn @ Waiting::Turn(..) => self.waiting = turn,
            Waiting::Room { bytes, .. } => self.table.budget.give_back(bytes.len()),
            _ => {}
        }
        if self.held.is_some() && !self.is_blocked() {
            self.waiting = Waiting::Held;
        }
    }
}
