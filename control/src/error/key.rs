//! Errors of keys and key files.

use farjump_core::{debug_in_words, worded};
use std::path::{Path, PathBuf};

use super::ControlSystemError;
use crate::key::keys::MAX_NAME;

/// A key that cannot be drawn, read or written.
#[derive(thiserror::Error)]
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
        /// The fault. It contains no byte of the file.
        fault: KeyFault,
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
    System(#[from] ControlSystemError),
}

debug_in_words!(KeyError {
    FeatureMissing { path },
    File { path, fault },
    FileMode { path, mode, uid, own },
    FileExists { path },
    System(inner),
});

/// A fault of a key file, or of a key that is to be added to it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// More bytes than are read.
    #[error("it has more than {max} bytes")]
    TooLong {
        /// The limit in bytes.
        max: usize,
    },
    /// A line that is wrong.
    #[error("line {number} {fault}")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// Its fault.
        fault: KeyLineFault,
    },
    /// A pipe, a device or a directory. It was not read: its end might never come.
    #[error("it is no regular file: write the key to one, for yourself alone")]
    NotRegular,
    /// No key, where one is needed.
    #[error("it holds none: make one with `farjump key FILE`")]
    Empty,
    /// Several keys, where one is to be used.
    #[error("it holds {count} of them, and one is to be used here: put that line into a file of its own")]
    Several {
        /// Number of keys.
        count: usize,
    },
    /// A name that no key can have.
    #[error("`{}` cannot be the name of a key: write up to {MAX_NAME} letters, digits, and any of `-_.@`", name.escape_debug())]
    Name {
        /// The name as given.
        name: String,
    },
    /// A name that another key in the file has.
    #[error("it holds a key called `{name}` already: choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A key as bytes, to which no line can be added.
    #[error("it holds a key as bytes, and a line of text does not fit behind them")]
    Raw,
    /// As many keys as a file may hold.
    #[error("it holds {max} keys, and no more are taken: take one out first")]
    Full {
        /// The limit.
        max: usize,
    },
}

worded! {
    /// A fault of one line of a key file.
    #[non_exhaustive]
    KeyLineFault {
        /// The line does not begin with a key.
        NoKey = "does not begin with the 64 hexadecimal digits of a key",
        /// The line is not UTF-8.
        NoText = "is no text",
        /// An unknown right, or none, behind `allow=`.
        UnknownRights = "has `allow=` without known rights",
        /// Words behind the key other than a name and rights.
        Excess = "has more behind the key than a name and `allow=RIGHT,…`",
        /// The key of an earlier line.
        KeyAgain = "has a key that is there already",
        /// The name of an earlier line.
        NameAgain = "has a name that is there already",
        /// More lines than keys are taken.
        TooMany = "is one key more than are taken",
    }
}

fn subject(path: Option<&Path>) -> String {
    path.map_or_else(|| "a new key".to_owned(), |path| format!("the key {}", path.display()))
}
