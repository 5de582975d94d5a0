//! The folder for temporary files, which the variable TMPDIR names.

use std::env;
use std::io;
use std::path::{Path, PathBuf, absolute};

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::limits;

/// The folder if TMPDIR names none.
pub const DEFAULT: &str = "/tmp";
const VARIABLE: &str = "TMPDIR";

/// Returns the folder that TMPDIR names, as an absolute path; `None` where the variable is unset or empty.
pub fn named() -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os(VARIABLE).filter(|folder| !folder.is_empty())?);
    Some(absolute(&folder).unwrap_or(folder))
}

/// Returns the folder for temporary files, as an absolute path.
pub fn folder() -> PathBuf {
    named().unwrap_or_else(|| DEFAULT.into())
}

/// Returns the folder for temporary files in words, with the variable that names it.
pub fn in_words() -> String {
    match named() {
        Some(folder) => format!("{} (named by {VARIABLE})", folder.display()),
        None => DEFAULT.to_owned(),
    }
}

/// Returns the system's error inside an error of the crate `tempfile`. That error also names the path that it
/// tried, which is not the one that the user gave.
pub fn without_path(error: &io::Error) -> &io::Error {
    let tried = error.get_ref().and_then(|error| error.source()?.downcast_ref::<io::Error>());
    tried.unwrap_or(error)
}

/// Returns the sentence for a folder that cannot be made in the folder for temporary files.
pub fn lacking(error: &io::Error) -> String {
    let error = without_path(error);
    format!(
        "no folder can be made in {}: {error}{}; set {VARIABLE} to a folder that you may write to",
        in_words(),
        limits::behind(error)
    )
}

/// Returns whether the file system of `folder` is mounted so that no file in it can be run or mapped as code
/// (`noexec`).
pub fn forbids_code(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}
