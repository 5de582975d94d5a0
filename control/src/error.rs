//! What can go wrong before two processes can exchange frames: one variant for each cause.

use std::fmt;
use std::io;
use std::path::PathBuf;

use farjump_core::transport::TransportError;

use crate::{MAX_PATH, MeetRefusal, PeerAddress};

/// A failure to meet, or of the control connection afterwards. Its text says what was wrong, where, and what to do.
///
/// `peer` is the other process as people know it: its name and process id.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address without a scheme that farjump knows.
    #[error("`{given}` is no address: write unix:PATH, for example unix:store.sock, or tcp:HOST:PORT")]
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
    /// An address or a key that needs a feature which this build leaves out.
    #[error(
        "{what} needs the feature `key`, which this build leaves out: build farjump with one of the features tcp, ucx and verbs, which \
         include it, or on one machine use unix:PATH without a key"
    )]
    FeatureMissing {
        /// The address, or the use of a key.
        what: String,
    },
    /// An address that other machines reach, or are at, and no key.
    #[error(
        "{address} is not on this machine's loopback, and there is no key: make one with `farjump key FILE`, have a copy on both sides, and give it to both with --key FILE"
    )]
    KeyMissing {
        /// The address.
        address: PeerAddress,
    },
    /// A file that is no key.
    #[error(
        "{} cannot be used as a key: {what}; a key file has a line of 64 hexadecimal digits for each key (`farjump key --help`)",
        path.display()
    )]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, or where.
        what: String,
    },
    /// A key that others may read or write, or that is another user's.
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
    /// A new key was to be written where there is something already.
    #[error("{} exists and was left alone: name another file for the key, or move it away", path.display())]
    KeyFileExists {
        /// The file.
        path: PathBuf,
    },
    /// The peer has a key and this side has none.
    #[error("{peer} wants a key and this side has none: give it a copy of that key with --key FILE")]
    KeyWanted {
        /// The peer.
        peer: String,
    },
    /// This side has a key and the peer has none.
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
    /// What came was not sealed by the peer: it was changed, repeated or made up on the way.
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
        /// How long it may be silent, in seconds.
        seconds: u32,
    },
    /// A connection without a key whose other end has no owner that the system tells of.
    #[error(
        "the system does not say which user {peer} is, and there is no key: on one machine use unix:PATH, with both sides in a user namespace that maps their user; or over TCP give both a key (`farjump key FILE`, --key FILE)"
    )]
    OwnerUnknown {
        /// The peer.
        peer: String,
    },
    /// A connection without a key, and this process runs as the user that stands for all unknown ones.
    #[error(
        "{peer} cannot be told from other users: user {uid}, which this process runs as, stands for all that its user namespace does not map; run it as a user that the namespace maps, or over TCP give both sides a key (`farjump key FILE`, --key FILE)"
    )]
    OwnUserUnknown {
        /// The peer.
        peer: String,
        /// The effective user id of this process: the overflow uid.
        uid: u32,
    },
    /// A transport that hands over file descriptors, which TCP does not carry.
    #[error(
        "transport `{transport}` hands file descriptors to its peer, which only a Unix socket carries, and not {address}: use unix:PATH, or another transport (`farjump transports`), for example tcp"
    )]
    NeedsUnixSocket {
        /// Its name.
        transport: String,
        /// Where the sides were to meet.
        address: PeerAddress,
    },

    /// Another process listens there.
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
    /// A process that asks for what it may not do here.
    #[error("{what}")]
    MissingRight {
        /// Which right is missing, and how it is given.
        what: String,
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
