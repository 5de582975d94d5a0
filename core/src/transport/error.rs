//! Errors of transports.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// The operation in which a transport failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening an endpoint.
    Open,
    /// Connecting to the peer.
    Connect,
    /// Writing into the peer's region.
    Put,
    /// Ordering writes.
    Fence,
    /// Sending a message.
    Send,
    /// Polling for frames.
    Receive,
    /// Letting the backend make progress.
    Progress,
    /// Going to sleep, or waking the peer.
    Wake,
    /// Lending memory to the peer.
    Lend,
    /// Reading memory that the peer lent.
    Read,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Operation::Open => "opening an endpoint",
            Operation::Connect => "connecting",
            Operation::Put => "writing into the peer's memory",
            Operation::Fence => "ordering writes",
            Operation::Send => "sending",
            Operation::Receive => "receiving",
            Operation::Progress => "making progress",
            Operation::Wake => "sleeping or waking",
            Operation::Lend => "lending memory to the peer",
            Operation::Read => "reading the peer's memory",
        })
    }
}

/// The cause of a failure.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No credit or buffer now. The peer's work will free some. Not a failure of the link.
    #[error("there is no credit now")]
    Full,
    /// More bytes than can ever fit.
    #[error("{len} bytes are over the limit of {max}")]
    TooLarge {
        /// Bytes requested.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A write outside the peer's region, refused before it was carried out.
    #[error("{len} bytes at offset {offset} lie outside the peer's region of {region} bytes")]
    OutOfRegion {
        /// Offset requested.
        offset: usize,
        /// Bytes requested.
        len: usize,
        /// Length of the region.
        region: usize,
    },
    /// The peer ended or cannot be reached.
    #[error("the peer is gone")]
    PeerGone,
    /// The peer wrote or sent bytes that are no frame.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] crate::frame::FrameError),
    /// The peer's address is invalid; the text names the invalid part.
    #[error("the peer's address is not usable: {0}")]
    Address(String),
    /// The backend cannot do this.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The error of the system or a library, in words.
    #[error("{0}")]
    System(String),
    /// The peer ended or cannot be reached; the text says how that was noticed.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
}

/// A failure of a transport: peer, operation and cause, and the frame if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportError(Box<TransportErrorFields>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct TransportErrorFields {
    transport: String,
    peer: Option<String>,
    operation: Operation,
    cause: Cause,
    frame: Option<u64>,
}

impl TransportError {
    /// Makes a failure of the transport with this name.
    #[cold]
    pub fn new(transport: impl Into<String>, operation: Operation, cause: Cause) -> Self {
        TransportError(Box::new(TransportErrorFields {
            transport: transport.into(),
            peer: None,
            operation,
            cause,
            frame: None,
        }))
    }

    /// Adds the peer, as users know it.
    #[must_use]
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        self.0.peer.get_or_insert(peer.into());
        self
    }

    /// Adds the frame, by its position.
    #[must_use]
    pub fn with_frame(mut self, position: u64) -> Self {
        self.0.frame.get_or_insert(position);
        self
    }

    /// The cause.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Name of the transport.
    pub fn transport(&self) -> &str {
        &self.0.transport
    }

    /// Position of the frame that failed, if the failure is about one.
    pub fn frame(&self) -> Option<u64> {
        self.0.frame
    }

    /// Returns whether the cause is [`Cause::Full`]: not a failure of the link.
    pub fn is_full(&self) -> bool {
        self.0.cause == Cause::Full
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &*self.0;
        write!(out, "{}: {}", fields.transport, fields.operation)?;
        if let Some(peer) = &fields.peer {
            write!(out, " ({peer})")?;
        }
        if let Some(frame) = fields.frame {
            write!(out, ", frame at {frame}")?;
        }
        write!(out, ": {}", fields.cause)
    }
}

impl core::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.0.cause)
    }
}
