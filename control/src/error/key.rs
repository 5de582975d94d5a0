//! Errors of keys and key files.

use std::path::{Path, PathBuf};

use super::SystemError;

/// A key that cannot be drawn, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A build without the feature `key`.
    #[error("{} needs the feature `key`, {}", subject(path.as_deref()), super::FEATURE_ADVICE)]
    FeatureMissing {
        /// The key file; `None` for a new key.
        path: Option<PathBuf>,
    },
    /// A file that holds no key, or none that can be used.
    #[error(
        "{} cannot be used as a key: {fault}; a key file has a line of 64 hexadecimal digits for each key (`farjump key --help`)",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The fault and its line, for people. It contains no byte of the file.
        fault: String,
    },
    /// A key that other users may read or write, or that another user owns.
    #[error(
        "the key {0} is accessible to others (mode {mode:o}, user {uid}; this process is user {own}): make it yours alone, `chmod 600 {0}`, and if others may have read it make a new one",
        path.display()
    )]
    FileMode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// The effective user id of this process.
        own: u32,
    },
    /// The file for a new key exists already. It was not touched.
    #[error("{} exists and was left alone: name another file for the key, or move it away", path.display())]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

fn subject(path: Option<&Path>) -> String {
    path.map_or_else(|| "a new key".to_owned(), |path| format!("the key {}", path.display()))
}
