//! What can go wrong before two processes can exchange frames: one variant for each cause.

use std::io;
use std::path::PathBuf;

use farjump_core::transport::TransportError;

use crate::meet::{MAX_PATH, MeetRefusal, PeerAddress};

/// A failure to meet, or of the control connection afterwards. Its text says what was wrong, where, and what to do.
///
/// `peer` is the other process as people know it: its name and process id.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address without a scheme that farjump knows.
    #[error("`{given}` is no address: write unix:PATH, for example unix:store.sock")]
    AddressScheme {
        /// What was given.
        given: String,
    },
    /// `unix:` without a path.
    #[error("`unix:` names no socket: write unix:PATH, for example unix:store.sock")]
    AddressEmptyPath,
    /// A path that does not fit the system's socket address (`sun_path` in unix(7)).
    #[error(
        "the socket's path has {len} bytes and the system takes at most {MAX_PATH}: use a shorter or a relative path instead of {}",
        path.display()
    )]
    AddressPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// A path with a zero byte.
    #[error("the socket's path {path:?} contains a zero byte, which no file name can have")]
    AddressPathZero {
        /// The path.
        path: PathBuf,
    },
    /// `tcp:` without host or port.
    #[error("`{given}` is no TCP address: write tcp:HOST:PORT, for example tcp:node7:7471")]
    AddressTcp {
        /// What was given.
        given: String,
    },
    /// TCP addresses are understood but not served: there is no authentication for them in this version.
    #[error(
        "{address}: this version of farjump meets over Unix sockets only, because TCP needs authentication that it does not have: use unix:PATH"
    )]
    TcpUnsupported {
        /// The address.
        address: PeerAddress,
    },

    /// Another process listens there.
    #[error("{address} is already in use by a running target: stop it, or listen on another path")]
    InUse {
        /// The address.
        address: PeerAddress,
    },
    /// Something other than a socket is at the path. It was not touched.
    #[error("{} exists and is no socket: it was left alone; listen on another path or move it away", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Nobody listens there.
    #[error(
        "no target listens on {address} ({why}): start one, for example with `farjump serve --listen {address}`"
    )]
    NobodyListens {
        /// The address.
        address: PeerAddress,
        /// What is there instead, in words.
        why: &'static str,
    },
    /// The file's permissions keep this process out.
    #[error("{address} belongs to another user: a target admits processes of its own user only")]
    Denied {
        /// The address.
        address: PeerAddress,
    },
    /// The process at the other end runs as another user.
    #[error("{peer} runs as user {uid} and this process as user {own}: only processes of one user may meet")]
    OtherUser {
        /// The peer.
        peer: String,
        /// Its effective user id.
        uid: u32,
        /// The effective user id of this process.
        own: u32,
    },
    /// A system call failed.
    #[error("{doing} failed: {source}")]
    System {
        /// What was being done, and to what.
        doing: String,
        /// What the system said.
        source: io::Error,
    },

    /// The peer's first bytes are not farjump's.
    #[error("{peer} does not speak farjump: is another program behind this address?")]
    NotFarjump {
        /// The peer.
        peer: String,
    },
    /// The peer speaks another version of the protocol.
    #[error(
        "{peer} speaks version {theirs} of the protocol, this farjump speaks {ours}: use the same version on both sides"
    )]
    Version {
        /// The peer.
        peer: String,
        /// Its version.
        theirs: u16,
        /// The version of this library.
        ours: u16,
    },
    /// A message longer than allowed at this point. It was not read.
    #[error("{peer} announced a message of {len} bytes; the limit is {limit}")]
    MessageTooLong {
        /// The peer.
        peer: String,
        /// Length in bytes, as announced or as about to be sent.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The connection ended within a message.
    #[error("{peer} ended in the middle of a message: {found} of {needed} bytes came")]
    CutShort {
        /// The peer.
        peer: String,
        /// Bytes that came.
        found: usize,
        /// Bytes that were due.
        needed: usize,
    },
    /// Bytes that are no message.
    #[error("{peer} sent a message that makes no sense: {what}")]
    Garbled {
        /// The peer.
        peer: String,
        /// What of it.
        what: String,
    },
    /// Another number of file descriptors than allowed or announced. All were closed.
    #[error("{peer} sent {found} file descriptors with a message that may have {expected}")]
    Descriptors {
        /// The peer.
        peer: String,
        /// How many came; the system tells of at most a few more than allowed.
        found: usize,
        /// How many were announced, or the most that such a message may have.
        expected: usize,
    },
    /// A message that is not due.
    #[error("{peer} sent {got} where {expected} was due")]
    OutOfOrder {
        /// The peer.
        peer: String,
        /// What was due.
        expected: &'static str,
        /// What came.
        got: &'static str,
    },
    /// A well-formed message whose content cannot be.
    #[error("{peer} offers terms that cannot be: {what}")]
    Terms {
        /// The peer.
        peer: String,
        /// What of it.
        what: String,
    },
    /// The peer's process ended or closed the connection.
    #[error("{peer} is gone")]
    PeerGone {
        /// The peer.
        peer: String,
    },
    /// The peer does not read what it is sent.
    #[error("{peer} does not read its control connection: {queued} bytes wait, the limit is {limit}")]
    Congested {
        /// The peer.
        peer: String,
        /// Bytes that wait, with the message that found no room.
        queued: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The time for it ran out.
    #[error("{peer} took too long: {waiting_for} did not come in time")]
    TooLate {
        /// The peer, or the address while there is none.
        peer: String,
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The peer refused to meet, and said why.
    #[error("{peer} refused: {text}")]
    Refused {
        /// The peer.
        peer: String,
        /// The cause.
        cause: MeetRefusal,
        /// Its explanation, without control characters.
        text: String,
    },
    /// A source came, and the target takes no more of them.
    #[error("{reason}")]
    Full {
        /// Why, and what to do.
        reason: String,
    },
    /// The sides have no transport in common.
    #[error("no transport in common: the source offers {source_has}, the target has {target_has}")]
    NoCommonTransport {
        /// Names that the source offers, joined by commas.
        source_has: String,
        /// Names that the target has, joined by commas.
        target_has: String,
    },
    /// Both sides have the transport, but no arrival rule in common.
    #[error("{transport}: no arrival rule in common: this side can do {ours}, {peer} can do {theirs}")]
    NoCommonRule {
        /// Name of the transport.
        transport: String,
        /// The peer.
        peer: String,
        /// This side's rules.
        ours: String,
        /// The peer's rules.
        theirs: String,
    },
    /// Several transports were tried one after the other, and none joins the two sides.
    #[error("{last}; what was tried before: {others}")]
    NoneJoins {
        /// What became of the last one.
        last: Box<Error>,
        /// Why the others did not do.
        others: String,
    },
    /// The transport could not make or connect its end.
    #[error(transparent)]
    Transport(#[from] TransportError),

    /// A name that no transport has.
    #[error("there is no transport `{name}`: choose one of {known}")]
    UnknownTransport {
        /// What was asked for.
        name: String,
        /// The names there are, joined by commas.
        known: String,
    },
    /// A transport that this build has not, or that does not work on this machine.
    #[error("transport `{name}` cannot be used: {why}")]
    Unusable {
        /// Its name.
        name: &'static str,
        /// Why, and the mend.
        why: String,
    },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::System { doing: doing.into(), source: source.into() }
    }
}
