//! Opening files that other processes name.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the file at `path` for reading, and never waits: a pipe without a writer and a terminal open at once.
/// The caller checks by the file's metadata that it is one to read.
///
/// # Errors
/// Those of open(2).
pub fn open_without_waiting(path: impl AsRef<Path>) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}
