//! Errors of a control connection: its handshake, its messages, its admin requests.

use farjump_core::counted;
use farjump_core::transport::{ArrivalRules, PassedOver, TransportError};

use super::{ConnectionError, ControlSystemError, HandshakeEvent, MessageFault, ParameterFault};
use crate::rights::MissingRights;
use crate::{PeerAddress, RejectCause};

/// A failed handshake or control connection.
///
/// `peer` is the other process as people know it: its name and process id.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectionError),
    /// The peer has a key and this process has none.
    #[error("{peer} wants a key and this process has none: give this process a copy of that key")]
    KeyWanted {
        /// The peer.
        peer: String,
    },
    /// This process has a key and the peer has none.
    #[error("{peer} has no key and this process has one: give both the same; nothing was sent to it")]
    KeyUnknown {
        /// The peer.
        peer: String,
    },
    /// The peer has another key.
    #[error("{peer} has another key than this process: give both a copy of the same")]
    WrongKey {
        /// The peer.
        peer: String,
    },
    /// Bytes that the peer did not encrypt: they were changed, repeated or forged on the way.
    #[error("bytes from {peer} were changed on the way, or are not from it: the connection was closed")]
    Tampered {
        /// The peer.
        peer: String,
    },
    /// The peer's machine is silent.
    #[error("{peer} is gone: its machine did not answer for {seconds} s")]
    Silent {
        /// The peer.
        peer: String,
        /// Allowed silence in seconds.
        seconds: u32,
    },
    /// A connection without a key whose peer's user the system does not report.
    #[error(
        "the system does not report the user of {peer}, and there is no key: connect over TCP, and give both processes a key (`farjump key FILE`)"
    )]
    OwnerUnknown {
        /// The peer.
        peer: String,
    },
    /// A connection without a key, while this process runs as the user that stands for all unknown ones.
    #[error(
        "{peer} cannot be distinguished from other users: this process runs as user {uid}, which stands for all users that its namespace does not map; run it as a user that the namespace maps"
    )]
    OwnUserUnknown {
        /// The peer.
        peer: String,
        /// The effective user id of this process: the overflow uid.
        uid: u32,
    },
    /// A transport that passes file descriptors, over TCP, which does not carry them.
    #[error(
        "transport `{transport}` hands file descriptors to its peer, which only a Unix socket carries, and not {address}: use unix:PATH, or another transport (`farjump transports`), for example tcp"
    )]
    NeedsUnixSocket {
        /// Name of the transport.
        transport: String,
        /// The address of the handshake.
        address: PeerAddress,
    },
    /// A process was rejected because this one has no file descriptors left.
    #[error("{peer} was rejected: there are no file descriptors left{advice}")]
    NoDescriptors {
        /// The peer.
        peer: String,
        /// The limit, and what to do about it; begins with a colon.
        advice: String,
    },
    /// The peer runs as another user.
    #[error(
        "{peer} runs as user {uid} and this process as user {own}: only processes of one user may connect"
    )]
    OtherUser {
        /// The peer.
        peer: String,
        /// Its effective user id.
        uid: u32,
        /// The effective user id of this process.
        own: u32,
    },
    /// The peer's first bytes are not farjump's preamble.
    #[error("{peer} does not speak farjump: is another program behind this address?")]
    NotFarjump {
        /// The peer.
        peer: String,
    },
    /// The peer speaks another version of the protocol.
    #[error(
        "{peer} speaks version {theirs} of the protocol, this farjump speaks {ours}: use the same version for both"
    )]
    Version {
        /// The peer.
        peer: String,
        /// Its version.
        theirs: u16,
        /// The version of this library.
        ours: u16,
    },
    /// A message longer than the limit at this point. It was not read.
    #[error("{peer} announced a message of {len} bytes; the limit is {limit}")]
    MessageTooLong {
        /// The peer.
        peer: String,
        /// Length in bytes, as announced or as about to be sent.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A request without the right to it.
    #[error(transparent)]
    MissingRights(#[from] MissingRights),
    /// The connection ended within a message.
    #[error("{peer} ended in the middle of a message: {found} of {needed} bytes came")]
    CutShort {
        /// The peer.
        peer: String,
        /// Bytes received.
        found: usize,
        /// Bytes expected.
        needed: usize,
    },
    /// Bytes that are not a message.
    #[error("{peer} sent a malformed message: {fault}")]
    Garbled {
        /// The peer.
        peer: String,
        /// The fault.
        fault: MessageFault,
    },
    /// A number of file descriptors other than allowed or announced. All were closed.
    #[error("{peer} sent {} with a message that may have {expected}", counted(*found, "file descriptor"))]
    Descriptors {
        /// The peer.
        peer: String,
        /// Number received. The system reports at most a few more than allowed.
        found: usize,
        /// Number announced, or the most that such a message may have.
        expected: usize,
    },
    /// An unexpected message.
    #[error("{peer} sent {got} where {expected} was due")]
    OutOfOrder {
        /// The peer.
        peer: String,
        /// The message expected.
        expected: &'static str,
        /// The message received.
        got: &'static str,
    },
    /// A well-formed message with impossible content.
    #[error("{peer} offers invalid parameters: {fault}")]
    Terms {
        /// The peer.
        peer: String,
        /// The fault.
        fault: ParameterFault,
    },
    /// The peer's process ended or closed the connection.
    #[error("{peer} is gone")]
    PeerGone {
        /// The peer.
        peer: String,
    },
    /// The peer does not read its control connection.
    #[error("{peer} does not read its control connection: {queued} bytes wait, the limit is {limit}")]
    Congested {
        /// The peer.
        peer: String,
        /// Bytes that wait, including the message that did not fit.
        queued: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A step that timed out.
    #[error("{peer} took too long: {awaited} did not come in time{}", awaited.cause())]
    TimedOut {
        /// The peer.
        peer: String,
        /// The message or event waited for.
        awaited: HandshakeEvent,
    },
    /// The peer rejected the handshake with a cause.
    #[error("{peer} refused: {text}")]
    Refused {
        /// The peer.
        peer: String,
        /// The cause.
        cause: RejectCause,
        /// Its explanation, stripped of control characters.
        text: String,
    },
    /// A source that the target rejects because it takes no more of them.
    #[error(
        "this target takes {} at a time: end another link, or have it take more (TargetBuilder::max_sources)",
        counted(*limit, "source")
    )]
    Full {
        /// Most sources of the target at a time.
        limit: usize,
    },
    /// No transport is common to both processes.
    #[error("no transport in common: the source offers {source_has}, the target has {target_has}")]
    NoCommonTransport {
        /// Names that the source offers, joined by commas.
        source_has: String,
        /// Names that the target has, joined by commas.
        target_has: String,
    },
    /// Both processes have the transport, but no arrival rule in common.
    #[error(
        "{transport}: no arrival rule in common: this process can do {}, {peer} can do {}", named(*ours), named(*theirs)
    )]
    NoCommonRule {
        /// Name of the transport.
        transport: String,
        /// The peer.
        peer: String,
        /// Rules of this process.
        ours: ArrivalRules,
        /// Rules of the peer.
        theirs: ArrivalRules,
    },
    /// Several transports were tried in turn, and all failed.
    #[error("{last}; tried before: {}", PassedOver::reasons(others))]
    NoneJoins {
        /// The error of the last one.
        last: Box<HandshakeError>,
        /// The others, with the reasons against them.
        others: Vec<PassedOver>,
    },
    /// The transport could not make or connect its endpoint.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] ControlSystemError),
}

fn named(rules: ArrivalRules) -> String {
    if rules.is_empty() { "none".to_owned() } else { rules.describe() }
}
