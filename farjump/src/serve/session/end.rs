//! The end of a session.

use std::time::Instant;

use farjump_control::{HandshakeError, RefusalCause};
use farjump_core::transport::{Cause, TransportError};
use farjump_loader::Need;

use super::Session;
use crate::Refusal;

/// The end of a session.
#[derive(Debug)]
pub(in crate::serve) enum End {
    /// The source has closed the link.
    Bye,
    /// The source is gone, for this reason. So many frames ran in this turn before.
    Gone(String, usize),
    /// The source broke the protocol, or the transport failed.
    Broken(Refusal),
    /// No end: other code must go before the session can continue, and other sessions may have it bound. So
    /// many frames ran before.
    Crowded(Need, usize),
}

/// An [`End`] on its way out: a pointer, so that results of the work for every frame travel in registers.
pub(in crate::serve) struct Stop(pub(in crate::serve) Box<End>);

impl Stop {
    /// Adds the frames that ran in this turn before.
    #[cold]
    pub(super) fn after(mut self, ran: usize) -> Stop {
        if let End::Crowded(_, before) | End::Gone(_, before) = &mut *self.0 {
            *before = ran;
        }
        self
    }
}

impl From<End> for Stop {
    #[cold]
    fn from(end: End) -> Self {
        Stop(Box::new(end))
    }
}

impl From<TransportError> for Stop {
    #[cold]
    fn from(error: TransportError) -> Self {
        match error.cause() {
            Cause::PeerGone | Cause::Unreachable(_) => End::Gone(error.to_string(), 0).into(),
            _ => cut(error),
        }
    }
}

impl From<HandshakeError> for Stop {
    #[cold]
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::PeerGone { .. } | HandshakeError::CutShort { .. } | HandshakeError::System(_) => {
                End::Gone(error.to_string(), 0).into()
            }
            error => cut(error),
        }
    }
}

/// The end of a source that broke the protocol.
#[cold]
pub(in crate::serve) fn cut(reason: impl std::fmt::Display) -> Stop {
    let text = format!("the target cut the link: {reason}");
    End::Broken(Refusal { cause: RefusalCause::BadFrame, text }).into()
}

impl Session {
    /// Marks the source gone for the reason `why`; the channel may still bring frames sent before, until
    /// `until`.
    pub(in crate::serve) fn leave(&mut self, until: Instant, why: String) {
        self.depart();
        self.unread = false;
        self.leaving = Some(Box::new((until, why)));
    }

    /// Whether the source is gone, and the channel may still bring frames sent before.
    pub(in crate::serve) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether the channel has taken too long to bring the rest.
    pub(in crate::serve) fn is_late(&self, now: Instant) -> bool {
        self.leaving.as_deref().is_some_and(|(until, _)| *until <= now)
    }

    /// The reason why the source is gone, from its session's `end` or an earlier cause.
    pub(in crate::serve) fn reason(&self, end: &End) -> String {
        match (self.leaving.as_deref(), end) {
            (Some((_, why)), _) | (None, End::Gone(why, _)) => why.clone(),
            _ => "it closed the link".to_owned(),
        }
    }

    /// Marks the source gone: it takes no replies and sends no code. Frames that it sent before are still to
    /// be run.
    pub(in crate::serve) fn depart(&mut self) {
        self.departed = true;
        self.wait_no_longer();
    }
}
