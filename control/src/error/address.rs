//! Errors of addresses.

use farjump_core::debug_in_words;
use std::path::PathBuf;

use crate::MAX_PATH;

/// A malformed address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// An unknown scheme.
    #[error(
        "`{given}` is no address: write unix:PATH, for example unix:store.sock, unix:@NAME, or tcp:HOST:PORT"
    )]
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
    /// A path or a name with a zero byte.
    #[error(
        "the socket's path or name {path:?} contains a zero byte, which it cannot have: choose another one"
    )]
    PathZero {
        /// The path or the name.
        path: PathBuf,
    },
    /// `unix:@` without a name.
    #[error("`unix:@` names no abstract socket: write unix:@NAME, for example unix:@store")]
    EmptyName,
    /// The name of an abstract socket that does not fit the system's socket address.
    #[error(
        "the abstract socket's name has {len} bytes and the system takes at most {MAX_PATH}: use a shorter name instead of @{name}"
    )]
    NameTooLong {
        /// The name.
        name: String,
        /// Length in bytes.
        len: usize,
    },
    /// A port that is out of range.
    #[error("`{given}`: the port {port} is over 65535: write one from 0 to 65535")]
    Port {
        /// The text given.
        given: String,
        /// Its port.
        port: String,
    },
    /// `tcp:` without host or port.
    #[error("`{given}` is no TCP address: write tcp:HOST:PORT, for example tcp:node7:7471")]
    Tcp {
        /// The text given.
        given: String,
    },
}

debug_in_words!(AddressError {
    Scheme { given },
    EmptyPath,
    PathTooLong { path, len },
    PathZero { path },
    EmptyName,
    NameTooLong { name, len },
    Port { given, port },
    Tcp { given },
});
