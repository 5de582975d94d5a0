//! Rejections, and the errors that end a handshake.

use crate::connection::Control;
use crate::connection::message::Message;
use crate::peer_identity::plain;
use crate::refusal::RejectCause;
use crate::{ConnectionError, HandshakeError};

/// Longest text of a rejection, in characters.
const MAX_TEXT: usize = 4096;
/// Most messages of a handshake that lie before a rejection.
const MESSAGES: usize = 4;

impl Control {
    /// Rejects the link with a cause, and closes. Never waits: text that the socket does not take is lost.
    pub fn reject(mut self, cause: RejectCause, text: &str) {
        let text = plain(text, MAX_TEXT);
        if let Err(error) = self.send(&Message::Reject { cause, text }, &[]) {
            log::debug!("{}: could not be sent the reason of its rejection: {error}", self.peer);
        }
    }
}

impl Control {
    /// Ends a handshake that failed with `error`. If the error may only be an effect of the peer's end, returns the peer's
    /// rejection, if that has come: a transport or a socket does not have its reason. Otherwise sends the peer the reason,
    /// unless it ended the handshake.
    pub(crate) fn fail(mut self, error: HandshakeError) -> HandshakeError {
        let may_be_effect = matches!(
            error,
            HandshakeError::Transport(_)
                | HandshakeError::System(_)
                | HandshakeError::TimedOut { .. }
                | HandshakeError::PeerGone { .. }
                | HandshakeError::CutShort { .. }
                // Of a second connection, for the stream of the link.
                | HandshakeError::Connect(
                    ConnectionError::System(_)
                        | ConnectionError::TimedOut { .. }
                        | ConnectionError::NotListening { .. }
                )
        );
        let rejection = if may_be_effect { self.take_rejection() } else { None };
        rejection.unwrap_or_else(|| send_reason(self, error))
    }

    /// Returns the peer's rejection if it has come. Messages before it are dropped: for a handshake that has failed.
    fn take_rejection(&mut self) -> Option<HandshakeError> {
        for _ in 0..MESSAGES {
            if let (Message::Reject { cause, text }, _) = self.recv().ok()?? {
                return Some(rejected(self, cause, &text));
            }
        }
        None
    }
}

/// Ends a handshake that failed with `error`: sends the peer the reason, unless the peer ended it.
pub(crate) fn send_reason(control: Control, error: HandshakeError) -> HandshakeError {
    let cause = match &error {
        HandshakeError::Refused { .. }
        | HandshakeError::PeerGone { .. }
        | HandshakeError::CutShort { .. } => return error,
        HandshakeError::OtherUser { .. }
        | HandshakeError::OwnerUnknown { .. }
        | HandshakeError::OwnUserUnknown { .. } => RejectCause::OtherUser,
        HandshakeError::Full { .. } => RejectCause::Full,
        HandshakeError::NoCommonTransport { .. } => RejectCause::NoCommonTransport,
        HandshakeError::NoCommonRule { .. } => RejectCause::NoCommonRule,
        HandshakeError::TimedOut { .. } | HandshakeError::Connect(ConnectionError::TimedOut { .. }) => {
            RejectCause::TooLate
        }
        HandshakeError::MissingRights(_) => RejectCause::Rights,
        HandshakeError::Transport(_)
        | HandshakeError::System(_)
        | HandshakeError::Connect(ConnectionError::System(_)) => RejectCause::TransportFailed,
        _ => RejectCause::Protocol,
    };
    control.reject(cause, &error.to_string());
    error
}

/// Converts a rejection by the peer to an error.
pub(crate) fn rejected(control: &Control, cause: RejectCause, text: &str) -> HandshakeError {
    HandshakeError::Refused { peer: control.peer().to_string(), cause, text: plain(text, MAX_TEXT) }
}

/// Makes the error for an unexpected message.
pub(crate) fn out_of_order(control: &Control, expected: &'static str, got: &Message) -> HandshakeError {
    HandshakeError::OutOfOrder { peer: control.peer().to_string(), expected, got: got.name() }
}
