//! Errors of listening on an address and of connecting to one.

use farjump_core::worded;
use std::path::PathBuf;

use super::{Awaited, SystemError};
use crate::PeerAddress;

/// A listener or a connection that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A TCP address in a build without the feature `key`.
    #[error("{address} needs the feature `key`, {}", super::FEATURE_ADVICE)]
    FeatureMissing {
        /// The address.
        address: PeerAddress,
    },
    /// An address on other machines, or reachable from them, without a key.
    #[error(
        "{address} is not on this machine's loopback, and there is no key: make one with `farjump key FILE`, and give a copy to both processes"
    )]
    KeyMissing {
        /// The address.
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
        "{address}: another program listens there: stop it, or listen on another port (0 has the system choose one)"
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
        "no target listens on {address} ({found}): start one, for example with `farjump serve --listen {address}`"
    )]
    NobodyListens {
        /// The address.
        address: PeerAddress,
        /// What is there instead.
        found: NoListener,
    },
    /// The file's permissions deny this process.
    #[error("{address} belongs to another user: a target admits processes of its own user only")]
    Denied {
        /// The address.
        address: PeerAddress,
    },
    /// A step that timed out.
    #[error("{address} took too long: {awaited} did not come in time")]
    TimedOut {
        /// The address, or its host.
        address: String,
        /// The event waited for.
        awaited: Awaited,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

worded! {
    /// What is at an address where no process listens.
    #[non_exhaustive]
    NoListener {
        /// Nothing: the path does not exist.
        NoFile = "there is no such file",
        /// The socket of a process that has ended.
        Ended = "the one that did has ended",
        /// A socket of another kind.
        OtherSocket = "another kind of socket is there",
        /// A machine that refuses connections to the port.
        PortClosed = "its machine refuses connections there",
    }
}
