//! Failed system calls, and events that were waited for.

use farjump_core::worded;
use farjump_os::limits;
use std::fmt;
use std::io;

/// A system call that failed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{operation}{}{object} failed: {source}{}",
    if object.is_empty() { "" } else { " " },
    operation.limit_behind(source)
)]
pub struct ControlSystemError {
    /// The operation attempted.
    pub operation: ControlOperation,
    /// Its object: a path, an address, a peer. May be empty.
    pub object: String,
    /// The system's error.
    pub source: io::Error,
}

impl ControlOperation {
    /// Advice about the limit or the filter of system calls that made the operation fail, if one did. No
    /// filter is named for operations that firewalls deny (sending, accepting) or file systems (the work with
    /// files).
    fn limit_behind(self, error: &io::Error) -> String {
        let call = match self {
            ControlOperation::RestrictSocket => "fchmod",
            ControlOperation::SetUp => "setsockopt or fcntl",
            ControlOperation::Identify => "getsockopt",
            ControlOperation::Wait => "ppoll",
            ControlOperation::Duplicate => "fcntl",
            ControlOperation::Random => "getrandom",
            _ => return limits::behind(error),
        };
        limits::behind_call(call, error)
    }
}

pub(crate) fn system(
    operation: ControlOperation,
    object: impl fmt::Display,
    source: impl Into<io::Error>,
) -> ControlSystemError {
    ControlSystemError { operation, object: object.to_string(), source: source.into() }
}

worded! {
    /// An operation of the system.
    #[non_exhaustive]
    ControlOperation {
        /// Resolve a host to its addresses.
        Resolve = "looking up the host",
        /// Listen on an address.
        Listen = "listening on",
        /// Close the socket file to other users.
        RestrictSocket = "restricting to this user the socket",
        /// Read the state of a file.
        ReadMetadata = "looking at",
        /// Find out whether a process listens on a path.
        Probe = "trying whether anybody listens on",
        /// Remove the socket file of a process that has ended.
        RemoveStale = "removing the stale socket",
        /// Accept a connection.
        Accept = "accepting a connection on",
        /// Connect to an address.
        Connect = "connecting to",
        /// Set up a new connection.
        SetUp = "setting up a connection",
        /// Find out which process or user is at the other end of a connection.
        Identify = "finding the user of a connection's peer",
        /// Wait for a peer.
        Wait = "waiting for",
        /// Read from a peer.
        Receive = "receiving from",
        /// Write to a peer.
        Send = "sending to",
        /// Encode a message, or send more descriptors with it than it may have.
        Encode = "encoding",
        /// Encrypt for a connection.
        Encrypt = "encrypting for a connection",
        /// Duplicate a file descriptor.
        Duplicate = "duplicating a file descriptor",
        /// Open or take over the stream of a link.
        OpenStream = "opening a stream to",
        /// Draw random bytes.
        Random = "drawing random bytes",
        /// Read a key file.
        ReadKey = "reading the key",
        /// Write a key file.
        WriteKey = "writing the key",
    }
}

worded! {
    /// A message or an event that a process waits for.
    #[non_exhaustive]
    HandshakeEvent {
        /// The addresses of a host.
        Resolution = "its address",
        /// A TCP connection.
        Connection = "a connection",
        /// Space among the connections that a listener has not accepted.
        Backlog = "space in its queue of connections",
        /// The preamble.
        Preamble = "its preamble",
        /// Hello, or an admin request.
        Hello = "its hello",
        /// Welcome.
        Welcome = "its welcome",
        /// Ready.
        Ready = "its end of the link",
        /// Go.
        Go = "its go",
        /// The first bytes of a stream.
        StreamOpening = "the opening of its stream",
        /// The stream of a link.
        Stream = "the stream of its link",
        /// The response to an admin request.
        Response = "its response",
        /// Space for the rest of a response.
        ResponseSpace = "space for the rest of its response",
    }
}

impl HandshakeEvent {
    /// Returns the likely cause of its delay and the remedy, as the end of a sentence; empty if no cause is
    /// likely.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            HandshakeEvent::Welcome
            | HandshakeEvent::Response
            | HandshakeEvent::Backlog
            | HandshakeEvent::Stream => {
                ", perhaps because it runs a long function, and answers when that has returned: wait longer"
            }
            _ => "",
        }
    }
}
