//! The end of a session.

use farjump_control::{HandshakeError, RefusalCause};
use farjump_core::transport::{Cause, TransportError};
use farjump_loader::Need;

use crate::Refusal;

/// The end of a session.
#[derive(Debug)]
pub(in crate::serve) enum End {
    /// The source has closed the link.
    Bye,
    /// The source is gone, for this reason. This number of frames ran in this turn before.
    Gone(String, usize),
    /// The source broke the protocol, or the transport failed.
    Broken(Refusal),
    /// No end: other code must go before the session can continue, and other sessions may have it bound. This number of
    /// frames ran before.
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
