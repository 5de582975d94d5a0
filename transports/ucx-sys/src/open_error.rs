//! Versions of UCX, and the reasons why it is not available.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use crate::{API, FILE, NEWEST};

/// A version of UCX.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Version {
    /// Changes when callers must be rewritten.
    pub major: u32,
    /// Changes with additions.
    pub minor: u32,
    /// Changes with corrections.
    pub release: u32,
}

impl Version {
    /// Returns whether it is newer than every version that was tested with farjump.
    pub fn is_newer_than_tried(&self) -> bool {
        (self.major, self.minor) > NEWEST
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// The reason why UCX is not available on this machine. The text names the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library, or one of its dependencies, is missing.
    #[error(
        "UCX is not installed ({said}): install UCX {}.{} or later, package libucx0 of Debian and Ubuntu, ucx of Fedora",
        API.0, API.1
    )]
    Missing {
        /// The dynamic linker's message.
        said: String,
    },
    /// The library is older than 1.13, or of another interface.
    #[error(
        "UCX {found} is installed and farjump needs {}.{} or later of {}: install a newer UCX, or put the folder of one first in LD_LIBRARY_PATH",
        API.0, API.1, API.0
    )]
    Version {
        /// The library's version.
        found: Version,
    },
    /// The library lacks functions of its version.
    #[error(
        "the library of UCX {found} is incomplete ({said}): reinstall UCX, package libucx0 of Debian and Ubuntu"
    )]
    Incomplete {
        /// The library's version.
        found: Version,
        /// The dynamic linker's message.
        said: String,
    },
    /// The library that `FARJUMP_UCX` names cannot be used.
    #[error("FARJUMP_UCX={}: {why}", file.display())]
    Named {
        /// The file.
        file: PathBuf,
        /// The reason, and the remedy.
        why: String,
    },
    /// The file is no UCX, or no library.
    #[error(
        "{FILE} is not UCX's ({said}): install UCX {}.{} or later, or remove this file's folder from LD_LIBRARY_PATH",
        API.0, API.1
    )]
    Foreign {
        /// The dynamic linker's message.
        said: String,
    },
}

/// The reason why the dynamic linker did not load the library. Only the message distinguishes a missing file from an
/// unusable one.
pub(crate) fn not_loaded(said: String) -> OpenError {
    match said.contains("cannot open shared object file") {
        true => OpenError::Missing { said },
        false => OpenError::Foreign { said },
    }
}

/// The dynamic linker's message, which is the source of libloading's error.
pub(crate) fn said(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
