//! Errors of connecting to a target, and of listening for sources.

use farjump_control::{AddressError, HandshakeError, KeyError, PassedOver, PeerAddress};
use farjump_core::{debug_in_words, worded};

/// A link, an admin request or a listener that failed before the first frame.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A malformed address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An unusable key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No connection, or no listener, at the address.
    #[error(transparent)]
    Connection(#[from] super::ConnectionError),
    /// The handshake or the admin request failed.
    #[error(transparent)]
    Handshake(HandshakeError),
    /// A transport that is not available.
    #[error(transparent)]
    Unavailable(#[from] super::TransportUnavailable),
    /// No transport that works on this machine leads to the address.
    #[error("no transport is usable on {address}: {}", PassedOver::reasons(transports))]
    NoTransport {
        /// The address.
        address: PeerAddress,
        /// The transports, with the reason against each.
        transports: Vec<PassedOver>,
    },
    /// A request for more memory than a mailbox can have.
    #[error("a {mailbox} of {len} bytes is more than any link has: request {max} at most")]
    MailboxSize {
        /// The mailbox.
        mailbox: Mailbox,
        /// Bytes requested.
        len: usize,
        /// The limit.
        max: usize,
    },
}

debug_in_words!(ConnectError {
    Address(inner),
    Key(inner),
    Connection(inner),
    Handshake(inner),
    Unavailable(inner),
    NoTransport { address, transports },
    MailboxSize { mailbox, len, max },
});

impl From<HandshakeError> for ConnectError {
    /// A failed connection is [`ConnectError::Connection`].
    fn from(error: HandshakeError) -> ConnectError {
        match error {
            HandshakeError::Connect(error) => ConnectError::Connection(error),
            error => ConnectError::Handshake(error),
        }
    }
}

worded! {
    /// A mailbox of a link.
    Mailbox {
        /// The target's, for calls.
        Calls = "mailbox",
        /// The source's, for replies.
        Replies = "reply mailbox",
    }
}
