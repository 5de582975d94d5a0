//! Errors before two processes can exchange frames: one variant for each cause.

use std::fmt;
use std::io;
use std::path::PathBuf;

use farjump_core::transport::TransportError;

use crate::{MAX_PATH, MeetRefusal, PeerAddress};

/// A failed handshake or control connection. Its text says what failed, where, and what to do.
///
/// `peer` is the other process as people know it: its name and process id.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address whose scheme farjump does not know.
    #[error("`{given}` is no address: write unix:PATH, for example unix:store.sock, or tcp:HOST:PORT")]
    AddressScheme {
        /// The text given.
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
        /// Length in bytes.
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
        /// The text given.
        given: String,
    },
    /// An address or a key that needs a feature which this build leaves out.
    #[error(
        "{what} needs the feature `key`, which this build leaves out: build farjump with one of the features tcp, ucx and verbs, which \
         include it, or on one machine use unix:PATH without a key"
    )]
    FeatureMissing {
        /// The address, or the use of a key.
        what: String,
    },
    /// An address on other machines, or reachable from them, without a key.
    #[error(
        "{address} is not on this machine's loopback, and there is no key: make one with `farjump key FILE`, have a copy on both sides, and give it to both with --key FILE"
    )]
    KeyMissing {
        /// The address.
        address: PeerAddress,
    },
    /// A file that holds no key.
    #[error(
        "{} cannot be used as a key: {what}; a key file has a line of 64 hexadecimal digits for each key (`farjump key --help`)",
        path.display()
    )]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The fault, or its line.
        what: String,
    },
    /// A key that other users may read or write, or that another user owns.
    #[error(
        "the key {0} can be had by others (mode {mode:o}, user {uid}; this process is user {own}): make it yours alone, `chmod 600 {0}`, and if others may have read it make a new one",
        path.display()
    )]
    KeyFileMode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// The effective user id of this process.
        own: u32,
    },
    /// The file for a new key exists already.
    #[error("{} exists and was left alone: name another file for the key, or move it away", path.display())]
    KeyFileExists {
        /// The file.
        path: PathBuf,
    },
    /// The peer has a key and this process has none.
    #[error("{peer} wants a key and this side has none: give it a copy of that key with --key FILE")]
    KeyWanted {
        /// The peer.
        peer: String,
    },
    /// This process has a key and the peer has none.
    #[error(
        "{peer} has no key and this side has one: give both the same with --key FILE; nothing was said to it"
    )]
    KeyUnknown {
        /// The peer.
        peer: String,
    },
    /// The peer has another key.
    #[error("{peer} has another key than this side: give both a copy of the same with --key FILE")]
    WrongKey {
        /// The peer.
        peer: String,
    },
    /// Bytes that the peer did not encrypt: they were changed, repeated or forged on the way.
    #[error("what came from {peer} was changed on the way, or is not from it: the connection was closed")]
    Tampered {
        /// The peer.
        peer: String,
    },
    /// The peer's machine does not answer.
    #[error("{peer} is gone: its machine did not answer for {seconds} s")]
    Silent {
        /// The peer.
        peer: String,
        /// Allowed silence in seconds.
        seconds: u32,
    },
    /// A connection without a key whose peer's user the system does not report.
    #[error(
        "the system does not say which user {peer} is, and there is no key: on one machine use unix:PATH, with both sides in a user namespace that maps their user; or over TCP give both a key (`farjump key FILE`, --key FILE)"
    )]
    OwnerUnknown {
        /// The peer.
        peer: String,
    },
    /// A connection without a key, while this process runs as the user that stands for all unknown ones.
    #[error(
        "{peer} cannot be told from other users: user {uid}, which this process runs as, stands for all that its user namespace does not map; run it as a user that the namespace maps, or over TCP give both sides a key (`farjump key FILE`, --key FILE)"
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

    /// Another target listens on the path.
    #[error("{address} is already in use by a running target: stop it, or listen on another path")]
    InUse {
        /// The address.
        address: PeerAddress,
    },
    /// Another program listens on the port.
    #[error(
        "{address}: something listens there already: stop it, or listen on another port (0 has the system choose one)"
    )]
    PortTaken {
        /// The address.
        address: PeerAddress,
    },
    /// The path exists and is not a socket. It was not touched.
    #[error("{} exists and is no socket: it was left alone; listen on another path or move it away", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// No process listens on the address.
    #[error(
        "no target listens on {address} ({why}): start one, for example with `farjump serve --listen {address}`"
    )]
    NobodyListens {
        /// The address.
        address: PeerAddress,
        /// What is there instead, in words.
        why: &'static str,
    },
    /// The file's permissions deny this process.
    #[error("{address} belongs to another user: a target admits processes of its own user only")]
    Denied {
        /// The address.
        address: PeerAddress,
    },
    /// The peer runs as another user.
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
        /// The operation and its object.
        doing: String,
        /// The system's error.
        source: io::Error,
    },

    /// The peer's first bytes are not farjump's preamble.
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
    #[error("{what}")]
    MissingRight {
        /// The missing right, and how to grant it.
        what: String,
    },
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
    #[error("{peer} sent a message that makes no sense: {what}")]
    Garbled {
        /// The peer.
        peer: String,
        /// The fault.
        what: String,
    },
    /// A number of file descriptors other than allowed or announced. All were closed.
    #[error("{peer} sent {found} file descriptors with a message that may have {expected}")]
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
    #[error("{peer} offers terms that cannot be: {what}")]
    Terms {
        /// The peer.
        peer: String,
        /// The fault.
        what: String,
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
    #[error("{peer} took too long: {waiting_for} did not come in time")]
    TooLate {
        /// The peer, or the address before a peer is known.
        peer: String,
        /// The message or event waited for.
        waiting_for: &'static str,
    },
    /// The peer rejected the handshake with a cause.
    #[error("{peer} refused: {text}")]
    Refused {
        /// The peer.
        peer: String,
        /// The cause.
        cause: MeetRefusal,
        /// Its explanation, stripped of control characters.
        text: String,
    },
    /// A source that the target rejects because it takes no more of them.
    #[error("{reason}")]
    Full {
        /// The reason, and what to do.
        reason: String,
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
    #[error("{transport}: no arrival rule in common: this side can do {ours}, {peer} can do {theirs}")]
    NoCommonRule {
        /// Name of the transport.
        transport: String,
        /// The peer.
        peer: String,
        /// Rules of this process.
        ours: String,
        /// Rules of the peer.
        theirs: String,
    },
    /// Several transports were tried in turn, and all failed.
    #[error("{last}; what was tried before: {others}")]
    NoneJoins {
        /// The error of the last one.
        last: Box<Error>,
        /// The errors of the others.
        others: String,
    },
    /// The transport could not make or connect its endpoint.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Refuses `what`, an address or a use of a key, in builds without the feature `key`.
pub(crate) fn require_key_feature(what: impl fmt::Display) -> Result<(), Error> {
    match cfg!(feature = "key") {
        true => Ok(()),
        false => Err(Error::FeatureMissing { what: what.to_string() }),
    }
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::System { doing: doing.into(), source: source.into() }
    }
}

#[cfg(all(test, not(feature = "key")))]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::{Control, Key, Keys, Listener, TcpOptions};

    #[test]
    fn without_the_feature_tcp_addresses_and_keys_are_refused_by_its_name() {
        let address: PeerAddress = "tcp:127.0.0.1:0".parse().unwrap();
        let with_key = TcpOptions::default().with_key(Some(Key::from_bytes([7; Key::LEN])));
        let refusals = [
            (Listener::bind(&address).unwrap_err(), "tcp:127.0.0.1:0"),
            (Listener::bind_with(&address, with_key).unwrap_err(), "tcp:127.0.0.1:0"),
            (Control::connect(&address, Instant::now()).unwrap_err(), "tcp:127.0.0.1:0"),
            (Key::draw().unwrap_err(), "a new key"),
            (Key::read(Path::new("some.key")).unwrap_err(), "the key some.key"),
            (Keys::read(Path::new("some.key")).unwrap_err(), "the key some.key"),
        ];
        for (error, what) in refusals {
            assert!(matches!(error, Error::FeatureMissing { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(what) && text.contains("feature `key`"), "{text}");
        }
    }
}
