//! Errors of addresses.

use std::path::PathBuf;

use crate::MAX_PATH;

/// A malformed address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// An unknown scheme.
    #[error("`{given}` is no address: write unix:PATH, for example unix:store.sock, or tcp:HOST:PORT")]
    Scheme {
        /// The text given.
        given: String,
    },
    /// `unix:` without a path.
    #[error("`unix:` names no socket: write unix:PATH, for example unix:store.sock")]
    EmptyPath,
    /// A path that does not fit the system's socket address (`sun_path` in unix(7)).
    #[error(
        "the socket's path has {len} bytes and the system takes at most {MAX_PATH}: use a shorter or a relative path instead of {}",
        path.display()
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Length in bytes.
        len: usize,
    },
    /// A path with a zero byte.
    #[error(
        "the socket's path {path:?} contains a zero byte, which no file name can have: choose another path"
    )]
    PathZero {
        /// The path.
        path: PathBuf,
    },
    /// `tcp:` without host or port.
    #[error("`{given}` is no TCP address: write tcp:HOST:PORT, for example tcp:node7:7471")]
    Tcp {
        /// The text given.
        given: String,
    },
}
