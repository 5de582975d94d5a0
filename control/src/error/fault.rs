//! Faults of a peer: in the bytes that it sent, and in what it offered.

use farjump_core::cpu::CpuError;
use farjump_core::image::Machine;
use farjump_core::{counted, worded};

/// A fault in bytes that are not a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageFault {
    /// A body that does not decode.
    #[error("what it sent, {}, does not decode ({cause})", counted(*len, "byte"))]
    Undecodable {
        /// Length of the body in bytes.
        len: usize,
        /// The decoder's error.
        cause: postcard::Error,
    },
    /// Bytes behind the end of a message.
    #[error("it goes on for {} behind a whole {message}", counted(*len, "byte"))]
    Excess {
        /// Their number.
        len: usize,
        /// Name of the message.
        message: &'static str,
    },
    /// Reserved bytes that are not zero.
    #[error("the reserved bytes of {0} are not zero")]
    Reserved(ReservedBytes),
    /// The preamble of a stream on a control connection.
    #[error("it opens a stream where a control connection is due")]
    Stream,
    /// The preamble of a connection with a key, on a Unix socket, where none is needed.
    #[error("it wants a key on a Unix socket")]
    KeyOnUnixSocket,
    /// A handshake of the encryption with another length than its only one.
    #[error("its handshake has {len} bytes, not {expected}")]
    NoiseLength {
        /// Its length in bytes.
        len: usize,
        /// The length that it must have.
        expected: usize,
    },
}

worded! {
    /// The part of a control connection or a stream that has reserved bytes.
    #[non_exhaustive]
    ReservedBytes {
        /// The preamble.
        Preamble = "its prefix",
        /// The head of a message.
        Head = "its head",
        /// The opening of a stream.
        StreamOpening = "its stream's opening",
    }
}

/// A fault in the parameters of a link, in a message that is well-formed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterFault {
    /// More transports than a source may name, or one with too long a name.
    #[error("it names {count} transports, or one with too long a name")]
    Transports {
        /// Number of transports.
        count: usize,
    },
    /// A CPU's description that describes none.
    #[error(transparent)]
    Cpu(CpuError),
    /// A machine that farjump does not know: its words may have another length or order of bytes.
    #[error(
        "its CPU is of {machine}, which farjump does not know: it runs on x86-64, and on aarch64 and riscv64 with words of 64 bits, low bytes first"
    )]
    Machine {
        /// The machine.
        machine: Machine,
    },
    /// A transport that this process did not offer.
    #[error("it chose transport {transport:?}, which was not offered")]
    NotOffered {
        /// Name of the transport, without control characters.
        transport: String,
    },
    /// The endpoint of another transport than the chosen one.
    #[error("its endpoint is of transport {found:?}, not {expected}")]
    OtherTransport {
        /// Name of the endpoint's transport, as received.
        found: String,
        /// Name of the chosen transport.
        expected: String,
    },
    /// A limit of frames that no endpoint can have.
    #[error("it takes frames of up to {len} bytes")]
    FrameLimit {
        /// The limit in bytes.
        len: u32,
    },
    /// A region longer than any memory.
    #[error("its region is {len} bytes long")]
    RegionLength {
        /// Its length in bytes.
        len: u64,
    },
    /// A region shorter than stated.
    #[error("it states a region of {stated} bytes and gives one of {found}")]
    ShortRegion {
        /// Stated length in bytes.
        stated: usize,
        /// Length in bytes.
        found: usize,
    },
    /// File descriptors for a transport that uses none.
    #[error("its endpoint has {}, and {transport} uses none", counted(*count, "descriptor"))]
    Descriptors {
        /// Their number.
        count: usize,
        /// Name of the transport.
        transport: String,
    },
    /// A stream for a transport without, or none for a transport with one.
    #[error("it has {} stream for {transport}", if *has_stream { "a" } else { "no" })]
    StreamMismatch {
        /// Whether the peer has a stream.
        has_stream: bool,
        /// Name of the transport.
        transport: String,
    },
    /// A stream that no handshake awaits.
    #[error("it opens a stream that is not awaited")]
    UnexpectedStream,
}
