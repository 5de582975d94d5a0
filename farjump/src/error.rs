//! Errors, one variant for each cause.

use farjump_control::{AddressError, ConnectError, HandshakeError, KeyError, PeerAddress, RefusalCause};
use farjump_core::transport::TransportError;

/// An error of farjump. Its text says what was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An ifunc library or its code.
    #[error(transparent)]
    Library(#[from] farjump_loader::Error),
    /// The control connection or the handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A malformed address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An unusable key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A transport that is not available.
    #[error(transparent)]
    Unavailable(#[from] farjump_transports::Error),
    /// No transport that works on this machine leads to the address.
    #[error("no transport is usable on {address}: {reasons}")]
    NoTransport {
        /// The address.
        address: PeerAddress,
        /// The reason of each transport.
        reasons: String,
    },
    /// Memory for code, or an unsupported machine.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The target refused a frame; nothing ran.
    #[error("{text}")]
    Refused {
        /// Name of the ifunc.
        ifunc: String,
        /// The kind of reason.
        cause: RefusalCause,
        /// The reason, in the target's words.
        text: String,
    },
    /// The injected code called `farjump_panic`.
    #[error("`{ifunc}` panicked at the target: {message}")]
    Panicked {
        /// Name of the ifunc, or its code id.
        ifunc: String,
        /// Its message.
        message: String,
    },
    /// The target ended, or the connection to it did.
    #[error("the target {peer} is gone: {why}")]
    PeerGone {
        /// The target, as it was addressed.
        peer: String,
        /// The observation that showed it.
        why: String,
    },
    /// A deadline passed.
    #[error("{what}: the deadline passed")]
    Timeout {
        /// The event that was waited for.
        what: String,
    },
    /// The mailbox has no credit now, and the caller did not want to wait.
    #[error("the target has no room for another frame now: poll for replies, then try again")]
    Full,
    /// A frame that can never be sent on this link.
    #[error(
        "`{ifunc}` needs a frame of {len} bytes, this link takes at most {max}: send less at a time, or have the target take more (`farjump serve --mailbox`, `--max-payload`, and `--max-frame` and `--max-source-memory` if it has these limits)"
    )]
    TooLarge {
        /// Name of the ifunc.
        ifunc: String,
        /// Bytes needed.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// `NAME_payload_init` wrote past the space that `NAME_payload_get_max_size` had asked for. Memory of
    /// this process may be damaged; nothing was sent.
    #[error(
        "`{ifunc}_payload_init` wrote past the {max} bytes that `{ifunc}_payload_get_max_size` asked for: nothing was sent; mend the library, this process may be damaged"
    )]
    PayloadOverrun {
        /// Name of the ifunc.
        ifunc: String,
        /// Bytes asked for.
        max: usize,
    },
    /// Code that cannot run in place; nothing was sent.
    #[error("`{ifunc}` cannot run in place: {why}; choose another mode (cached, always, local)")]
    NotInPlace {
        /// Name of the ifunc.
        ifunc: String,
        /// The reason.
        why: String,
    },
    /// Too many pending calls on one link.
    #[error("{0} calls of this link wait for an answer: take some answers first")]
    TooManyCalls(usize),
    /// More different functions than a link can bind.
    #[error("this link has bound 65,536 different functions: make a new link")]
    TooManyFunctions,
    /// More memory asked for than a mailbox can have.
    #[error("{what} of {len} bytes is more than any link has: ask for {max} at most")]
    Size {
        /// Its purpose.
        what: &'static str,
        /// Bytes asked for.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A payload or code longer than the limit that the target announced in the handshake. Nothing was sent.
    #[error(
        "the {what} of `{ifunc}` has {len} bytes, and the target takes {max} at most: {}",
        match *what {
            "image" => "build it smaller, or start the target with a larger --max-image or --max-source-memory, as it has them",
            _ => "send less at a time, or start the target with a larger --max-payload",
        }
    )]
    OverLimit {
        /// Name of the ifunc.
        ifunc: String,
        /// `payload` or `image`.
        what: &'static str,
        /// Its bytes.
        len: usize,
        /// The target's limit.
        max: u64,
    },
    /// A limit of a target's policy that would let nothing in.
    #[error("a limit of {limit} bytes on {what} lets nothing in: set {least} at least, or leave it out")]
    Limit {
        /// The quantity that it limits.
        what: &'static str,
        /// Bytes asked for.
        limit: usize,
        /// The least useful value.
        least: usize,
    },
    /// A target with an allow-list of code that also allows mode in place.
    #[error(
        "mode in-place cannot go with a list of allowed code (--allow-code): what runs in place is what the source has written in \
         the mailbox, whatever its id says; leave one of the two out"
    )]
    InPlaceOfAllowed,
    /// A target that may have no sources.
    #[error(
        "a target that takes no sources at a time serves nobody: let it take 1 at least, or leave the limit out"
    )]
    NoSources,
    /// The caller's buffer is unsuitable.
    #[error("the buffer {0}")]
    Buffer(&'static str),
    /// A file cannot be mapped for injected functions.
    #[error("cannot map `{}`: {source}", path.display())]
    DataFile {
        /// The path as given.
        path: std::path::PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file that names code for perf cannot be made.
    #[error("cannot write the perf map `{}`: {source}", path.display())]
    PerfMap {
        /// The path at which perf looks for it.
        path: std::path::PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The operating system.
    #[error("{what}: {source}")]
    System {
        /// The operation attempted.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        HandshakeError::from(error).into()
    }
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
        move |errno| Error::System { what, source: errno.into() }
    }
}
